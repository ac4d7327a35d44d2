"""The jobs of ``spark_jobs``, run with spark-submit as by a scheduler; another project's client reads the rows."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from kafka_sink.client.blocking.admin import AdminClient
from tests.conftest import Figure
from tests.support import ways
from tests.support.amounts import only_long
from tests.support.broker_process import BrokerProcess
from tests.support.readback import read_topic
from tests.support.spark_version import HAS_DATA_SOURCES

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
BATCHES = 4
STREAM_JOB = "stream_to_kafka.py" if HAS_DATA_SOURCES else "foreach_batch_to_kafka.py"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.kill()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"job-{os.urandom(4).hex()}"
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic(name, 2)
    return name


class Job:
    """One run of a job with spark-submit, in its own process group, which :meth:`kill` ends at the latest."""

    def __init__(self, name: str, *arguments: str, log: Path, programs: Path | None = None, terminal: str = "") -> None:
        """Start the job; *programs* is a folder before those of PATH, *terminal* a device to run on."""
        self.log = log
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYTHONPATH": str(ROOT),
        }
        if programs is not None:
            environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
        conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
        command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        command += [str(ROOT / "spark_jobs" / name), *arguments]
        if terminal:
            # The first terminal that a session's leader opens is the session's own.
            command = ["sh", "-c", 'exec "$@" < "$0"', terminal, *command]
        with log.open("wb") as output:
            # This process becomes the JVM; the job's Python is its child.
            self.process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def wait(self) -> int:
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.printed()) from None

    def kill(self) -> None:
        """Kill the processes that still run: the JVM, and the job's Python even if it has outlived the JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def printed(self) -> str:
        return self.log.read_text()


StartJob = Callable[..., Job]


@pytest.fixture
def start() -> Iterator[StartJob]:
    """Return a function that starts jobs, which end with the test."""
    with contextlib.ExitStack() as ending:

        def start_one(*arguments: str, **options: Any) -> Job:
            job = Job(*arguments, **options)
            ending.callback(job.kill)
            return job

        yield start_one


def values(broker: BrokerProcess, topic: str) -> Counter[bytes | None]:
    return Counter(message.value for message in read_topic(broker.bootstrap_servers, topic))


