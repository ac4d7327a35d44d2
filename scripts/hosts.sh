#!/usr/bin/env bash
# Many streams on many hosts: 24 queries on a standalone Spark cluster of five workers write exactly once to a real
# Kafka of three nodes, while all of it is restarted in turn, for two hours or the given time.
#
#   scripts/hosts.sh [--minutes N] [--queries Q] [--rows R] [--tasks T] [--trigger SECONDS] [--pause SECONDS]
#                    [--every SECONDS] [--folder DIR]
#
# One application runs Q queries (24) in three ways: writeStream, foreach_batch (atomic) and numbered batches. Each has
# its own topic, and micro-batches of R rows (300) in T tasks (2) every 30 to 41 seconds (--trigger: the shortest). Each
# Kafka node, each Spark worker with its executor, another executor, the Spark master and the driver are restarted one
# after the other, in order and by kill -9 alternately, with a pause (30 s) in between. After half the time the driver
# and the worker on 127.0.0.5 are left alone, so that their memory can be judged. Meanwhile confluent-kafka
# (read_committed) reads all committed records.
#
# Each restart is printed, and every minute memory and descriptors by kind of process. At the end the queries write what
# they have planned, and rows that are missing or there twice are counted by what Spark's checkpoints say. The exit code
# is 1 if there are any, if a query stands still for 10 minutes, or if memory or descriptors grow: of the driver, its
# JVM, its largest Python worker and the largest one on 127.0.0.5, as in scripts/soak.sh, but over the second half. They
# are not checked in runs of less than 20 minutes. DIR (.work/hosts) holds the samples (memory.jsonl) and logs. It needs
# Linux (/proc and its loopback addresses), 8 GB of memory and 2 GB of disk. Ctrl-C ends everything.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case "${1:-}" in
    -h | --help)
        usage
        exit 0
        ;;
esac
[ -d /proc/self/fd ] || die "processes are found in Linux's /proc, which does not exist here."
ensure_venv test bench
ensure_java
"$ROOT/scripts/kafka.sh" fetch
mkdir -p "$WORK"
cd "$ROOT"
exec python -m tests.hosts.run "$@"
