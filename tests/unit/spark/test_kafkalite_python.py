"""kafkalite-python: Spark's workers run the installed PySpark if it equals the one in pyspark.zip."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

import kafka_sink.spark

LAUNCHER: Final = Path(kafka_sink.spark.__file__).with_name("kafkalite-python")
DAEMON: Final = 'import sys; print("{place}", *sys.argv[1:])'


def run(arguments: list[str], *path: Path) -> str:
    """The output of a process of the launcher with *path* in PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, str(LAUNCHER), *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A pyspark.zip of version 4.0.1."""
    path = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(path, "w") as written:
        written.writestr("pyspark/__init__.py", "")
        written.writestr("pyspark/version.py", '__version__ = "4.0.1"')
        written.writestr("pyspark/daemon.py", DAEMON.format(place="archive"))
    return path


@pytest.mark.behaviour("Package", "kafkalite-python takes an installed PySpark in place of an equal pyspark.zip")
@pytest.mark.parametrize(("version", "place"), [("4.0.1", "installed"), ("4.0.2", "archive"), (None, "archive")])
def test_an_equal_installed_pyspark_is_taken(tmp_path: Path, archive: Path, version: str | None, place: str) -> None:
    package = tmp_path / "packages" / "pyspark"
    package.mkdir(parents=True)
    # Without a version it is not PySpark, and the next one on the path, the real PySpark, has another version.
    for name, text in {"__init__": "", "daemon": DAEMON.format(place="installed")}.items():
        (package / f"{name}.py").write_text(text)
    if version is not None:
        (package / "version.py").write_text(f'__version__ = "{version}"')
    printed = run(["-m", "pyspark.daemon", "pyspark.worker"], archive, package.parent)
    assert printed == f"{place} pyspark.worker\n"


def test_a_broken_archive_is_left_on_the_path(tmp_path: Path) -> None:
    broken = tmp_path / "pyspark.zip"
    broken.write_bytes(b"no archive")
    package = tmp_path / "packages" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text('__version__ = "4.0.1"')
    (package / "daemon.py").write_text('import sys; print(sum("pyspark.zip" in entry for entry in sys.path))')
    assert run(["-m", "pyspark.daemon"], broken, package.parent) == "1\n"


def test_other_programs_run_as_they_are(archive: Path) -> None:
    assert run(["-c", "import sys; print(sys.path[1].endswith('pyspark.zip'), sys.argv[1])", "given"], archive) == (
        "True given\n"
    )
