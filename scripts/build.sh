#!/usr/bin/env bash
# Build the source distribution, and the wheel from it.
#
#   scripts/build.sh [DIR]      into DIR, by default dist/
#
# Prints the paths of the two files. Nothing else is needed to install the package elsewhere:
# pip install dist/kafkalite-*.whl

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case "${1:-}" in
    -h | --help)
        usage
        exit 0
        ;;
esac
[ $# -le 1 ] || die "one folder at most, found: $*"
target=${1:-$ROOT/dist}
ensure_venv build
mkdir -p "$WORK" "$target"
target=$(cd "$target" && pwd)
# setuptools would add the files that an earlier build has listed here.
rm -rf "$ROOT/build" "$ROOT/kafkalite.egg-info"
# Without isolation: setuptools is part of the extra, and is not downloaded again.
(cd "$ROOT" && python -m build --no-isolation --outdir "$target" .) </dev/null >"$WORK/build.log" 2>&1 || {
    tail -n 20 "$WORK/build.log" >&2
    die "could not build the package; complete log: $WORK/build.log"
}
version=$(sed -n 's/^version = //p' "$ROOT/setup.cfg")
printf '%s\n' "$target/kafkalite-$version.tar.gz" "$target/kafkalite-$version-py3-none-any.whl"
