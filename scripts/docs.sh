#!/usr/bin/env bash
# Build the site from docs/. Warnings are errors; links between pages are checked.
#
#   scripts/docs.sh [FOLDER]    default: .work/site

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case "${1:-}" in
    -h | --help)
        usage
        exit 0
        ;;
esac
cd "$ROOT"
ensure_venv docs
site="${1:-$WORK/site}"
"$PYTHON_BIN" -m sphinx -q -W --keep-going -E -b html docs "$site"
say "built $site/index.html"
