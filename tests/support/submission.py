"""The preparation of a job as in docs/clusters.md: a folder with the wheel, the environment and the job."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.installed import ROOT, build
from tests.support.pages import block

PAGE: Final = ROOT / "docs" / "clusters.md"
_CONF: Final = """
spark.driver.host 127.0.0.1
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.memory 512m
spark.ui.enabled false
"""


def replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


class Submission:
    """A folder with the wheel, in which a shell with *environ* runs commands of the page."""

    def __init__(self, folder: Path, environ: Mapping[str, str], conf: str = "") -> None:
        self.folder = folder / "submission"
        self.folder.mkdir()
        shutil.copy(build(folder).wheel, self.folder)
        (self.folder / "spark-defaults.conf").write_text(_CONF + conf)
        self._environ = {**environ, "SPARK_CONF_DIR": str(self.folder)}

    def make_environment(self) -> None:
        """Create ``environment`` and ``environment.tar.gz``, once."""
        if not (self.folder / "environment.tar.gz").exists():
            self.run(block(PAGE, "venv-pack --quiet"))

    def submit(self, job: str, commands: str) -> str:
        """Run *commands*, which submit the job with the source *job*, and return their output."""
        (self.folder / "orders.py").write_text(job)
        return self.run(commands)

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", commands],
            cwd=self.folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout
