#!/usr/bin/env bash
# Everything that has to hold before a change lands: format, lint, types, import contracts, and all tests.
#
#   scripts/test.sh [option …] [pytest argument …]      as: scripts/test.sh tests/unit -k murmur2
#
#   --no-kafka    leave out the tests in tests/compat that need a real Kafka, which scripts/kafka.sh fetches and starts
#                 (or KAFKALITE_NO_KAFKA=1)
#   --kafka V     only tests/compat (or the tests that are named), on this version of Apache Kafka: one of those that
#                 scripts/kafka.sh versions prints, or its minor version, as 3.9; what V lacks is skipped with the reason
#   --matrix      only the matrix, whole: every security by every path with and without compression to both brokers, 100 MB
#                 each (KAFKALITE_MATRIX_MB), cut connections, killed leaders, other clients; prints a table at its end
#   --long        with the tests and amounts that take long for what they prove (or KAFKALITE_LONG=1); what they measure is
#                 written to .work/figures.json (pytest's --figures FILE: elsewhere)
#   --amounts     run nothing: print how much the tests try in the normal and the long run, and the variables that say so
#   --behaviours [PART]   run nothing: print what is promised, and of each promise its tests and their figures of the last
#                 long run (tests/figures.json); only of the parts with PART in their names
#
# Options stand before pytest's arguments. All steps run even when one fails; the exit code is 1 if any did. -n 0 runs the
# tests one by one.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pytest_options=()
folder=""
matrix=()
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help)
            usage
            exit 0
            ;;
        --no-kafka) export KAFKALITE_NO_KAFKA=1 ;;
        --kafka)
            [ $# -ge 2 ] || die "--kafka wants a version: one of $("$ROOT/scripts/kafka.sh" versions)."
            export KAFKALITE_KAFKA_VERSION=$2
            folder=tests/compat
            shift
            ;;
        --matrix)
            export KAFKALITE_MATRIX=full KAFKALITE_MATRIX_MB="${KAFKALITE_MATRIX_MB:-100}"
            export KAFKALITE_LEADER_KILLS="${KAFKALITE_LEADER_KILLS:-4}"
            # One by one, as all of them share one Spark and one Kafka.
            matrix=(-n 0 tests/matrix
                tests/compat/test_producer_on_kafka_cluster.py::test_killed_leaders_lose_and_repeat_nothing)
            ;;
        --long) export KAFKALITE_LONG=1 ;;
        --amounts | --behaviours)
            cd "$ROOT"
            ensure_venv test demo bench
            exec "$PYTHON_BIN" -m "tests.support.${1#--}" "${@:2}"
            ;;
        *) break ;;
    esac
    shift
done
# No test of the normal run takes minutes; the long ones do.
if [ "${KAFKALITE_LONG:-0}" != 0 ]; then pytest_options+=(--timeout 3600 --figures "$WORK/figures.json"); fi

failed=""
step() { # NAME COMMAND…
    local name=$1 since=$SECONDS
    shift
    say "== $name"
    "$@" || failed="${failed:+$failed, }$name"
    say "   $((SECONDS - since)) s"
}

# What a check says is of interest only when it fails.
quietly() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    [ "$status" = 0 ] || printf '%s\n' "$output"
    return "$status"
}

# archive_spark: the classes of Spark as its JVM keeps them in memory (CDS): tests start dozens, which take half as long with
# them. Without the archive everything works.
archive_spark() {
    local archive="$WORK/spark-classes.jsa" own="$WORK/spark-classes.$$.jsa" stamp
    stamp="$(venv_stamp) $JAVA_HOME"
    [ "$(cat "$archive.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    mkdir -p "$WORK"
    SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit=$own -Xlog:disable" \
        spark-submit --master "local[1]" scripts/spark_classes.py >/dev/null 2>&1 </dev/null &&
        mv "$own" "$archive" && echo "$stamp" >"$archive.stamp" || rm -f "$own"
}

prepare() {
    local archiving status=0
    archive_spark &
    archiving=$!
    # Fetched before the tests, so that no test waits for a download until its time is up.
    [ "${KAFKALITE_NO_KAFKA:-0}" != 0 ] || scripts/kafka.sh fetch || status=$?
    wait "$archiving"
    return "$status"
}

cd "$ROOT"
ensure_venv test demo bench
ensure_java
step "jars and archives of their classes" prepare

if [ ${#matrix[@]} != 0 ]; then
    step "matrix" python -m pytest "${matrix[@]}" "$@"
    [ -z "$failed" ] || die "FAILED after $SECONDS s: $failed"
    exit 0
fi

static_checks() {
    local failed=""
    step "ruff check" quietly python -m ruff check .
    step "ruff format" quietly python -m ruff format --check .
    step "mypy --strict" quietly python -m mypy
    step "import contracts" quietly lint-imports --no-cache
    [ -z "$failed" ]
}

# Beside the tests, and shown after them. They are the same for every version of Kafka.
checks=""
if [ -z "$folder" ]; then
    mkdir -p "$WORK"
    static_checks >"$WORK/checks.log" 2>&1 &
    checks=$!
fi
case " $* " in *" tests/"*) folder="" ;; esac
# Five processes keep two processors busy, as each often waits for a Spark, a Kafka or a time-out. How they share the tests
# stands in tests/support/scheduling.py.
step "pytest" python -m pytest -n 5 --dist loadfile --no-loadscope-reorder ${pytest_options+"${pytest_options[@]}"} \
    ${folder:+"$folder"} "$@"
if [ -n "$checks" ]; then
    wait "$checks" || failed="${failed:+$failed, }static checks"
    cat "$WORK/checks.log"
fi

if [ -n "$failed" ]; then
    say "FAILED after $SECONDS s: $failed"
    exit 1
fi
say "all passed in $SECONDS s"
