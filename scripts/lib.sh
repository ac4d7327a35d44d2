# shellcheck shell=bash
# Functions shared by the scripts: the virtual environment, Java, jars, and a temporary Kafka. Sourced, never run.
# Works with the bash 3.2 of macOS; only needs python3 (3.11 or newer) and, for Java, a package manager.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
WORK="$ROOT/.work"
# Another environment than .venv: see use_spark.
VENV="${KAFKALITE_VENV:-$ROOT/.venv}"
PYTHON_BIN="$VENV/bin/python"

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# usage: print the comment at the head of the running script.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

# may_be_root WHAT: whether WHAT may be done as root: by root itself, or with sudo if KAFKALITE_SUDO says yes or the user
# at the terminal does, who is asked once.
may_be_root() {
    local answer=no
    [ "$(id -u)" != 0 ] || return 0
    command -v sudo >/dev/null 2>&1 || return 1
    if [ -z "${KAFKALITE_SUDO:-}" ]; then
        if { : </dev/tty; } 2>/dev/null; then
            printf 'This needs root: %s\nUse sudo? [y/N] ' "$1" >/dev/tty
            read -r answer </dev/tty || answer=no
        else
            say "this needs root: $1 (KAFKALITE_SUDO=yes permits sudo)"
        fi
        case "$answer" in [yY]*) KAFKALITE_SUDO=yes ;; *) KAFKALITE_SUDO=no ;; esac
    fi
    [ "$KAFKALITE_SUDO" = yes ]
}

# as_root COMMAND…: run it as root; only after may_be_root.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# install_first_of PACKAGE…: install the first of these packages that the system's package manager has.
# One list contains the names for all managers; names that a manager does not have are skipped.
install_first_of() {
    local manager package log="$WORK/system-install.log"
    mkdir -p "$WORK"
    for manager in apt-get dnf apk brew; do
        if command -v "$manager" >/dev/null 2>&1; then break; fi
        manager=
    done
    [ -n "$manager" ] || return 1
    [ "$manager" = brew ] || may_be_root "$manager install $1" || return 1
    if [ "$manager" = apt-get ]; then
        as_root apt-get update >"$log" 2>&1 || return 1
    fi
    for package in "$@"; do
        case "$manager" in
            apt-get) as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" ;;
            dnf) as_root dnf install -y "$package" ;;
            apk) as_root apk add "$package" ;;
            brew) brew install "$package" ;; # Homebrew refuses to run as root
        esac >>"$log" 2>&1 </dev/null && return 0
    done
    return 1
}

# new_enough_python INTERPRETER: whether its version meets the requirement in setup.cfg.
new_enough_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# python_version INTERPRETER: its version, as 3.13.0.
python_version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }

# pythons: the version and path of one interpreter of each supported version on this machine, oldest first. Version
# managers often put only one of their interpreters into the PATH.
pythons() {
    local folder candidate IFS=:
    for folder in $PATH /usr/local/bin /usr/bin /opt/homebrew/bin "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin; do
        for candidate in "$folder"/python3 "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9]; do
            [ -x "$candidate" ] || continue
            "$candidate" -c 'import os, sys
release, known = sys.version_info, sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final"
if known and release >= (3, 11):
    print("%d.%d.%d" % release[:3], os.path.realpath(sys.executable))' 2>/dev/null </dev/null || true
        done
    done | sort -t . -k 1,1n -k 2,2n -k 3,3n -u
}

# find_python_version VERSION: an interpreter of this version, as 3.13 (its oldest patch release here) or 3.13.0.
find_python_version() {
    local version path
    while read -r version path; do
        case "$version." in "$1".*)
            printf '%s\n' "$path"
            return 0
            ;;
        esac
    done < <([ -z "${PYTHON:-}" ] || printf '%s %s\n' "$(python_version "$PYTHON")" "$(command -v "$PYTHON")"; pythons)
    return 1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14; do
        if new_enough_python "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# can_make_venv INTERPRETER: whether it can create virtual environments; its venv module is installed if necessary and
