"""The effects of the scripts on the machine: no unauthorised command as root, no jar without a known checksum; and the
Python that they choose."""

from __future__ import annotations

import hashlib
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.ledger import RECORDS, Ledger, Record, Sources
from tests.proof.parts import PARTS

ROOT = Path(__file__).parents[2]
VERSION = re.findall(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)[0]
DATE = "2026-12-01"
JARS = ROOT / "scripts" / "jars.sha256"
INSTALL = '. "$0/scripts/lib.sh"; WORK=$1; install_first_of java-x java-y'
SOUND = '. "$0/scripts/lib.sh"; VENV=$1; PYTHON_BIN=$1/bin/python; venv_is_sound && echo yes || echo no'
FIND = '. "$0/scripts/lib.sh"; use_python "$1"; echo "$PYTHON $VENV"'
NUMBER = '. "$0/scripts/lib.sh"; cd "$1"; build_number 1.2.3; repository_url'
FETCH = '. "$0/scripts/lib.sh"; PYTHON_BIN=$2; ROOT=$3; fetch_jars "$4" "$1"; echo installed'
CHECK = '. "$0/scripts/lib.sh"; PYTHON_BIN=$2; ROOT=$3; check_jars "$1"; echo installed'


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Programs of a machine with a user who is not root, and sudo without a password."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"id": "echo 1000", "apt-get": ":", "sudo": f'echo "$@" >>"{tmp_path}/sudo.log"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def install(tmp_path: Path, programs: Path, terminal: str = "", **environment: str) -> str:
    """Install a package, and return the commands that were run with sudo."""
    command = ["bash", "-c", INSTALL, str(ROOT), str(tmp_path / "work")]
    if terminal:
        # The first terminal that a session leader opens becomes its controlling terminal.
        command = ["sh", "-c", 'exec "$@" < "$0"', terminal, *command]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KAFKALITE_")}
    environ["PATH"] = f"{programs}{os.pathsep}{environ['PATH']}"
    stdin = None if terminal else subprocess.DEVNULL
    subprocess.run(command, env=environ | environment, stdin=stdin, start_new_session=True, timeout=60, check=False)
    log = tmp_path / "sudo.log"
    return log.read_text() if log.exists() else ""


@pytest.mark.behaviour("Package", "The scripts use sudo only if the user says so")
def test_sudo_is_used_only_if_it_is_permitted(tmp_path: Path, programs: Path) -> None:
    assert install(tmp_path, programs) == ""
    assert install(tmp_path, programs, KAFKALITE_SUDO="no") == ""
    for answer, used in ((b"n\n", False), (b"\n", False), (b"y\n", True)):
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer)
            assert bool(install(tmp_path, programs, os.ttyname(theirs))) == used
        finally:
            os.close(ours)
            os.close(theirs)
    (tmp_path / "sudo.log").unlink()
    assert "apt-get install -y --no-install-recommends java-x" in install(tmp_path, programs, KAFKALITE_SUDO="yes")