@only_long
@pytest.mark.behaviour("Spark jobs", "spark-submit runs the batch job")
@pytest.mark.way(ways.ATOMIC)
def test_a_batch_of_csv_files(broker: BrokerProcess, topic: str, start: StartJob, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,customer\n1,ann\n2,bob\n3,\n")
    arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", topic, "--input", str(tmp_path)]
    arguments += ["--format", "csv", "--schema", "id LONG, customer STRING", "--read-option", "header=true"]
    arguments += ["--key", "customer", "--version", "7", "--option", "kafka.compression.type=zstd"]
    job = start("batch_to_kafka.py", *arguments, log=tmp_path.with_suffix(".log"))
    assert job.wait() == 0, job.printed()
    report = json.loads(job.printed().splitlines()[-1])
    assert (report["decision"], report["rows"]) == ("written", 3)
    found = {(message.key, message.value) for message in read_topic(broker.bootstrap_servers, topic)}
    assert found == {
        (b"ann", b'{"id":1,"customer":"ann"}'),
        (b"bob", b'{"id":2,"customer":"bob"}'),
        (None, b'{"id":3}'),
    }


@pytest.mark.behaviour("Spark jobs", "SIGTERM and Ctrl-C let the micro-batch end, and the next start goes on")
@pytest.mark.way(ways.EXACTLY_ONCE_STREAM if HAS_DATA_SOURCES else ways.FOREACH_BATCH)
def test_sigterm_ends_after_micro_batch_and_next_start_continues(
    broker: BrokerProcess,
    topic: str,
    start: StartJob,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Figure,
) -> None:
    source, checkpoint, report = tmp_path / "source", tmp_path / "checkpoint", tmp_path / "report.jsonl"
    source.mkdir()

    def add_files(numbers: range) -> None:
        for number in numbers:
            (tmp_path / "file").write_text("".join(f"{number}-{line}\n" for line in range(50)))
            (tmp_path / "file").rename(source / f"{number:02}.txt")

    add_files(range(BATCHES // 2))
    arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", topic, "--input", str(source)]
    arguments += ["--checkpoint", str(checkpoint), "--report", str(report), "--trigger", "0 seconds"]

    job = start(STREAM_JOB, *arguments, log=tmp_path / "1.log")
    deadline = time.monotonic() + LIMIT_S
    while not report.exists():
        assert job.process.poll() is None and time.monotonic() < deadline, job.printed()
        time.sleep(0.01)
    started = time.monotonic()
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 0, job.printed()
    stopped_s = time.monotonic() - started
    batches = len(report.read_text().splitlines())
    assert "the current micro-batch is completed first" in job.printed()
    # Every batch in Kafka is also committed in Spark's checkpoint.
    assert len(list((checkpoint / "commits").glob("[0-9]*"))) == batches

    add_files(range(BATCHES // 2, BATCHES))
    # The next start finds the session of the tests, which it must not stop.
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    monkeypatch.setattr(sys, "argv", [STREAM_JOB, *arguments, "--until-written"])
    runpy.run_path(str(ROOT / "spark_jobs" / STREAM_JOB), run_name="__main__")
    assert values(broker, topic) == Counter(
        f"{number}-{line}".encode() for number in range(BATCHES) for line in range(50)
    )
    assert [json.loads(line)["decision"] for line in report.read_text().splitlines()] == ["written"] * BATCHES
    figure("stopped", f"{batches} of {BATCHES} micro-batches, {stopped_s:.1f} s after SIGTERM to the JVM")


#: A program that Hadoop's local file system starts; it sends Ctrl-C to the whole process group, the worst moment.
CTRL_C = """#!/bin/sh
if mv '{0}/armed' '{0}/came' 2>/dev/null; then kill -INT 0; fi
PATH=${{PATH#*:}} exec chmod "$@"
"""


@pytest.mark.behaviour("Spark jobs", "SIGTERM and Ctrl-C let the micro-batch end, and the next start goes on")
@pytest.mark.way(ways.FOREACH_BATCH)
@pytest.mark.parametrize(
    "on_terminal", [pytest.param(True, id="terminal", marks=only_long), pytest.param(False, id="process-group")]
)
def test_ctrl_c_ends_foreach_batch_of_a_socket_well(
    broker: BrokerProcess, topic: str, start: StartJob, tmp_path: Path, on_terminal: bool
) -> None:
    checkpoint, programs = tmp_path / "checkpoint", tmp_path / "programs"
    programs.mkdir()
    (programs / "chmod").write_text(CTRL_C.format(tmp_path))
    (programs / "chmod").chmod(0o755)

    def noted(log: str) -> list[Path]:
        return list((checkpoint / log).glob("[0-9]*"))

    master, slave = os.openpty()
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", topic, "--source", "socket"]
        arguments += ["--input", f"127.0.0.1:{server.getsockname()[1]}", "--checkpoint", str(checkpoint)]
        terminal = os.ttyname(slave) if on_terminal else ""
        job = start("foreach_batch_to_kafka.py", *arguments, log=tmp_path / "log", programs=programs, terminal=terminal)
        server.settimeout(LIMIT_S)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"one\ntwo\nthree\n")
            deadline = time.monotonic() + LIMIT_S
            while sum(values(broker, topic).values()) < 3 or len(noted("commits")) < len(noted("offsets")):
                assert job.process.poll() is None and time.monotonic() < deadline, job.printed()
                time.sleep(0.1)
            (tmp_path / "armed").touch()
            connection.sendall(b"four\n")
            assert job.wait() == 0, job.printed()
    os.close(master)
    os.close(slave)
    assert (tmp_path / "came").exists()
    ended = Counter([b"one", b"two", b"three"])
    if on_terminal:
        # The terminal's Ctrl-C does not reach the programs that Hadoop has started.
        ended[b"four"] += 1
        assert "the current micro-batch is completed first" in job.printed()
    else:
        assert "the query writes the current micro-batch after its next start" in job.printed()
    assert values(broker, topic) == ended
