#!/usr/bin/env bash
# All checks that a change must pass: format, lint, types, import contracts, and all tests.
#
#   scripts/test.sh [option …] [pytest argument …]      example: scripts/test.sh tests/unit -k murmur2
#
#   --no-kafka    skip the tests in tests/compat that need a real Kafka, which scripts/kafka.sh downloads and starts
#                 (or KAFKALITE_NO_KAFKA=1)
#   --kafka V     only tests/compat (or the given tests), on this version of Apache Kafka: one of those that
#                 scripts/kafka.sh versions prints, or a minor version such as 3.9; tests of features that V lacks are
#                 skipped with the reason
#   --broker NAME only tests/compat (or the given tests), on a broker that is not Apache Kafka: kfake, which is built with
#                 Go, or tansu, which is built with cargo (40 min, once); tests of what it lacks are skipped with the
#                 reason (tests/support/other_brokers.py)
#   --wing NAME   only the tests that a change in this wing of ARCHITECTURE.md (sink, broker, base or tools) can break: the
#                 files that import what is in it (tests/support/wings.py)
#   --python P    with this version of Python (3.13, or 3.13.0), in an environment of its own in .work; without it, with
#                 the python3 of the PATH, or with PYTHON
#   --spark V [--python P]   only tests/spark (or the given tests) and the batch job of the demo, with this version of
#                 PySpark (3.5, 4.0.5, …) and of Python, in an environment of its own in .work; tests of features that V
#                 lacks are skipped with the reason. Adds what it found to .work/ways.json
#   --ways [FILE] run no tests: write the table of the ways to write by version of Spark (tests/ways.json) into
#                 docs/versions.md
#   --yarn        only the commands of docs/clusters.md on Hadoop's own YARN cluster for tests, in both deploy modes, while a
#                 container is killed; downloads 65 MB of jars once, and the packages of the page's environment
#   --kubernetes  only the spark-submit of docs/clusters.md on a Kubernetes of this machine, while pods of an executor and
#                 of the driver are killed; needs root on Linux (scripts/kubernetes.sh)
#   --matrix      only the complete matrix: each security with each write path, with and without compression, to both
#                 brokers, 100 MB each (KAFKALITE_MATRIX_MB), with lost connections, killed leaders and other clients;
#                 prints a table at its end
#   --suites [--kafka] [NAME …]   run no tests of ours: the tests and programs of other projects that tests/suites lists
#                 (or those named) against the embedded broker, and print which fail and why; with --kafka against
#                 Apache Kafka, for comparison
#   --fuzz MINUTES [--seed SEED]   run no tests: attack what is read (schemas, records, answers), what is written, and what
#                 people paste, which Kafka's Java client judges as well (not with --no-kafka before it), from a random
#                 seed that it prints, and say how many cases were tried
#   --long        also run the long tests, with larger amounts (or KAFKALITE_LONG=1); their measurements are written to
#                 .work/figures.json (pytest's --figures FILE: another file)
#   --amounts     run no tests: print the amounts of the normal and the long run, and the variables that set them
#   --behaviours [PART]   run no tests: print the promised behaviours, each with its tests and their measurements in the
#                 last long run (tests/figures.json); only of the parts with PART in their names
#
# Options precede pytest's arguments. All steps run even if one fails; the exit code is then 1. -n 0 runs the tests one
# by one.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

pytest_options=()
processes=6
folder=""
spark="" python="" yarn="" kubernetes="" wing=""
matrix=()

# run_module MODULE [ARGUMENT…]: instead of the tests.
run_module() {
    cd "$ROOT"
    [ -z "$python" ] || use_python "$python"
    ensure_venv test demo bench
    exec "$PYTHON_BIN" -m "$@"
}

