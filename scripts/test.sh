#!/usr/bin/env bash
# Everything that has to hold before a change lands: format, lint, types, import contracts, and all tests.
#
#   scripts/test.sh [--no-kafka] [pytest argument …]      as: scripts/test.sh tests/unit -k murmur2
#
# All steps run even when one fails; the exit code is 1 if any did. The tests in tests/compat need a real Kafka, which
# scripts/kafka.sh fetches and starts; --no-kafka (or KAFKALITE_NO_KAFKA=1) skips them. -n 0 runs them one by one.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case "${1:-}" in
    -h | --help)
        usage
        exit 0
        ;;
    --no-kafka)
        export KAFKALITE_NO_KAFKA=1
        shift
        ;;
esac

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

cd "$ROOT"
ensure_venv test demo bench
ensure_java
# Fetched before the tests, so that no test waits for a download until its time is up.
if [ "${KAFKALITE_NO_KAFKA:-0}" = 0 ]; then step "Kafka's jars" scripts/kafka.sh fetch; fi

step "ruff check" quietly python -m ruff check .
step "ruff format" quietly python -m ruff format --check .
step "mypy --strict" quietly python -m mypy
step "import contracts" quietly lint-imports --no-cache
# Two workers, as most of the time is spent waiting for Sparks and Kafkas; by files, as these share what they start, and in
# the order of the folders, which has the slow ones first.
step "pytest" python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"

if [ -n "$failed" ]; then
    say "FAILED after $SECONDS s: $failed"
    exit 1
fi
say "all passed in $SECONDS s"
