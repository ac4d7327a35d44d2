"""The programs of README and of docs/tutorial.md do what the pages say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.amounts import only_long
from tests.support.broker_process import BrokerProcess
from tests.support.installed import copy_checkout
from tests.support.pages import block, blocks
from tests.support.spark_version import requires_data_sources

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
TIMEOUT_S = 240

pytestmark = requires_data_sources


def environ() -> dict[str, str]:
    """Return an environment that finds commands as an activated virtual environment does."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environ(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.behaviour("Documentation", "The first programs of README and of the tutorial run as they stand there")
def test_first_program_of_the_tutorial_shows_the_records(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    # The program finds the session of the tests, as in a notebook where one runs.
    exec(compile(block(TUTORIAL, "kafka_sink.peek"), str(TUTORIAL), "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert len(re.findall(r"\|\s*\d\s*\|order \d+\s*\|", printed)) == 5, printed


def test_readmes_program_prints_what_readme_shows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block(README, "format("), str(README), "exec"), {"__name__": "__main__"})
    assert_shown(capsys.readouterr().out)


def assert_shown(printed: str) -> None:
    """Check that *printed* has the lines that README shows, with any numbers."""
    shown = re.escape(block(README, "rows written by").strip())
    assert re.search(re.sub(r"\d+", r"\\d+", shown), printed), printed


@pytest.mark.behaviour("Package", "Every block of README runs as it stands, with nothing but the system's programs")
@only_long
@pytest.mark.timeout(1800)
def test_blocks_of_readme_run_in_a_bare_environment(tmp_path: Path) -> None:
    clone = copy_checkout(tmp_path / "kafkalite")
    (clone / "first.py").write_text(block(README, "format("))
    # The package managers do nothing here, because Java and venv are installed.
    for name in ("sudo", "brew"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $@" >>"{tmp_path}/managers"\n')
        (tmp_path / name).chmod(0o755)
    script = "\n".join([*blocks(README, "sh"), "python first.py"])
    environ = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environ |= {"PATH": f"{tmp_path}:/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=clone, env=environ, capture_output=True, text=True, timeout=1700, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert_shown(done.stdout)
    assert len((tmp_path / "managers").read_text().splitlines()) == 2


@pytest.mark.behaviour("Documentation", "The stream of the tutorial is exact after kill -9")
@only_long
def test_stream_of_the_tutorial_survives_its_kill(tmp_path: Path) -> None:
    (tmp_path / "stream.py").write_text(block(TUTORIAL, "lines-sink"))
    preparation, stream = block(TUTORIAL, "seq 30").split("python stream.py", 1)
    again, verify = block(TUTORIAL, "kafkalite verify").strip().splitlines()
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    try:
        at = broker.bootstrap_servers

        def shell(text: str) -> str:
            return run("bash", "-euc", text.replace("127.0.0.1:9092", at), folder=tmp_path)

        shell(preparation)
        first = subprocess.Popen(
            [sys.executable, "stream.py", at, "work"], cwd=tmp_path, env=environ(), start_new_session=True
        )
        deadline = time.monotonic() + TIMEOUT_S
        commits = tmp_path / "work" / "checkpoint" / "commits"
        while not (commits.is_dir() and len(list(commits.glob("[0-9]*"))) > 3):
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        # The page kills Python, whose JVM then ends; here both are killed together.
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        assert "work &" in stream and again.startswith("python stream.py")
        shell(again)
        # The command exits with 1 if a record is missing, duplicate or extra.
        shell(verify)
    finally:
        broker.kill()
