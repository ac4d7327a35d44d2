#!/usr/bin/env bash
# Benchmarks on a real broker. `spark` compares format("kafkalite") with Spark's own format("kafka"), `records` compares
# KafkaProducer.send with kafka-python, aiokafka and confluent-kafka.
#
#   scripts/bench.sh spark [--rows N] [--runs N] [--partitions N] [--tasks N] [--cores N] [-X NAME=VALUE …]
#   scripts/bench.sh records [--rows N] [--runs N] [--partitions N] [--key-bytes N] [--value-bytes N]
#                            [--outcomes none|each] [--clients NAME,…]
#
# Kafka and Spark's connector are fetched once into .work. KAFKALITE_BENCH_BOOTSTRAP=host:port uses a Kafka that runs
# already.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Sets bootstrap: a Kafka that runs already, or one that ends with this script.
find_kafka() {
    bootstrap=${KAFKALITE_BENCH_BOOTSTRAP:-}
    if [ -z "$bootstrap" ]; then
        ensure_java
        mkdir -p "$WORK"
        kafka_dir=$(mktemp -d "$WORK/bench-kafka.XXXXXX")
        trap 'stop_kafka "$kafka_dir"' EXIT
        trap 'exit 130' INT TERM
        bootstrap=$("$ROOT/scripts/kafka.sh" start --port 0 --dir "$kafka_dir")
        bootstrap=${bootstrap#bootstrap.servers=}
    fi
}

bench_spark() {
    local bootstrap jars
    ensure_venv bench
    ensure_java
    fetch_jars "$ROOT/scripts/spark-kafka-ivy.xml" "$WORK/spark-kafka"
    jars=$(printf '%s,' "$WORK"/spark-kafka/*.jar)
    find_kafka
    python "$ROOT/tests/bench/bench_spark.py" --bootstrap-servers "$bootstrap" --jars "${jars%,}" "$@"
}

bench_records() {
    local bootstrap
    ensure_venv bench
    find_kafka
    python "$ROOT/tests/bench/bench_records.py" --bootstrap-servers "$bootstrap" "$@"
}

stop_kafka() {
    "$ROOT/scripts/kafka.sh" stop --dir "$1"
    rm -rf "$1"
}

command=${1:-}
[ $# = 0 ] || shift
case "$command" in
    spark) bench_spark "$@" ;;
    records) bench_records "$@" ;;
    -h | --help) usage ;;
    *)
        usage >&2
        exit 2
        ;;
esac