# permitted.
can_make_venv() {
    local version
    ! "$1" -c 'import ensurepip, venv' >/dev/null 2>&1 || return 0
    say "installing the venv module of $1 …"
    version=$(python_version "$1")
    install_first_of "python${version%.*}-venv" python3-venv && "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

make_venv() {
    local python
    python=$(find_python) || die "Python 3.11 or newer is needed: install it, or set PYTHON to its interpreter."
    can_make_venv "$python" ||
        die "$python cannot create virtual environments: install its venv module (Debian: python3-venv)."
    # --clear would empty the environment of another checkout through a link to it.
    [ ! -L "$VENV" ] || rm "$VENV"
    "$python" -m venv --clear "$VENV"
}

# The stamp changes with every input of an installed environment.
venv_stamp() {
    "$PYTHON_BIN" -P -c '
import hashlib, pathlib, sys
digest = hashlib.sha256(sys.version.encode())
for name in ("setup.cfg", "pyproject.toml"):
    digest.update(pathlib.Path(sys.argv[1], name).read_bytes())
print(digest.hexdigest())' "$ROOT"
}

# Whether the environment works, was created for this folder (its scripts contain the full path of their interpreter),
# and with the Python that PYTHON asks for.
venv_is_sound() {
    local version
    version=$(python_version "$PYTHON_BIN") || return 1
    if new_enough_python "${PYTHON:-}" && [ "$(python_version "$PYTHON")" != "$version" ]; then return 1; fi
    case "$(sed -n 's/^command = //p' "$VENV/pyvenv.cfg")" in
        *" $VENV") return 0 ;;
        *) return 1 ;;
    esac
}

# has_pyspark: whether the environment has the largest of the packages, so that little is left to be downloaded.
has_pyspark() {
    venv_is_sound && "$PYTHON_BIN" -P -c 'import importlib.util, sys
sys.exit(importlib.util.find_spec("pyspark") is None)'
}