while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help)
            usage
            exit 0
            ;;
        --no-kafka) export KAFKALITE_NO_KAFKA=1 ;;
        --kafka)
            [ $# -ge 2 ] || die "--kafka needs a version: one of $("$ROOT/scripts/kafka.sh" versions)."
            export KAFKALITE_KAFKA_VERSION=$2
            folder=tests/compat
            shift
            ;;
        --broker)
            [ $# -ge 2 ] || die "--broker needs a name: kfake or tansu."
            export KAFKALITE_BROKER=$2
            folder=tests/compat
            shift
            ;;
        --spark)
            [ $# -ge 2 ] || die "--spark needs a version of PySpark, for example 3.5.9."
            spark=$2
            shift
            ;;
        --wing)
            [ $# -ge 2 ] || die "--wing needs a wing: sink, broker, base or tools."
            wing=$2
            shift
            ;;
        --python)
            [ $# -ge 2 ] || die "--python needs a version of Python, for example 3.13."
            python=$2
            shift
            ;;
        --yarn) yarn=yes ;;
        --kubernetes) kubernetes=yes ;;
        --matrix)
            export KAFKALITE_MATRIX=full KAFKALITE_MATRIX_MB="${KAFKALITE_MATRIX_MB:-100}"
            export KAFKALITE_MATRIX_SOAK_MB="${KAFKALITE_MATRIX_SOAK_MB:-2000}"
            export KAFKALITE_LEADER_KILLS="${KAFKALITE_LEADER_KILLS:-4}"
            # One by one, because all of them share one Spark and one Kafka.
            matrix=(-n 0 tests/matrix
                tests/compat/test_producer_on_kafka_cluster.py::test_killed_leaders_lose_and_repeat_nothing)
            ;;
        --suites) run_module tests.suites "${@:2}" ;;
        --fuzz)
            [ $# -ge 2 ] || die "--fuzz needs a number of minutes."
            run_module tests.hostile.fuzz --minutes "${@:2}"
            ;;
        --long) export KAFKALITE_LONG=1 ;;
        --amounts | --behaviours | --ways) run_module "tests.support.${1#--}" "${@:2}" ;;
        *) break ;;
    esac
    shift
done
# Only long tests take minutes, so only they have a longer time-out. In the normal run a test may fail once, as in Apache
# Kafka's own; with four such tests the run fails (tests/README.md).
if [ "${KAFKALITE_LONG:-0}" != 0 ]; then
    pytest_options+=(--timeout 3600 "--figures=$WORK/figures.json")
    processes=3
else
    pytest_options+=(--reruns 1 --max-suite-reruns 3)
fi

failed=""
step() { # NAME COMMAND…
    local name=$1 since=$SECONDS
    shift
    say "== $name"
    "$@" || failed="${failed:+$failed, }$name"
    say "   $((SECONDS - since)) s"
}

# Print the output of a check only if it fails.
quietly() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    [ "$status" = 0 ] || printf '%s\n' "$output"
    return "$status"
}

