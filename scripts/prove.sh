#!/usr/bin/env bash
# The ledger of the proof: which promise is proven by which part of the tests, and on which sources each part last ran.
#
#   scripts/prove.sh --list              all parts: whether they are proven, their risk (1 is the highest) and last run
#   scripts/prove.sh --stale             the parts that are due, because they never ran, have failed, or depend on files
#                                        that have changed since; exits with 1 if there are any
#   scripts/prove.sh --minutes N [NAME …]    run parts that are due (of those named), the riskiest first, that fit into N
#                                        minutes
#   scripts/prove.sh NAME …              run these parts, due or not; * stands for anything: 'fuzz-*'
#   scripts/prove.sh --table             write the table of docs/versions.md, after a merge of records
#
# When a part ends, its record is written into tests/proof/records.jsonl, and the table into docs/versions.md, so that a
# run can be interrupted and begun again; commit both files. Runs are refused while other files differ from the commit.
# Logs are in .work/proof. A record of a test that failed once is red until its cause stands in the record.
# scripts/release.sh refuses a release while a part is due.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$ROOT"
case " $* " in
    *" -h "* | *" --help "*) usage && exit 0 ;;
    "  ") usage >&2 && exit 2 ;;
    # What only reads needs no packages.
    *" --list "* | *" --stale "* | *" --table "*) python=$(find_python) || die "Python 3.11 or newer is needed." ;;
    *)
        ensure_venv test demo bench
        python=$PYTHON_BIN
        ;;
esac
exec "$python" -m tests.proof "$@"