# requirements_of NAME…: what the groups of these names in pyproject.toml need, a requirement a line; and for the other
# names this checkout with PySpark and these extras of setup.cfg, as pip's option for an editable install.
requirements_of() {
    "$PYTHON_BIN" -P - "$ROOT" "$@" <<'PYTHON'
import pathlib, sys, tomllib
root, *names = sys.argv[1:]
groups = tomllib.loads(pathlib.Path(root, "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
def needs(group):
    for each in groups[group]:
        yield from [each] if isinstance(each, str) else needs(each["include-group"])
extras = ",".join(["spark", *(name for name in names if name not in groups)])
checkout = [] if names == ["build"] else [f"-e .[{extras}]"]
print(*checkout, *dict.fromkeys(each for name in names if name in groups for each in needs(name)), sep="\n")
PYTHON
}

# pip_install: what $WORK/requirements.txt lists, and the requirements in the arguments, into the environment.
pip_install() {
    # Compiling all modules of all packages takes longer than installing them; Python compiles what it imports.
    (cd "$ROOT" && "$PYTHON_BIN" -m pip install --no-compile --no-input --disable-pip-version-check --use-pep517 \
        -r "$WORK/requirements.txt" "$@") </dev/null >"$WORK/pip.log" 2>&1 || {
        tail -n 20 "$WORK/pip.log" >&2
        die "could not install the packages; complete log: $WORK/pip.log"
    }
}

# ensure_builder: create an environment in .work that has the group "build" of pyproject.toml only.
ensure_builder() {
    use_environment build
    venv_is_sound || make_venv
    mkdir -p "$WORK"
    requirements_of build >"$WORK/requirements.txt"
    cmp -s "$WORK/requirements.txt" "$VENV/.kafkalite-build" || {
        pip_install && cp "$WORK/requirements.txt" "$VENV/.kafkalite-build"
    }
}

# ensure_venv [NAME…]: create an environment in .venv with this checkout, PySpark and the extras of setup.cfg or groups of
# pyproject.toml with these names. A second call finds the stamps of the first and installs nothing. Exports the variables
# with which Spark finds the environment.
ensure_venv() {
    local stamp extra missing=""
    venv_is_sound || make_venv
    stamp=$(venv_stamp)
    for extra in core "$@"; do
        if [ "$(cat "$VENV/.kafkalite-$extra" 2>/dev/null)" != "$stamp" ]; then
            missing="$missing $extra"
        fi
    done
    if [ -n "$missing" ]; then
        say "installing kafkalite and the packages of$missing into ${VENV#"$ROOT/"} (the first time, this downloads" \
            "PySpark: some minutes) …"
        mkdir -p "$WORK"
        # shellcheck disable=SC2086 # several names
        requirements_of ${missing/# core/} >"$WORK/requirements.txt"
        pip_install ${spark_requirements[@]+"${spark_requirements[@]}"}
        for extra in $missing; do
            printf '%s\n' "$stamp" >"$VENV/.kafkalite-$extra"
        done
    fi
    # By default workers run the first python3 of the PATH, which may not have pyarrow. Another Spark on this machine
    # must not be mixed with the environment's Spark, which does not find its own home in a path with a space.
    SPARK_HOME=$("$PYTHON_BIN" -P -c 'import importlib.util, os
print(os.path.dirname(importlib.util.find_spec("pyspark").origin))')
    export SPARK_HOME
    export PYSPARK_PYTHON="$PYTHON_BIN" PYSPARK_DRIVER_PYTHON="$PYTHON_BIN"
    export PATH="$VENV/bin:$PATH"
    export SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"
}

# short_lived_spark: let Spark spare the processor in the seconds that it lives. A JVM needs half of its time without its
# optimizing compiler.
short_lived_spark() {
    export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:--XX:TieredStopAtLevel=1 -XX:+UseSerialGC}"
    export KAFKALITE_SPARK_PYTHON="$PYTHON_BIN" PYSPARK_PYTHON="$ROOT/scripts/spark_python.sh"
    export PYSPARK_DRIVER_PYTHON="$PYSPARK_PYTHON"
}

# use_python VERSION [NAME]: let ensure_venv create and use an environment in .work with this version of Python, as 3.13.
# Scripts that are called use it too.
use_python() {
    PYTHON=$(find_python_version "$1") || die "Python $1 not found (here: $(pythons | cut -d ' ' -f 1 | paste -s -d ' ' -)):" \
        "install it with its venv module (Debian: python$1-venv), or set PYTHON to its interpreter."
    use_environment "${2:-}python-$1"
}

# use_environment NAME: let ensure_venv create and use the environment of this name in .work, with $PYTHON.
use_environment() {
    VENV="$WORK/$1"
    PYTHON_BIN="$VENV/bin/python"
    export PYTHON KAFKALITE_VENV="$VENV" KAFKALITE_SPARK_CLASSES="$VENV/spark-classes.jsa"
}

# use_spark VERSION [PYTHON]: the same with this version of Spark, as 3.5.9 or 3.5 (its newest patch release), and this
# version of Python.
use_spark() {
    local version=$1 python
    case "$version" in
        3.5 | 3.5.* | 4.*) ;;
        *) die "Spark $version is not supported: kafkalite needs Spark 3.5 or later, for example 3.5.9." ;;
    esac
    if [ -n "${2:-}" ]; then
        use_python "$2" "spark-$version-"
    else
        PYTHON=$(find_python) || die "Python 3.11 or newer is needed: install it, or set PYTHON to its interpreter."
        python=$(python_version "$PYTHON")
        use_environment "spark-$version-python-${python%.*}"
    fi
    case "$version" in
        *.*.*) spark_requirements=("pyspark[connect]==$version") ;;
        *) spark_requirements=("pyspark[connect]==$version.*") ;;
    esac
    # Spark 3.5 asks for numpy 1, without which newer versions of pyarrow cannot be imported. Hadoop before 3.4.2 uses a
    # part of Java that later versions of it lack.
    case "$version" in 3.*) spark_requirements+=("pyarrow<26") ;; esac
    case "$version" in 3.* | 4.0*) newest_java=21 ;; esac
}

