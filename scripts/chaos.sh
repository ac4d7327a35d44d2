#!/usr/bin/env bash
# Writes exactly once from Spark to a real Kafka of three nodes, in four ways at the same time, while everything fails.
#
#   scripts/chaos.sh [--minutes N] [--security PLAINTEXT|SASL_SSL] [--kafka V] [--cluster] [--seed S] [--results]
#
# The ways are writeStream, foreach_batch (atomic and parallel) and numbered batches. Every fault happens by itself, then
# two at a time, for N minutes (60): brokers, driver, JVM and Python workers are killed and frozen; brokers are restarted
# in turn; leaders move; a broker is cut off from the other brokers, or from the controllers, in both directions or one,
# while clients reach all of them; the network is cut, slow, or loses answers; the driver stays away for longer than
# transactions may stay open. With --cluster the tasks run on a standalone Spark cluster of two workers, whose executors
# and Python workers are killed and frozen. S repeats the choices of an earlier run, as far as time permits.
#
# At the end confluent-kafka reads what is committed, and a table is printed: fault × way, with the number of batches,
# rows missing, rows that are there twice, torn batches, the longest time without a batch, and how long after the end of
# the fault the next batch was committed ("driver restarted" is what a plain restart takes). --results writes it into
# tests/chaos/results.md. The exit code is 1 if a row is missing or there twice, or a batch is torn, or a way does not resume.
# V is a version of Kafka (default: the newest); two-phase commit is used where it is offered. Ctrl-C ends a run early
# and judges it. It needs Linux (/proc), 3 GB of memory for Kafka, 2 GB for Spark, and 2 GB of disk.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=$("$ROOT/scripts/kafka.sh" versions)
version=${version##* }
arguments=()
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        --kafka)
            [ $# -ge 2 ] || die "--kafka needs a version, for example 3.6.2."
            version=$2
            shift
            ;;
        *) arguments+=("$1") ;;
    esac
    shift
done
[ -d /proc/self/fd ] || die "processes are found in Linux's /proc, which does not exist here."
ensure_venv test bench
ensure_java
export KAFKALITE_KAFKA_VERSION=$version
"$ROOT/scripts/kafka.sh" fetch
# KIP-939 is complete from this version on.
case "$version" in 3.* | 4.[0-2] | 4.[0-2].*) ;; *) arguments+=(--two-phase) ;; esac
mkdir -p "$WORK"
cd "$ROOT"
exec python -m tests.chaos.run --version "$version" ${arguments[@]+"${arguments[@]}"}
