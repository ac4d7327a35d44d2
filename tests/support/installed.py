"""Environments in which the package is installed as by a user: their paths do not include the checkout."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

ROOT: Final = Path(__file__).parents[2]

_NO_SOURCES = (".venv", ".work", ".git", "build", "dist", "*.egg-info", ".*_cache", ".hypothesis", "__pycache__")


def copy_checkout(folder: Path) -> Path:
    """Copy the checkout into *folder*, since builds and editable installs write into their source."""
    return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*_NO_SOURCES)))


@dataclass(frozen=True)
class Built:
    """The paths of the two distributions."""

    sdist: Path
    wheel: Path


def build(folder: Path) -> Built:
    """Build the package from a copy of the checkout, both in *folder*."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), "."]
    copy = copy_checkout(folder / "checkout")
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return Built(sdist, wheel)


def needed(*requirements: str) -> Iterator[Path]:
    """Yield the files and folders in the tests' own environment of *requirements* and their dependencies."""
    left, done = list(requirements), set[str]()
    while left:
        requirement = left.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if name in done or "extra ==" in requirement:
            continue
        done.add(name)
        # Dependencies for other systems or versions of Python are not installed.
        with suppress(importlib.metadata.PackageNotFoundError):
            distribution = importlib.metadata.distribution(name)
            left += distribution.requires or ()
            tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
            yield from (Path(str(distribution.locate_file(top))) for top in tops - {"__pycache__"})


class Environment:
    """A virtual environment in *folder*. With *linked* it has the packages of the tests' own environment, or only
    *packages*, but not the checkout that is installed there; otherwise it has only pip."""

    def __init__(self, folder: Path, *, linked: bool = True, packages: Iterable[Path] | None = None) -> None:
        venv.create(folder, symlinks=True, with_pip=not linked)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self._linked = linked
        if linked:
            (version,) = (folder / "lib").iterdir()
            for package in Path(sysconfig.get_path("purelib")).iterdir() if packages is None else packages:
                if "kafkalite" not in package.name:
                    (version / "site-packages" / package.name).symlink_to(package)

    def install(self, *requirements: str | Path) -> None:
        """Install with pip; a linked environment gets no dependencies, so that pip downloads nothing."""
        offline = ("--no-deps", "--no-build-isolation", "--no-index") if self._linked else ()
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", *offline, *requirements]
        self.run(*pip, timeout_s=1200)

    def run(self, *command: str | Path, cwd: Path | None = None, timeout_s: float = 550) -> str:
        """Run *command*, which must exit with 0, and return its output. This environment is first on its path."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd or self.folder,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def environ(self) -> dict[str, str]:
        """Return the variables of a shell with the environment activated, whose interpreter Spark's workers use."""
        environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
        environ["PATH"] = f"{self.python.parent}{os.pathsep}{environ['PATH']}"
        environ |= {"VIRTUAL_ENV": str(self.folder), "SPARK_LOCAL_IP": "127.0.0.1"}
        if self._linked:
            # The same Spark, by the path of its archive of classes, and PySpark with its bytecode.
            home = str(Path(pyspark.__file__).parent)
            return environ | {"SPARK_HOME": home, "KAFKALITE_SPARK_PYTHON": str(self.python)}
        return environ | {"PYSPARK_PYTHON": str(self.python), "PYSPARK_DRIVER_PYTHON": str(self.python)}
