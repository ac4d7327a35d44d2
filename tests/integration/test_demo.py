"""The demo, with fewer rows: it must work, since new users run it first, and leave no process running."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.admin import AdminClient, NewTopic
from tests.support.amounts import only_long

DEMO = Path(__file__).parents[2] / "scripts" / "demo.sh"
TIMEOUT_S = 550
#: For a busy machine; a program that ends by itself has another exit code.
STOP_TIMEOUT_S = 60


def start_demo(*arguments: str, stderr: int = subprocess.STDOUT, **environment: str) -> subprocess.Popen[str]:
    """Start the demo in a process group of its own, as a terminal does."""
    return subprocess.Popen(
        ["bash", str(DEMO), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm", **environment},
    )


def run_demo(*arguments: str, stderr: int = subprocess.STDOUT, **environment: str) -> tuple[int, str]:
    """Run the demo and return its exit code and output."""
    with start_demo(*arguments, stderr=stderr, **environment) as demo:
        try:
            printed, _ = demo.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(demo.pid, signal.SIGKILL)
            raise
    return demo.returncode, printed


def run_on_terminal(*arguments: str) -> tuple[int, str, str]:
    """Run the demo and return its exit code, its stdout, and its stderr, which is a terminal."""
    master, slave = pty.openpty()
    shown = bytearray()

    def read() -> None:
        # Linux ends a pseudo-terminal with an error.
        with contextlib.suppress(OSError):
            while data := os.read(master, 65_536):
                shown.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        code, printed = run_demo(*arguments, stderr=slave)
    finally:
        os.close(slave)
        reader.join()
        os.close(master)
    return code, printed, shown.decode(errors="replace")


def remove_run(printed: str) -> Path:
    """Remove the folder that a run leaves and names in its output."""
    named = re.search(r"\S+/\.work/demo/run\.\w+", printed)
    assert named is not None, printed
    folder = Path(named[0])
    assert folder.is_dir()
    shutil.rmtree(folder)
    return folder


def running_in_group(group: int) -> list[str]:
    """Return the names of the group's running processes, without zombies. Empty on systems without /proc."""
    running = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, fields = stat.read_text().rpartition(")")
            state, _, process_group = fields.split()[:3]
            if int(process_group) == group and state not in "ZX":
                running.append(name)
    return running


@pytest.mark.behaviour("Demo", "Every flight is there, also where Spark was killed")
@pytest.mark.behaviour("Demo", "A terminal sees a bar for each act, and the end names commands that work")
@pytest.mark.timeout(600)
def test_demo_stores_every_flight_even_after_spark_is_killed() -> None:
    code, printed, shown = run_on_terminal("--nodes", "2", "--rows", "3000")
    assert code == 0, printed + shown
    assert "no record is missing" in printed
    assert re.search(r"killed with kill -9 in micro-batch \d+ of 10 ", shown)
    first, second = (
        {name.strip(): value.strip() for name, value in re.findall("│ ([a-z /]+)│ +([^│]+)│", act)}
        for act in printed.split("streamed to Kafka, exactly once")
    )
    for found in (first, second):
        assert [found[name] for name in ("records expected", "missing", "twice", "extra")] == ["3,000", "0", "0", "0"]
    # the sink's own count
    assert first["rows"] == "3,000"
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown))
    for act in ("writing", "streaming", "continuing"):
        assert any(line.startswith(f"{act} ━") and "/3000 rows" in line for line in lines), act
    assert_next_commands_work(printed)


def assert_next_commands_work(printed: str) -> None:
    commands = re.findall(r"^  (\S.*?)  +# ", printed.partition("Try next:")[2], re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        program, *_ = command.split()
        assert Path(program).is_file(), command
    done = subprocess.run(commands[0].split(), capture_output=True, text=True, timeout=60, check=True)
    # One more if Spark was killed after the sink's commit of a batch and before Spark's own.
    assert re.search(r"the last 1[01] of 1[01] writes", done.stdout)


@pytest.mark.behaviour("Demo", "What will be downloaded is told with sizes before it begins")
def test_downloads_are_told_before_they_begin(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "cat", "dirname", "id", "sed"):
        (programs / name).symlink_to(str(shutil.which(name)))
    code, printed = run_demo(PATH=str(programs), KAFKALITE_VENV=str(tmp_path / "venv"), PYTHON="")
    told, error = printed.splitlines()
    assert code == 1
    assert re.match(r"downloading, once: Python packages, \d+ MB \(PySpark \d+ MB", told)
    assert error.startswith("error: Python 3.11 or newer is needed")


@pytest.mark.behaviour("Demo", "A topic of a running Kafka is never deleted: the demo ends and names it")
def test_a_topic_of_a_running_kafka_is_kept() -> None:
    with EmbeddedCluster() as cluster, AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("flights", 1)])
        code, printed = run_demo("--batch", "--bootstrap", cluster.bootstrap_servers)
        assert admin.list_topics() == ["flights"]
    assert code == 1
    assert "error: topic flights exists on 127.0.0.1:" in printed
    assert ": name other topics with --topic, or delete it" in printed


@only_long
@pytest.mark.behaviour("Demo", "confluent-kafka's deserializer reads the flights that are written as Avro, equal")
def test_flights_as_avro_are_read_back_equal() -> None:
    code, printed = run_demo("--batch", "--avro", "--rows", "2000")
    assert code == 0, printed
    for title in ("written to Kafka", "written as Avro"):
        table = printed.partition(title)[2].partition("keys in order")[0]
        found = dict(re.findall(r"│ ([a-z /]+?) +│ +(\S+) │", table))
        assert [found[name] for name in ("records expected", "missing", "twice", "extra")] == ["2,000", "0", "0", "0"]


@only_long
@pytest.mark.behaviour("Demo", "A job that fails says why in few lines")
def test_a_job_that_fails_says_why_in_few_lines() -> None:
    code, printed = run_demo("--rows", "10", "--compression", "zip")
    remove_run(printed)
    assert code == 1
    assert "option kafka.compression.type: 'zip' is not allowed" in printed
    assert "the Spark job failed" in printed
    assert "  File " not in printed, "a traceback"


@pytest.mark.behaviour("Demo", "A signal ends the demo at once with everything it started, also its pages")
@pytest.mark.parametrize(
    ("number", "whole_group", "code", "arguments"),
    [
        pytest.param(signal.SIGTERM, False, 143, (), id="SIGTERM", marks=only_long),
        pytest.param(signal.SIGINT, True, 130, ("--ui",), id="Ctrl-C"),
    ],
)
def test_a_signal_ends_it_at_once_with_all_that_it_started(
    number: signal.Signals, whole_group: bool, code: int, arguments: tuple[str, ...]
) -> None:
    with start_demo(*arguments, BROWSER="true") as demo:
        try:
            assert demo.stdout is not None
            for line in demo.stdout:
                if line.startswith("the pages of this run: "):
                    with urllib.request.urlopen(line.split()[-1], timeout=60) as page:
                        assert page.url.endswith("/topics")
                if line.startswith("writing with Spark"):
                    break
            (os.killpg if whole_group else os.kill)(demo.pid, number)
            printed, _ = demo.communicate(timeout=STOP_TIMEOUT_S)
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while running_in_group(demo.pid) and time.monotonic() < deadline:
                # The driver detects the end of Spark by itself.
                time.sleep(0.1)
            assert running_in_group(demo.pid) == []
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(demo.pid, signal.SIGKILL)
    remove_run(printed)
    assert demo.returncode == code
    assert len(printed.splitlines()) == 1