def interpreter(folder: Path, name: str, version: str, *, with_venv: bool = True) -> Path:
    """Create a program that responds to the calls of the scripts like a Python of this version."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    cases = [
        f'*realpath*) echo "{version} {program}" ;;',
        f"*ensurepip*) exit {int(not with_venv)} ;;",
        f"*version_info*) echo {version} ;;",
    ]
    program.write_text("\n".join(["#!/bin/sh", 'case "$2" in', *cases, "esac", ""]))
    program.chmod(0o755)
    return program


@pytest.mark.behaviour("Package", "CI runs on the oldest Python of the machine, and says which")
def test_ci_takes_the_oldest_python_that_can_be_used(tmp_path: Path, programs: Path) -> None:
    clone = tmp_path / "clone"
    for name in (".ci/run", "scripts/lib.sh"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    (clone / "scripts" / "test.sh").write_text('echo "with $PYTHON"\n')
    pyenv = tmp_path / "pyenv"
    interpreter(programs, "python3", "3.99.0")
    second = interpreter(pyenv / "versions" / "3.11.1" / "bin", "python3.11", "3.11.1")
    oldest = interpreter(programs, "python3.11", "3.11.0")

    def run() -> tuple[str, str]:
        environ = {"PATH": f"{programs}:/usr/bin:/bin", "PYENV_ROOT": str(pyenv), "KAFKALITE_SUDO": "no"}
        command = ["bash", str(clone / ".ci" / "run")]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout, done.stderr

    said = f"Python 3.11.0 ({oldest}) is the oldest on this machine that can be used\n"
    assert run() == (f"with {oldest}\n", said)
    interpreter(programs, "python3.11", "3.11.0", with_venv=False)
    output, said = run()
    assert output == f"with {second}\n"
    assert f"Python 3.11.0 ({oldest}) is left out, because it cannot create virtual environments\n" in said


@pytest.mark.behaviour("Package", "CI runs on the oldest Python of the machine, and says which")
def test_a_python_is_found_outside_of_the_path_too(tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "pyenv" / "versions" / "3.99.1" / "bin"
    newer, older = interpreter(folder, "python3.99", "3.99.1"), interpreter(programs, "python3.99", "3.99.0")

    def find(version: str, **environment: str) -> list[str]:
        environ = {"PATH": f"{programs}:/usr/bin:/bin", "PYENV_ROOT": str(tmp_path / "pyenv"), **environment}
        command = ["bash", "-c", FIND, str(ROOT), version]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        return (done.stdout or done.stderr).split(maxsplit=1)

    work = f"{ROOT}/.work/python"
    assert find("3.99") == [str(older), f"{work}-3.99\n"]
    assert find("3.99.1") == [str(newer), f"{work}-3.99.1\n"]
    assert find("3.99", PYTHON=str(newer)) == [str(newer), f"{work}-3.99\n"]
    error, problem = find("3.98")
    assert error == "error:" and problem.startswith("Python 3.98 not found (here: ")


def test_environment_of_another_python_is_made_again(tmp_path: Path, programs: Path) -> None:
    interpreter(tmp_path / "venv" / "bin", "python", "3.99.0")
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"command = python3.99 -m venv {tmp_path}/venv\n")

    def is_sound(python: str) -> str:
        command = ["bash", "-c", SOUND, str(ROOT), str(tmp_path / "venv")]
        environ = {"PATH": "/usr/bin:/bin", "PYTHON": python}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout

    assert is_sound("") == is_sound(str(interpreter(programs, "same", "3.99.0"))) == "yes\n"
    assert is_sound(str(interpreter(programs, "other", "3.99.1"))) == "no\n"


@pytest.mark.behaviour("Package", "The scripts install no jar without its checksum")
def test_a_jar_with_another_checksum_is_not_installed(tmp_path: Path) -> None:
    jars, scripts = tmp_path / "jars", tmp_path / "scripts"
    jars.mkdir()
    scripts.mkdir()
    (jars / "a-1.jar").write_bytes(b"a")
    (scripts / "jars.sha256").write_text(f"{hashlib.sha256(b'a').hexdigest()}  a-1.jar\n")

    def check(**environment: str) -> tuple[str, str]:
        done = subprocess.run(
            ["bash", "-c", CHECK, str(ROOT), str(jars), sys.executable, str(tmp_path)],
            env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
        )  # fmt: skip
        return done.stdout, done.stderr

    assert check() == ("installed\n", "")
    (jars / "b-1.jar").write_bytes(b"b")
    said, problem = check()
    assert said == "" and problem.startswith("error: b-1.jar: no checksum in ")
    assert check(KAFKALITE_UNKNOWN_JARS="yes") == ("installed\n", "")
    (jars / "a-1.jar").write_bytes(b"other")
    said, problem = check(KAFKALITE_UNKNOWN_JARS="yes")
    assert said == "" and problem.startswith("error: a-1.jar: not the file whose checksum is in ")


def test_jars_are_checked_each_time_and_whatever_the_folder_has(tmp_path: Path) -> None:
    """A jar that was changed after its download is rejected, also with a module named hashlib in the folder."""
    jars, scripts, ivy = tmp_path / "jars", tmp_path / "scripts", tmp_path / "ivy.xml"
    jars.mkdir()
    scripts.mkdir()
    (tmp_path / "hashlib.py").write_text("raise SystemExit('the module of the folder was taken')\n")
    (jars / "a-1.jar").write_bytes(b"a")
    (scripts / "jars.sha256").write_text(f"{hashlib.sha256(b'a').hexdigest()}  a-1.jar\n")
    ivy.write_text("<ivy-module/>")
    shutil.copy(ivy, jars / ".complete")

    def fetch() -> tuple[str, str]:
        command = ["bash", "-c", FETCH, str(ROOT), str(jars), sys.executable, str(tmp_path), str(ivy)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout, done.stderr

    assert fetch() == ("installed\n", "")
    (jars / ".jars").write_text("a-1.jar\nb-1.jar\n")
    assert fetch() == ("", f"error: b-1.jar: missing in {jars}; remove it to download them again.\n")
    (jars / ".jars").unlink()
    (jars / "a-1.jar").rename(tmp_path / "a-1.jar")
    assert fetch() == ("", f"error: the jars: missing in {jars}; remove it to download them again.\n")
    (jars / "a-1.jar").write_bytes(b"other")
    said, problem = fetch()
    assert said == "" and problem.startswith("error: a-1.jar: not the file whose checksum is in ")


def test_scripts_import_nothing_from_the_callers_folder() -> None:
    inline = [
        line.strip()
        for script in (*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run")
        for line in script.read_text(encoding="utf-8").splitlines()
        if re.search(r"""(python3?|"\$[A-Za-z_]*(PYTHON|python)[A-Za-z_]*")( -[a-zA-Z]+)* (-c\b|- )""", line)
    ]
    assert inline
    assert [line for line in inline if " -P " not in line and " -I " not in line] == []


def test_the_list_of_checksums_has_what_the_scripts_install() -> None:
    lines = JARS.read_text(encoding="ascii").splitlines()
    assert lines == sorted(set(lines), key=lambda line: line.split()[::-1])
    names = {line.split()[1] for line in lines}
    assert all(len(line.split()[0]) == 64 for line in lines)
    script = (ROOT / "scripts" / "kafka.sh").read_text(encoding="utf-8")
    (versions,) = [line for line in script.splitlines() if line.startswith("VERSIONS=")]
    for version in versions.split('"')[1].split()[:-1]:
        assert f"kafka_2.13-{version}.jar" in names


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone of the repository with a section of the changelog for a release."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(clone)], check=True)
    # The clone includes uncommitted changes of these files.
    changed = (
        "CHANGELOG.md",
        "CITATION.cff",
        "setup.cfg",
        "scripts/release.sh",
        "scripts/prove.sh",
        "scripts/pages.py",
    )
    for file in (*(ROOT / name for name in changed), *(ROOT / "tests" / "proof").glob("*.py")):
        target = clone / file.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
        target.chmod(file.stat().st_mode)
    changelog = clone / "CHANGELOG.md"
    others = re.sub(rf"^## \[(Unreleased|{VERSION})\].*\n", "", changelog.read_text(), flags=re.MULTILINE)
    changelog.write_text(f"## [{VERSION}] - {DATE}\n\n{others}")
    # The repository's records may have failures without a known cause, which would prevent a release.
    (clone / RECORDS).write_text("")
    commit(clone)
    prove(clone)
    return clone


def prove(clone: Path, outcome: str = "passed") -> None:
    """Commit a record of each part, of which the last has this *outcome*."""
    sources, ledger = Sources(clone), Ledger(clone / RECORDS)
    for part in PARTS:
        found = outcome if part is PARTS[-1] else "passed"
        trees = sources.tree_of(part)
        ledger.add(Record(part.name, found, " ".join(part.command), trees, sources.commit, f"{DATE}T00:00Z", 1), PARTS)
    commit(clone)


def commit(clone: Path) -> None:
    name = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
    subprocess.run(["git", "add", "-A"], cwd=clone, check=True)
    subprocess.run(["git", *name, "commit", "-qm", "ready"], cwd=clone, check=True)


def release(clone: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run release.sh, and return its exit code and the failed checks."""
    command = ["bash", str(clone / "scripts" / "release.sh"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, [
        line.removeprefix("FAILED").strip() for line in done.stdout.splitlines() if "ok " not in line
    ]


@pytest.mark.behaviour("Package", "A release is refused while its version, changelog or tree is not ready")
def test_release_is_refused_until_everything_is_ready(checkout: Path) -> None:
    assert release(checkout, VERSION, "--check") == (0, [])
    prove(checkout, "failed")
    assert release(checkout, VERSION, "--check") == (1, ["no part of the proof is due"])
    prove(checkout)
    subprocess.run(["git", "tag", f"v{VERSION}"], cwd=checkout, check=True)
    assert release(checkout, VERSION, "--check") == (1, [f"there is no tag v{VERSION} yet"])
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f" - {DATE}", ""))
    code, failed = release(checkout, VERSION, "--check")
    assert (code, failed[:2]) == (1, ["nothing is uncommitted", f"CHANGELOG.md has a section for {VERSION}"])
    commit(checkout)
    prove(checkout)
    assert release(checkout, f"{VERSION}rc1", "--check") == (1, [f"setup.cfg has version {VERSION}rc1"])
    (checkout / "kafka_sink" / "py.typed").write_text("# changed")
    commit(checkout)
    assert "no part of the proof is due" in release(checkout, VERSION, "--check")[1]
    assert release(checkout, "1.0") == (1, [])