# archive_spark: create an archive of Spark's classes (CDS). Tests start dozens of JVMs, and the archive halves their
# start time. The tests also work without it.
archive_spark() {
    local archive="${KAFKALITE_SPARK_CLASSES:-$WORK/spark-classes.jsa}" own="$WORK/spark-classes.$$.jsa" stamp
    stamp="$(venv_stamp) $JAVA_HOME"
    [ "$(cat "$archive.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    mkdir -p "$WORK"
    (
        short_lived_spark
        SPARK_SUBMIT_OPTS+=" -XX:ArchiveClassesAtExit=$own -Xlog:disable"
        spark-submit --master "local[1]" scripts/spark_classes.py >/dev/null 2>&1 </dev/null
    ) && mv "$own" "$archive" && echo "$stamp" >"$archive.stamp" || rm -f "$own"
}

# compile_tests: let one process write the bytecode of the tests, which each process of the run would otherwise make.
compile_tests() {
    [ -d tests/__pycache__ ] || python -m pytest --collect-only -qqq >/dev/null 2>&1 || true
}

prepare() {
    local archiving compiling fetching
    archive_spark &
    archiving=$!
    compile_tests &
    compiling=$!
    fetch_promtool &
    fetching=$!
    wait "$archiving" "$compiling" "$fetching"
}

# download_kafka: the tests run meanwhile; those that need a Kafka wait while this file exists
# (tests/support/real_kafka.py).
download_kafka() {
    local status=0
    scripts/kafka.sh fetch || status=$?
    rm -f "$KAFKALITE_DOWNLOADING"
    return "$status"
}

# connect_server: PySpark 3.5 comes without the server of Spark Connect.
connect_server() {
    local jar
    for jar in "$SPARK_HOME"/jars/spark-connect*.jar; do [ ! -f "$jar" ] || return 0; done
    fetch_jars scripts/spark-connect-ivy.xml "$WORK/spark-connect"
    cp "$WORK"/spark-connect/*.jar "$SPARK_HOME/jars/"
}

# test_spark [pytest argument …]: the tests of the sink on the Spark of the environment. Exits.
test_spark() {
    local tests=(tests/spark "--ways=$WORK/ways.json")
    # Part of the tests says nothing about the ways as a whole.
    [ $# = 0 ] || tests=()
    step "server of Spark Connect" connect_server
    step "archive of Spark's classes" archive_spark
    [ $# != 0 ] || step "flights" scripts/demo.sh --batch --rows 50000
    export KAFKALITE_PIPELINE_RUNS="${KAFKALITE_PIPELINE_RUNS:-1}"
    step "pytest" python -m pytest -n 3 --dist loadfile --timeout 900 ${tests[@]+"${tests[@]}"} "$@"
    [ -z "$failed" ] || die "FAILED after $SECONDS s: $failed"
    say "all passed in $SECONDS s"
    exit 0
}

cd "$ROOT"
if [ -n "$spark" ]; then
    export KAFKALITE_SPARK_VERSION=$spark
    use_spark "$spark" "$python"
    ensure_venv test demo
    ensure_java
    test_spark "$@"
fi
[ -z "$python" ] || use_python "$python"
ensure_venv test demo bench ui
say "Python $(python_version "$PYTHON_BIN") in ${VENV#"$ROOT/"}"
[ -z "$wing" ] || files=$(python -m tests.support.wings "$wing")

static_checks() {
    local failed=""
    step "ruff check" quietly nice python -m ruff check .
    step "ruff format" quietly nice python -m ruff format --check .
    step "mypy --strict" quietly nice python -m mypy
    step "import contracts" quietly nice lint-imports --no-cache
    [ -z "$failed" ]
}

if [ -n "$yarn" ]; then
    ensure_java
    fetch_jars scripts/yarn-ivy.xml "$WORK/yarn"
    KAFKALITE_YARN_JARS="$WORK/yarn" exec "$PYTHON_BIN" -m pytest -n 0 --timeout 3000 tests/spark/test_yarn.py "$@"
fi

if [ -n "$kubernetes" ]; then
    ensure_java
    scripts/kafka.sh fetch
    exec scripts/kubernetes.sh run "$PYTHON_BIN" -m pytest -n 0 --timeout 3000 tests/spark/test_kubernetes.py "$@"
fi

# The checks run concurrently with the downloads and the tests, where these leave time, and are printed after them. They
# are the same for every version of Kafka.
checks=""
if [ -z "$folder" ] && [ ${#matrix[@]} = 0 ]; then
    mkdir -p "$WORK"
    static_checks >"$WORK/checks.log" 2>&1 &
    checks=$!
fi
ensure_java
export PATH="$PATH:$WORK/promtool/usr/bin"
downloading=""
if [ "${KAFKALITE_NO_KAFKA:-0}" = 0 ]; then
    mkdir -p "$WORK"
    export KAFKALITE_DOWNLOADING="$WORK/downloading.$$"
    : >"$KAFKALITE_DOWNLOADING"
    download_kafka >"$WORK/download.log" 2>&1 &
    downloading=$!
fi
step "archive of Spark's classes" prepare

if [ ${#matrix[@]} != 0 ]; then
    step "matrix" python -m pytest "${matrix[@]}" "$@"
    [ -z "$failed" ] || die "FAILED after $SECONDS s: $failed"
    exit 0
fi

case " $* " in *" tests/"*) folder="" ;; esac
# Six processes keep two processors busy, because each often waits for Spark, Kafka or a time-out; three do with the
# long tests, which wait less. The distribution of the tests is defined in tests/support/scheduling.py.
# shellcheck disable=SC2086 # several files
step "pytest" python -m pytest -n "$processes" --dist loadfile --no-loadscope-reorder \
    ${pytest_options+"${pytest_options[@]}"} ${folder:+"$folder"} ${files:-} "$@"
if [ -n "$downloading" ] && ! wait "$downloading"; then
    failed="${failed:+$failed, }Kafka's jars"
    cat "$WORK/download.log"
fi
if [ -n "$checks" ]; then
    wait "$checks" || failed="${failed:+$failed, }static checks"
    cat "$WORK/checks.log"
fi

if [ -n "$failed" ]; then
    say "FAILED after $SECONDS s: $failed"
    exit 1
fi
say "all passed in $SECONDS s"
