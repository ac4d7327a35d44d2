#!/usr/bin/env bash
# Build the source distribution, and the wheel from it.
#
#   scripts/build.sh [--release] [DIR]      into DIR, by default dist/
#
# The commit of the release's tag, or --release, has the version of setup.cfg; every other commit is a version before it,
# as 0.1.0.dev1066+g839acf39, and files that are not committed add the moment. Without git it is setup.cfg's.
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

# number: the version of what is built here.
number() {
    local dirty=""
    [ "$is_release" = 0 ] && [ -e .git ] && git rev-parse -q --verify HEAD >/dev/null 2>&1 || {
        printf '%s\n' "$version"
        return
    }
    [ -z "$(git status --porcelain)" ] || dirty=.d$(date -u +%Y%m%d%H%M%S)
    if [ -z "$dirty" ] && [ "$(git tag --points-at HEAD "v$version")" ]; then
        printf '%s\n' "$version"
    else
        printf '%s\n' "$version.dev$(git rev-list --count HEAD)+g$(git rev-parse --short=8 HEAD)$dirty"
    fi
}

# From a copy, which has the number in the place of the version, and no files of earlier builds.
copy=$(mktemp -d "$WORK/build.XXXXXX")
trap 'rm -rf "$copy"' EXIT
number=$(number)
"$PYTHON_BIN" -P - "$ROOT" "$copy" "$version" "$number" <<'PYTHON'
import pathlib, shutil, sys
root, copy, version, number = sys.argv[1:]
for name in ("kafka_sink", "pyspark_kafkalite"):
    shutil.copytree(f"{root}/{name}", f"{copy}/{name}", ignore=shutil.ignore_patterns("__pycache__"))
for name in ("LICENSE", "README.md", "pyproject.toml", "setup.cfg"):
    shutil.copy(f"{root}/{name}", copy)
for name in ("setup.cfg", "kafka_sink/common/version.py"):
    file = pathlib.Path(copy, name)
    file.write_text(file.read_text(encoding="utf-8").replace(version, number, 1), encoding="utf-8")
PYTHON
# Without isolation: setuptools is part of the extra, and is not downloaded again.
(cd "$copy" && python -m build --no-isolation --outdir "$target" .) </dev/null >"$WORK/build.log" 2>&1 || {
    tail -n 20 "$WORK/build.log" >&2
    die "could not build the package; complete log: $WORK/build.log"
}
printf '%s\n' "$target/kafkalite-$number.tar.gz" "$target/kafkalite-$number-py3-none-any.whl"