def number_and_page(folder: Path, **environment: str) -> list[str]:
    command = ["bash", "-c", NUMBER, str(ROOT), str(folder)]
    known = {name: value for name, value in os.environ.items() if name != "KAFKALITE_URL"} | environment
    done = subprocess.run(command, env=known, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


@pytest.mark.behaviour("Package", "Two different builds never share a number, and a build without git has one")
def test_a_build_is_named_after_its_commit(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    assert number_and_page(tmp_path) == ["1.2.3"]
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    commit(tmp_path)
    (first,) = number_and_page(tmp_path)
    assert re.fullmatch(r"1\.2\.3\.dev1\+g[0-9a-f]{8}", first)
    (tmp_path / "file").write_text("2")
    (changed,) = number_and_page(tmp_path)
    assert re.fullmatch(re.escape(first) + r"\.d\d{14}", changed)
    commit(tmp_path)
    subprocess.run(["git", "tag", "v1.2.3"], cwd=tmp_path, check=True)
    subprocess.run(["git", "remote", "add", "origin", "git@code.example:us/kafkalite.git"], cwd=tmp_path, check=True)
    assert number_and_page(tmp_path) == ["1.2.3", "https://code.example/us/kafkalite"]
    assert number_and_page(tmp_path, KAFKALITE_URL="https://other.example/k")[1] == "https://other.example/k"
