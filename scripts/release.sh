#!/usr/bin/env bash
# The checklist of a release. Nothing is published, and neither a tag nor a commit is made: what is left to do is printed
# at the end.
#
#   scripts/release.sh VERSION [--check | --no-tests]      example: scripts/release.sh 1.0.0
#
# Checks that the tree is clean; that VERSION is the one of setup.cfg and of CITATION.cff and has a section with a date
# in CHANGELOG.md (a release candidate, 1.0.0rc1, may have that of its release, without a date); that no part of the proof
# is due (scripts/prove.sh, which also names those that no machine of ours can run); that all tests pass
# (unless --no-tests) and the site is built. Builds the files of the release into dist/VERSION and checks them (twine,
# check-wheel-contents), installs the wheel with each extra into an empty environment, lists what pip installed with it
# as a software bill of materials (CycloneDX), runs the example of README and compares the public names there, on each
# supported version of Python of this machine, and writes the notes of the release from CHANGELOG.md. --check stops after
# what needs no tests and builds nothing.
# KAFKALITE_URL is the repository's page, if it is not the remote origin.

# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version="" tests=1 only_check=0
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage && exit 0 ;;
        --no-tests) tests=0 ;;
        --check) only_check=1 ;;
        -*) die "unknown option $1; see --help" ;;
        *) [ -z "$version" ] || die "one version at most, found: $version $1" && version=$1 ;;
    esac
    shift
done
[ -n "$version" ] || die "which version? For example: scripts/release.sh $(sed -n 's/^version = //p' "$ROOT/setup.cfg")"
printf '%s' "$version" | grep -qE '^[0-9]+\.[0-9]+\.[0-9]+(rc[0-9]+)?$' ||
    die "version $version: expected X.Y.Z, or X.Y.ZrcN for a release candidate."
release=${version%%rc*}
cd "$ROOT"

failed=0
# check WHAT COMMAND…: print whether the command succeeds.
check() {
    local what=$1
    shift
    if "$@"; then printf 'ok      %s\n' "$what"; else printf 'FAILED  %s\n' "$what" && failed=1; fi
}

is_clean() { [ -z "$(git status --porcelain)" ]; }
is_of_setup() { [ "$(sed -n 's/^version = //p' setup.cfg)" = "$version" ]; }
is_of_citation() { [ "$(sed -n 's/^version: //p' CITATION.cff)" = "$release" ]; }
is_proven() { scripts/prove.sh --stale >&2; }
has_krb5_config() { command -v krb5-config >/dev/null; }
is_untagged() { ! git rev-parse -q --verify "refs/tags/v$version" >/dev/null; }
has_section() {
    if [ "$version" = "$release" ]; then
        grep -qE "^## \[$release\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md
    else
        grep -qE "^## \[($release|$version)\]" CHANGELOG.md
    fi
}
# notes: the section of the release in the changelog, without its heading.
notes() {
    awk -v heading="## [$release]" 'index($0, heading) == 1 { inside = 1; next } /^## \[/ { inside = 0 } inside' CHANGELOG.md
}

check "nothing is uncommitted" is_clean
check "setup.cfg has version $version" is_of_setup
check "CITATION.cff has version $release" is_of_citation
check "CHANGELOG.md has a section for $release" has_section
check "there is no tag v$version yet" is_untagged
check "no part of the proof is due" is_proven
check "pip can build gssapi for kafkalite[kerberos] (it needs krb5-config; Debian: libkrb5-dev)" has_krb5_config
[ "$failed" = 0 ] || die "not ready for a release: mend what FAILED, and start again."
[ "$only_check" = 0 ] || exit 0

[ "$tests" = 0 ] || check "all tests pass" scripts/test.sh
check "the site is built without a warning" scripts/docs.sh
[ "$failed" = 0 ] || die "not ready for a release: mend what FAILED, and start again."

target="$ROOT/dist/$version"
rm -rf "$target"
scripts/build.sh --release "$target" >/dev/null
notes >"$target/NOTES.md"
trial="$WORK/release.$$"
trap 'rm -rf "$trial"' EXIT
ensure_venv release
wheel=$(ls "$target"/*.whl)

# installs EXTRA [PYTHON]: into an empty environment, where the command tells its version and no package contradicts
# another.
installs() {
    "${2:-$PYTHON_BIN}" -m venv --clear "$trial" &&
        "$trial/bin/python" -m pip install -q --no-input --disable-pip-version-check "$wheel${1:+[$1]}" &&
        "$trial/bin/python" -m pip check >/dev/null &&
        [ "$("$trial/bin/kafkalite" --version)" = "kafkalite, version $version" ]
}
# lists_packages: what pip has installed with the wheel, and under which licences.
lists_packages() {
    python -m cyclonedx_py environment --output-reproducible -o "$target/kafkalite-$version.cdx.json" "$trial/bin/python"
}
# runs_example: the Python block of README, with the wheel of $trial; it prints how many rows it wrote.
runs_example() {
    (
        cd "$trial"
        unset SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
        sed -n '/^```python/,/^```/{/^```/!p;/^```$/q;}' "$ROOT/README.md" >example.py
        # Not in a pipe, which would end with the first line that is found.
        bin/python example.py >example.out 2>example.log && grep -q '1,000,000 rows written' example.out
    )
}
check "the index would take the files" python -m twine check --strict "$wheel" "$target"/*.tar.gz
check "the wheel has what belongs into it" check-wheel-contents --config "$ROOT/pyproject.toml" "$wheel"
check "the wheel can be installed" installs ""
check "the bill of materials lists what is installed" lists_packages
for extra in $("$PYTHON_BIN" -P -c '
import configparser
parser = configparser.ConfigParser()
parser.read("setup.cfg", encoding="utf-8")
print(*(each for each in parser["options.extras_require"] if each != "spark"))'); do
    check "kafkalite[$extra] can be installed" installs "$extra"
done
has_public_names() {
    (cd "$trial" && bin/python -P "$ROOT/scripts/print_public.py" | sort | cmp -s - <(sort "$ROOT/docs/public-names.txt"))
}
ensure_java
# The patch releases of a minor version differ less than the minor versions.
while read -r number python; do
    check "kafkalite[spark] can be installed on Python $number" installs spark "$python" </dev/null
    check "on Python $number the example of README runs from the wheel" runs_example </dev/null
    check "on Python $number the wheel has the public names of docs/public-names.txt" has_public_names </dev/null
done < <(pythons | sort -t . -k 2,2n -u)
[ "$failed" = 0 ] || die "not ready for a release: mend what FAILED, and start again."
(cd "$target" && "$PYTHON_BIN" -P -c '
import hashlib, pathlib
for file in sorted(pathlib.Path().glob("kafkalite-*")):
    print(hashlib.sha256(file.read_bytes()).hexdigest(), "", file.name)' >SHA256SUMS)

printf '\nThe files are in %s. What is left, with a network:\n' "${target#"$ROOT/"}"
printf '  [ ] %s\n' \
    "python -m tests.golden.make_state tests/golden/state/$version.json: the state that later versions have to read" \
    "git tag -s v$version -m 'kafkalite $version' && git push origin v$version" \
    "python -m twine upload ${target#"$ROOT/"}/*.whl ${target#"$ROOT/"}/*.tar.gz" \
    "a release on the code-hosting site with NOTES.md, kafkalite-$version.cdx.json and SHA256SUMS" \
    "pip install kafkalite==$version in an empty environment" \
    "a new section [Unreleased] in CHANGELOG.md, and the next version in setup.cfg"
