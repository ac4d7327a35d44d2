#!/usr/bin/env bash
# Benchmarks. `spark` compares format("kafkalite") with Spark's own format("kafka") on a real broker.
#
#   scripts/bench.sh spark [--rows N] [--runs N] [--partitions N] [--tasks N] [--cores N] [-X NAME=VALUE …]
#
# Kafka and Spark's connector are fetched once into .work. KAFKALITE_BENCH_BOOTSTRAP=host:port uses a Kafka that runs
# already.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

bench_spark() {
    local bootstrap=${KAFKALITE_BENCH_BOOTSTRAP:-} jars
    ensure_venv bench
    ensure_java
    fetch_jars "$ROOT/scripts/spark-kafka-ivy.xml" "$WORK/spark-kafka"
    jars=$(printf '%s,' "$WORK"/spark-kafka/*.jar)
    if [ -z "$bootstrap" ]; then
        mkdir -p "$WORK"
        kafka_dir=$(mktemp -d "$WORK/bench-kafka.XXXXXX")
        trap 'stop_kafka "$kafka_dir"' EXIT
        trap 'exit 130' INT TERM
        bootstrap=$("$ROOT/scripts/kafka.sh" start --port 0 --dir "$kafka_dir")
        bootstrap=${bootstrap#bootstrap.servers=}
    fi
    python "$ROOT/tests/bench/bench_spark.py" --bootstrap-servers "$bootstrap" --jars "${jars%,}" "$@"
}

stop_kafka() {
    "$ROOT/scripts/kafka.sh" stop --dir "$1"
    rm -rf "$1"
}

command=${1:-}
[ $# = 0 ] || shift
case "$command" in
    spark) bench_spark "$@" ;;
    -h | --help) usage ;;
    *)
        usage >&2
        exit 2
        ;;
esac
