#!/usr/bin/env bash
# Micro-batches written exactly once over SASL_SSL with SCRAM to a real Kafka, for an hour or as long as is asked for.
#
#   scripts/soak.sh [--minutes N] [--rows R] [--tasks T] [--security SASL_SSL|SSL] [--every SECONDS]
#
# A stream of R rows a micro-batch (1,000) in T tasks (4) writes as fast as it can. All that is committed is read back by
# confluent-kafka (read_committed) meanwhile. Every minute a line says how many rows were written, how many of them are
# missing and how many there twice, and what memory (resident) and how many descriptors the driver's Python, the JVM and
# Spark's Python workers have. Sessions of SASL end after a minute, so connections authenticate again all the time.
#
# The exit code is 1 when a row is missing or there twice, when the stream ends by itself, or when memory or descriptors
# of one of the three are not flat: when the median of the last quarter of the run is more than 10 % and 20 MiB (or
# 10 descriptors) above that of the second quarter. Runs of less than 10 minutes are not judged by that. Ctrl-C ends a
# run early, with its count. It needs Linux (/proc), a GB of memory for Spark and one for Kafka, and 2 GB of disk.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case "${1:-}" in
    -h | --help)
        usage
        exit 0
        ;;
esac
[ -d /proc/self/fd ] || die "memory and descriptors of other processes are read from Linux's /proc, which is missing here."
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
# A signal to this script ends a wait, but not yet the program.
while kill -0 "$soak" 2>/dev/null; do
    status=0
    wait "$soak" || status=$?
done
exit "$status"