# java_home_of JAVA: print its home if it is Java 17 or newer (and not newer than $newest_java, if that is set).
java_home_of() {
    local settings version
    [ -n "$1" ] && settings=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = //p')
    [ "${version%%.*}" -ge 17 ] 2>/dev/null && [ "${version%%.*}" -le "${newest_java:-$version}" ] 2>/dev/null || return 1
    printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p'
}

find_java() {
    local candidate
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java; do
        java_home_of "$candidate" && return 0
    done
    return 1
}

# ensure_java: set JAVA_HOME and PATH to Java 17 or newer; it is installed if necessary and permitted.
ensure_java() {
    local home
    if ! home=$(find_java); then
        say "no Java 17 or newer found: installing one with the system's package manager …"
        install_first_of openjdk-17-jre-headless openjdk-21-jre-headless java-17-openjdk-headless java-21-openjdk-headless \
            openjdk17-jre-headless openjdk@17 || true
        home=$(find_java) ||
            die "Java 17 or newer is needed: install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME."
    fi
    export JAVA_HOME="$home" PATH="$home/bin:$PATH"
}

# fetch_promtool: Prometheus' promtool in $WORK/promtool, if the system has none and Debian's package manager is there. Its
# package is unpacked and not installed, because it would start a server.
fetch_promtool() {
    local log="$WORK/promtool.log" target="$WORK/promtool"
    ! command -v promtool >/dev/null 2>&1 || return 0
    mkdir -p "$target"
    (
        cd "$target"
        apt-get download prometheus || { may_be_root "apt-get update" && as_root apt-get update && apt-get download prometheus; }
        dpkg -x prometheus_*.deb . && rm -f prometheus_*.deb
    ) >"$log" 2>&1 </dev/null || say "no promtool, so the alerts are not tried (Debian: package prometheus; log: $log)"
}

# fetch_jars IVY_FILE DIR: the jars of an Ivy module file in DIR, downloaded once; needs ensure_venv and ensure_java.
# PySpark includes Ivy, so neither Maven nor curl is needed. KAFKALITE_IVY_SETTINGS names an ivysettings.xml for
# networks that reach Maven Central only through a mirror.
fetch_jars() {
    local ivy_file=$1 target=$2 fresh="$2.part.$$" log="$WORK/ivy.log" attempt
    if [ -f "$target/.complete" ] && cmp -s "$ivy_file" "$target/.complete"; then
        # What was sound when it was downloaded may have been changed since.
        check_jars "$target"
        return 0
    fi
    say "downloading the jars of $(basename "$ivy_file") (once) …"
    # Registries sometimes interrupt a download; complete files are kept for the next attempt. Each call has its own
    # cache, because concurrent calls would use each other's incomplete files.
    for attempt in 1 2 3; do
        rm -rf "$fresh" && mkdir -p "$fresh"
        java -XX:TieredStopAtLevel=1 -cp "$SPARK_HOME/jars/*" org.apache.ivy.Main \
            ${KAFKALITE_IVY_SETTINGS:+-settings "$KAFKALITE_IVY_SETTINGS"} \
            -cache "$WORK/ivy.$$" -ivy "$ivy_file" -confs default -types jar bundle \
            -retrieve "$fresh/[artifact]-[revision](-[classifier]).[ext]" >"$log" 2>&1 </dev/null && break
        if [ "$attempt" = 3 ]; then
            tail -n 25 "$log" >&2
            die "could not download the jars; complete log: $log"
        fi
    done
    check_jars "$fresh"
    (cd "$fresh" && printf '%s\n' *.jar >.jars)
    cp "$ivy_file" "$fresh/.complete"
    rm -rf "$target" "$WORK/ivy.$$" && mv "$fresh" "$target"
}

