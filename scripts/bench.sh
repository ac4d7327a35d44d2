#!/usr/bin/env bash
# Benchmarks on a real broker, each compared with its peers.
#
#   scripts/bench.sh spark     format("kafkalite") compared with Spark's format("kafka"), loops over rows, and no sink
#   scripts/bench.sh columns   KafkaProducer.send_columns compared with Kafka's Java producer
#   scripts/bench.sh records   KafkaProducer.send compared with kafka-python, aiokafka and confluent-kafka
#   scripts/bench.sh avro      rows encoded to Avro compared with fastavro, without a broker
#   scripts/bench.sh json      rows written as JSON compared with json.dumps, without a broker
#   scripts/bench.sh protobuf  rows encoded to Protobuf compared with Google's library and ptars, without a broker
#   scripts/bench.sh stream    micro-batches compared with Spark's own sink and a Python sink that does nothing
#   scripts/bench.sh trigger   the same for complete triggers, with asyncProgressTrackingEnabled
#   scripts/bench.sh profile   where the processor time of a micro-batch goes: Spark's, kafkalite's, the broker's
#   scripts/bench.sh task      one task outside Spark: its wall time and CPU time, beside confluent-kafka
#   scripts/bench.sh small     df.write of 1,000 rows: repeated in one session, and the first write of a session
#   scripts/bench.sh exactly-once  the cost of transactions: none, one per task, one for all tasks
#   scripts/bench.sh memory    memory of every process that a job has (docs/clusters.md)
#   scripts/bench.sh limits    memory, and throughput with more rows, partitions and brokers
#   scripts/bench.sh scale     the modelled cost of thousands of tasks and brokers, measured at small scale (docs/internals/scale.md)
#   scripts/bench.sh broker    the embedded broker compared with Kafka, written to and read by the same clients
#   scripts/bench.sh jars      download Spark's own connector and print its jars, separated by commas
#   scripts/bench.sh report    update the tables and the chart (with error bars) from the last measurements
#
# scripts/prove.sh 'bench-*' measures all tables of docs/internals/speed.md (about 70 minutes), for the report.
# scripts/bench.sh --spark V spark (3.5.9, 4.0, …) does so with another version of PySpark, in an environment of its own in
# .work, and compares with the connector of that version.
# Each benchmark has its own options: scripts/bench.sh spark --help. Kafka and Spark's connector are downloaded once
# into .work. scale needs neither of them: --tasks, --workers (Python processes), --brokers, --partitions and --touched
# (partitions that a task writes to; 0 = all) define the model, --tenth and --nodes define the part of it that is run
# and measured, --docs prints the table of the page. With --security SSL (or SASL_SSL), spark, stream and trigger write
# over that listener. KAFKALITE_BENCH_BOOTSTRAP=host:port uses a running Kafka, and KAFKALITE_BENCH_LISTENERS=FILE its
# other listeners: a JSON file with client properties by security.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Sets bootstrap, listeners and broker_pids: for a running Kafka, or for one that is stopped at the end of this script.
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

prepare() {
    ensure_venv bench
    ensure_java
    fetch_jars "$ROOT/scripts/$connector-ivy.xml" "$WORK/$connector"
    jars=$(printf '%s,' "$WORK/$connector"/*.jar)
    jars=${jars%,}
    # Spark's workers import the compared sinks.
    export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
    # Without bytecode files Python compiles every module at each start, which does not happen with an installed
    # package.
    unset PYTHONDONTWRITEBYTECODE
}

# use_connector [VERSION]: the connector of this version of PySpark, or of the one that the project is developed with.
use_connector() {
    case "${1:-}" in
        3.5 | 3.5.*) connector=spark-kafka-3.5 ;;
        4.0 | 4.0.*) connector=spark-kafka-4.0 ;;
        *) connector=spark-kafka ;;
    esac
}

use_connector
if [ "${1:-}" = --spark ]; then
    [ $# -ge 2 ] || die "--spark needs a version of PySpark, for example 3.5.9."
    use_spark "$2"
    use_connector "$2"
    shift 2
fi
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
    avro)
        ensure_venv bench
        python -m tests.bench.bench_avro "$@"
        ;;
    json)
        ensure_venv bench
        python -m tests.bench.bench_json "$@"
        ;;
    protobuf)
        ensure_venv bench
        python -m tests.bench.bench_protobuf "$@"
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
    profile)
        prepare
        find_kafka
        bench profile_stream --jars "$jars" --broker-pids "$broker_pids" "$@"
        ;;
    task)
        prepare
        find_kafka
        bench bench_task "$@"
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
    memory)
        prepare
        find_kafka
        bench bench_memory ${listeners:+--listeners "$listeners"} "$@"
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
