#!/usr/bin/env bash
# Build the source distribution, and the wheel from it.
#
#   scripts/build.sh [--release] [DIR]      into DIR, by default dist/
#
# The commit of the release's tag, or --release, has the version of setup.cfg; every other commit is a version before it,
# as 0.1.0.dev1066+g839acf39, and files that are not committed add the moment. Without git it is setup.cfg's.
# KAFKALITE_URL, or the remote origin, is the repository's page for the links of metadata and README.
#
# Prints the paths of the two files. Nothing else is needed to install the package elsewhere:
# pip install dist/kafkalite-*.whl

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

target="" is_release=0
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        --release) is_release=1 ;;
        -*) die "unknown option $1; see --help" ;;
        *) [ -z "$target" ] || die "one folder at most, found: $target $1" && target=$1 ;;
    esac
    shift
done
target=${target:-$ROOT/dist}
ensure_venv build
mkdir -p "$WORK" "$target"
target=$(cd "$target" && pwd)
cd "$ROOT"
version=$(sed -n 's/^version = //p' setup.cfg)

# What is built is the commit $ref, with this number.
number=$version ref="v$version" dirty=""
if [ "$is_release" = 0 ] && [ -e .git ] && commit=$(git rev-parse -q --verify --short=8 HEAD 2>/dev/null); then
    [ -z "$(git status --porcelain)" ] || dirty=.d$(date -u +%Y%m%d%H%M%S)
    if [ -n "$dirty" ] || [ -z "$(git tag --points-at HEAD "v$version")" ]; then
        number="$version.dev$(git rev-list --count HEAD)+g$commit$dirty" ref=$commit
    fi
fi
# The repository's page, for metadata and README: KAFKALITE_URL, or what origin is on a code-hosting site.
url=${KAFKALITE_URL:-$(git remote get-url origin 2>/dev/null |
    sed -n -E 's,^git@([^:/]+):,https://\1/,; s,\.git$,,; /^https:/p')}

# From a copy, which has the number in the place of the version, and no files of earlier builds.
copy=$(mktemp -d "$WORK/build.XXXXXX")
trap 'rm -rf "$copy"' EXIT
"$PYTHON_BIN" -P scripts/build_copy.py "$copy" "$number" ${url:+"$url" "$ref"}
# Without isolation: setuptools is part of the extra, and is not downloaded again.
(cd "$copy" && python -m build --no-isolation --outdir "$target" .) </dev/null >"$WORK/build.log" 2>&1 || {
    tail -n 20 "$WORK/build.log" >&2
    die "could not build the package; complete log: $WORK/build.log"
}
printf '%s\n' "$target/kafkalite-$number.tar.gz" "$target/kafkalite-$number-py3-none-any.whl"
