#!/usr/bin/env bash
# Benchmarks on a real broker, each beside its peers.
#
#   scripts/bench.sh spark     format("kafkalite") beside Spark's own format("kafka"), loops over rows, and no sink at all
#   scripts/bench.sh columns   KafkaProducer.send_columns beside Kafka's Java producer
#   scripts/bench.sh records   KafkaProducer.send beside kafka-python, aiokafka and confluent-kafka
#   scripts/bench.sh stream    micro-batches beside Spark's own sink and a Python sink that does nothing
#   scripts/bench.sh trigger   the same, the whole trigger with asyncProgressTrackingEnabled
#   scripts/bench.sh small     df.write of 1,000 rows: again and again in a session, and the first of one
#   scripts/bench.sh exactly-once  what transactions cost: none, one a task, one for all
#   scripts/bench.sh limits    memory, and speed with more rows, partitions and brokers
#   scripts/bench.sh scale     what thousands of tasks and brokers would cost: a model, counted in small (docs/scale.md)
#   scripts/bench.sh broker    the embedded broker beside Kafka, written to and read by the same clients
#   scripts/bench.sh all       everything that README's table shows, and that table anew (hours)
#   scripts/bench.sh jars      fetch Spark's own connector and print its jars, separated by commas
#   scripts/bench.sh report    README's table and chart from what was measured last
#
# Each takes options of its own: scripts/bench.sh spark --help. Kafka and Spark's connector are fetched once into .work.
# scale needs neither: --tasks, --workers (Python processes), --brokers, --partitions, --touched (partitions a task writes
# to; 0 = all) are what is modelled, --tenth and --nodes say how much of it is run and counted, --docs prints the page's
# table.
# spark, stream and trigger --security SSL (or SASL_SSL) write over that listener. KAFKALITE_BENCH_BOOTSTRAP=host:port uses a
# Kafka that runs already, and KAFKALITE_BENCH_LISTENERS=FILE its other listeners: client properties by name of the security, in JSON.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Sets bootstrap, listeners and broker_pids: a Kafka that runs already, or one that ends with this script.
find_kafka() {
    bootstrap=${KAFKALITE_BENCH_BOOTSTRAP:-}
    listeners=${KAFKALITE_BENCH_LISTENERS:-}
    broker_pids=""
    if [ -z "$bootstrap" ]; then
        trap 'exit 130' INT TERM
        start_secure_kafka bench
        broker_pids=$(head -n 1 "$kafka_dir/node-1/pid")
    fi
}

# bench MODULE [argument …]
bench() {
    local module=$1
    shift
    python -m "tests.bench.$module" --bootstrap-servers "$bootstrap" "$@"
}

bench_spark() {
    bench bench_spark --jars "$jars" --broker-pids "$broker_pids" ${listeners:+--listeners "$listeners"} "$@"
}

bench_stream() {
    bench bench_stream --jars "$jars" ${listeners:+--listeners "$listeners"} "$@"
}

bench_all() {
    local results="$ROOT/tests/bench/results" security
    bench_spark --goals --runs 5 --results "$results" "$@"
    for security in SSL SASL_SSL; do
        bench_spark --security "$security" --rows 10000000 --runs 5 --results "$results"
    done
    bench bench_columns --runs 5 --results "$results"
    bench bench_records --runs 5 --results "$results"
    bench_stream --results "$results"
    bench_stream --security SASL_SSL --results "$results"
    bench_stream --whole-trigger --results "$results"
    bench bench_small --jars "$jars" --results "$results"
    bench bench_exactly_once --results "$results"
    bench bench_limits --results "$results"
    bench bench_broker --broker-pids "$broker_pids" --results "$results"
    python -m tests.bench.report
}

prepare() {
    ensure_venv bench
    ensure_java
    fetch_jars "$ROOT/scripts/spark-kafka-ivy.xml" "$WORK/spark-kafka"
    jars=$(printf '%s,' "$WORK"/spark-kafka/*.jar)
    jars=${jars%,}
    # Spark's workers import the sinks that are compared.
    export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
    # Who keeps no bytecode compiles every module at each start, which nobody does with an installed package.
    unset PYTHONDONTWRITEBYTECODE
}

command=${1:-}
[ $# = 0 ] || shift
case "$command" in
    spark)
        prepare
        find_kafka
        bench_spark "$@"
        ;;
    jars)
        prepare
        printf '%s\n' "$jars"
        ;;
    columns)
        prepare
        find_kafka
        bench bench_columns "$@"
        ;;
    records)
        prepare
        find_kafka
        bench bench_records "$@"
        ;;
    stream)
        prepare
        find_kafka
        bench_stream "$@"
        ;;
    trigger)
        prepare
        find_kafka
        bench_stream --whole-trigger "$@"
        ;;
    small)
        prepare
        find_kafka
        bench bench_small --jars "$jars" "$@"
        ;;
    exactly-once)
        prepare
        find_kafka
        bench bench_exactly_once "$@"
        ;;
    limits)
        prepare
        find_kafka
        bench bench_limits "$@"
        ;;
    scale)
        ensure_venv bench
        python -m tests.bench.bench_scale "$@"
        ;;
    broker)
        prepare
        find_kafka
        bench bench_broker --broker-pids "$broker_pids" "$@"
        ;;
    all)
        prepare
        find_kafka
        bench_all "$@"
        ;;
    report)
        prepare
        python -m tests.bench.report
        ;;
    -h | --help) usage ;;
    *)
        usage >&2
        exit 2
        ;;
esac
