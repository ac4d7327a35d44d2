#!/usr/bin/env bash
# Build the source distribution, and the wheel from it.
#
#   scripts/build.sh [--release] [DIR]      into DIR, by default dist/
#
# The commit of the release's tag, or --release, has the version of setup.cfg; every other commit is a version before it,
# as 1.0.0.dev1066+g839acf39, and files that are not committed add the moment. Without git it is setup.cfg's.
# KAFKALITE_URL, or the remote origin, is the repository's page for the links of metadata and README.
#
# Prints the paths of the two files; "pip install" takes either of them. The environment that builds them has nothing
# but what builds: neither PySpark nor what kafkalite needs is downloaded.

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
ensure_builder
mkdir -p "$WORK" "$target"
target=$(cd "$target" && pwd)
cd "$ROOT"
version=$(sed -n 's/^version = //p' setup.cfg)

number=$version
[ "$is_release" = 1 ] || number=$(build_number "$version")
case "$number" in *+g*) ref=${number#*+g} ref=${ref%%.*} ;; *) ref="v$version" ;; esac
url=$(repository_url)

# From a copy, which has the number in the place of the version, and no files of earlier builds.
copy=$(mktemp -d "$WORK/build.XXXXXX")
trap 'rm -rf "$copy"' EXIT
"$PYTHON_BIN" -P scripts/build_copy.py "$copy" "$number" ${url:+"$url" "$ref"}
# Without isolation: setuptools is part of the environment, and is not downloaded again.
(cd "$copy" && "$PYTHON_BIN" -m build --no-isolation --outdir "$target" .) </dev/null >"$WORK/build.log" 2>&1 || {
    tail -n 20 "$WORK/build.log" >&2
    die "could not build the package; complete log: $WORK/build.log"
}
printf '%s\n' "$target/kafkalite-$number.tar.gz" "$target/kafkalite-$number-py3-none-any.whl"