# check_jars DIR: end the script unless DIR has all jars that were downloaded into it (its file .jars lists them), and
# every one has the checksum in scripts/jars.sha256. The checksums of the
# repository, which Ivy compares, come from the same server as the jars.
check_jars() {
    "$PYTHON_BIN" -P - "$1" "$ROOT/scripts/jars.sha256" "${KAFKALITE_UNKNOWN_JARS:-no}" <<'PYTHON' || exit 1
import hashlib, pathlib, sys
folder, known, unknown_allowed = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3] == "yes"
sums = {tuple(line.split()) for line in known.read_text(encoding="ascii").splitlines()}
names = {name for _, name in sums}
found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in sorted(folder.glob("*.jar"))}
wrong = [name for name, digest in found.items() if name in names and (digest, name) not in sums]
unknown = [name for name in found if name not in names]
listed = folder / ".jars"
missing = [name for name in listed.read_text().split() if name not in found] if listed.is_file() else []
if missing or not found:
    sys.exit(f"error: {', '.join(missing) or 'the jars'}: missing in {folder}; remove it to download them again.")
if wrong:
    sys.exit(f"error: {', '.join(wrong)}: not the file whose checksum is in {known}; remove {folder} to download it again.")
if unknown and not unknown_allowed:
    sys.exit(
        f"error: {', '.join(unknown)}: no checksum in {known}; KAFKALITE_UNKNOWN_JARS=yes installs jars that are only "
        "compared with the checksums of the repository, for other versions than those of scripts/kafka.sh versions."
    )
PYTHON
}

# start_secure_kafka NAME [property=value …]: start a Kafka with listeners for PLAINTEXT, SSL and SASL_SSL in a separate
# folder; it is stopped at the end of the script. Sets kafka_dir, bootstrap (PLAINTEXT) and listeners (a file:
# tests/bench/listeners.py). Needs ensure_venv bench and ensure_java.
start_secure_kafka() {
    local name=$1 line arguments=()
    shift
    mkdir -p "$WORK"
    kafka_dir=$(mktemp -d "$WORK/$name-kafka.XXXXXX")
    trap 'stop_secure_kafka' EXIT
    (cd "$ROOT" && python -m tests.bench.listeners "$kafka_dir") >"$kafka_dir/arguments"
    while IFS= read -r line; do arguments+=("$line"); done <"$kafka_dir/arguments"
    # Deleted topics and old segments are removed quickly, to limit the use of the disk.
    bootstrap=$("$ROOT/scripts/kafka.sh" start --port 0 --dir "$kafka_dir" "${arguments[@]}" \
        log.segment.delete.delay.ms=1000 log.retention.check.interval.ms=2000 "$@")
    bootstrap=${bootstrap#bootstrap.servers=}
    (cd "$ROOT" && python -m tests.bench.listeners "$kafka_dir" "$bootstrap")
    listeners="$kafka_dir/listeners.json"
}

stop_secure_kafka() {
    "$ROOT/scripts/kafka.sh" stop --dir "$kafka_dir"
    rm -rf "$kafka_dir"
}

# build_number VERSION: what a build of the present folder is called: VERSION at its tag or without git, else a version
# before it with the commit, and the moment if something is not committed.
build_number() {
    local commit dirty=""
    if ! { [ -e .git ] && commit=$(git rev-parse -q --verify --short=8 HEAD 2>/dev/null); }; then
        printf '%s\n' "$1"
        return
    fi
    [ -z "$(git status --porcelain)" ] || dirty=.d$(date -u +%Y%m%d%H%M%S)
    if [ -z "$dirty" ] && [ -n "$(git tag --points-at HEAD "v$1")" ]; then
        printf '%s\n' "$1"
    else
        printf '%s\n' "$1.dev$(git rev-list --count HEAD)+g$commit$dirty"
    fi
}

# repository_url: the page of the repository: KAFKALITE_URL, or the remote origin, if that is on a code-hosting site.
repository_url() {
    local origin
    origin=${KAFKALITE_URL:-$(git remote get-url origin 2>/dev/null || true)}
    printf '%s\n' "$origin" | sed -n -E 's,^git@([^:/]+):,https://\1/,; s,\.git$,,; /^https:/p'
}
