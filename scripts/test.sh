#!/usr/bin/env bash
# Everything that has to hold before a change lands: format, lint, types, import contracts, and all tests.
#
#   scripts/test.sh [--no-kafka] [pytest argument …]      as: scripts/test.sh tests/unit -k murmur2
#
# All steps run even when one fails; the exit code is 1 if any did. The tests in tests/compat need a real Kafka, which
# scripts/kafka.sh fetches and starts; --no-kafka (or KAFKALITE_NO_KAFKA=1) skips them.

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
    local name=$1 started=$SECONDS
    shift
    say "== $name"
    "$@" || failed="${failed:+$failed, }$name"
    say "   $((SECONDS - started)) s"
}

cd "$ROOT"
ensure_venv test demo
ensure_java
# Fetched before the tests, so that no test waits for a download until its time is up.
if [ "${KAFKALITE_NO_KAFKA:-0}" = 0 ]; then step "fetch Kafka" scripts/kafka.sh fetch; fi

step "ruff check" python -m ruff check .
step "ruff format" python -m ruff format --check .
step "mypy --strict" python -m mypy
step "import contracts" lint-imports --no-cache
step "pytest" python -m pytest "$@"

if [ -n "$failed" ]; then
    say "FAILED after $SECONDS s: $failed"
    exit 1
fi
say "all passed in $SECONDS s"
