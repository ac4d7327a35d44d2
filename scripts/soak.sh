#!/usr/bin/env bash
# A long exactly-once stream over SASL_SSL with SCRAM to a real Kafka, for an hour or the given time.
#
#   scripts/soak.sh [--minutes N] [--rows R] [--tasks T] [--security SASL_SSL|SSL] [--every SECONDS]
#
# A stream of R rows per micro-batch (1,000) in T tasks (4) writes as fast as possible. Meanwhile confluent-kafka
# (read_committed) reads all committed records. Every minute a line shows the number of rows written, missing and
# duplicated, and the resident memory and descriptors of the driver's Python, the JVM and Spark's Python workers.
# SASL sessions expire after a minute, so connections reauthenticate repeatedly.
#
# The exit code is 1 if a row is missing or duplicated, if the stream ends by itself, or if the memory or descriptors of
# one of the three grow: if the median of the last quarter of the run is more than 10 % and 20 MiB (or 10 descriptors)
# above that of the second quarter. Growth is not checked in runs of less than 10 minutes. Ctrl-C ends a run early and
# prints its counts. It needs Linux (/proc), 1 GB of memory for Spark and 1 GB for Kafka, and 2 GB of disk.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case "${1:-}" in
    -h | --help)
        usage
        exit 0
        ;;
esac
[ -d /proc/self/fd ] || die "memory and descriptors of other processes are read from Linux's /proc, which does not exist here."
ensure_venv bench
ensure_java
soak=""
trap '[ -n "$soak" ] || exit 130; kill -TERM "$soak" 2>/dev/null || true' INT TERM
start_secure_kafka soak connections.max.reauth.ms=60000
mkdir "$kafka_dir/stream"
(cd "$ROOT" && exec python -m tests.spark.soak --bootstrap-servers "$bootstrap" --listeners "$listeners" \
    --folder "$kafka_dir/stream" "$@") &
soak=$!
status=0
wait "$soak" || status=$?
# A signal to this script ends the wait, but not the program.
while kill -0 "$soak" 2>/dev/null; do
    status=0
    wait "$soak" || status=$?
done
exit "$status"
