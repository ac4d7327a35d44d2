"""Interrupts of programs and notebooks, each in a separate process: no row follows; a repeated write is complete."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import IO, Any, Final

import pytest

from tests.support import ways
from tests.support.amounts import STOPS, only_long
from tests.support.connect_server import ENVIRON, ConnectServer
from tests.support.spark_version import requires_data_sources
from tests.support.stopped_writes import (
    PROGRAM,
    ROWS,
    WAYS,
    await_moment,
    check_nothing_follows,
    check_written_again,
    numbered,
)


class Program:
    """The program with these topics, in a separate process."""

    def __init__(self, folder: Path, url: str, servers: str, topics: list[str]) -> None:
        path = folder / "program.py"
        path.write_text(PROGRAM)
        self._log = (folder / "program.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(path), url, servers, *topics],
            env=ENVIRON,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def line(self, begins: str) -> str:
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if not said.startswith(begins):
            self._log.seek(0)
            raise AssertionError(f"{said!r}\n{self._log.read()[-3000:]}")
        return said

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            streams: list[IO[str] | None] = [self.process.stdin, self.process.stdout, self._log]
            for stream in streams:
                if stream is not None:
                    stream.close()


def interrupt_in_every_way(folder: Path, url: str, servers: str, new_topic: Callable[..., str]) -> None:
    # A single interrupt tests the most complex way, in which tasks and the driver each have transactions.
    ways_to_write = WAYS if STOPS > 1 else ("parallel",)
    topics, random = [(way, new_topic(2)) for _ in range(STOPS) for way in ways_to_write], Random(1)
    program = Program(folder, url, servers, [f"{way}={topic}" for way, topic in topics])
    try:
        for way, topic in topics:
            program.line("begins")
            await_moment(servers, topic, random)
            program.process.send_signal(signal.SIGINT)
            program.line("stopped: the write was stopped: ")
            when_stopped = check_nothing_follows(servers, topic)
            program.go_on()
            program.line(f"rows: {ROWS}")
            check_written_again(servers, topic, way, when_stopped)
    finally:
        program.end()
    assert program.process.returncode == 0


@pytest.mark.behaviour("Stop means stop", "Ctrl-C ends the write of a program")
def test_ctrl_c_ends_the_write_of_a_program(cluster: Any, new_topic: Callable[..., str], tmp_path: Path) -> None:
    interrupt_in_every_way(tmp_path, "-", cluster.bootstrap_servers, new_topic)


CELLS = (
    """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
from kafka_sink import foreach_batch, write
from tests.support.stopped_writes import ROWS, SLOWLY, WAYS
rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")
""",
    "print('begins', flush=True); write(rows, options={**to, **slowly}, **numbered).rows",
)
STREAM: Final = """
write_batch = foreach_batch({**to, **slowly}, app_id=to["topic"], atomic=atomic)
query = (spark.readStream.schema("value string").parquet(folder + "/in").writeStream.foreachBatch(write_batch)
    .option("checkpointLocation", folder + "/" + to["topic"]).trigger(availableNow=True).start())
print("begins", flush=True)
query.awaitTermination()
"""


class Kernel:
    """A notebook's kernel, with this interpreter."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import start_new_kernel

        #: The traceback of the last error.
        self.trace = ""
        start: Callable[..., Any] = start_new_kernel
        kernel = folder / "kernels" / "python3"
        kernel.mkdir(parents=True)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
        self.manager, self._client = start(kernel_name="python3", env=ENVIRON, startup_timeout=120)

    def run(self, code: str, once_it_begins: Callable[[], None] | None = None) -> str:
        """Return the value of the cell *code*, or its error. *once_it_begins* is called when the cell has printed."""
        asked = self._client.execute(code)
        said = ""
        while True:
            message = self._client.get_iopub_msg(timeout=240)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            if message["msg_type"] == "stream" and "begins" in content["text"] and once_it_begins is not None:
                once_it_begins()
            elif message["msg_type"] == "execute_result":
                said = content["data"]["text/plain"]
            elif message["msg_type"] == "error":
                said, self.trace = f"{content['ename']}: {content['evalue']}", "\n".join(content["traceback"])
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return said

    def stop(self) -> None:
        self._client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.mark.behaviour("Stop means stop", "The stop button of a notebook ends the write of a cell")
@only_long
def test_stop_button_of_a_notebook_ends_the_write(
    cluster: Any, new_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    servers, random = cluster.bootstrap_servers, Random(2)

    def to(topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": servers, "topic": topic}

    def interrupt(topic: str) -> None:
        await_moment(servers, topic, random)
        kernel.manager.interrupt_kernel()

    kernel = Kernel(tmp_path)
    try:
        assert kernel.run(CELLS[0]) == ""
        for way, topic in [(way, new_topic(2)) for _ in range(STOPS) for way in WAYS]:
            assert kernel.run(f"to, numbered, slowly = {to(topic)}, {numbered(way)}, SLOWLY") == ""
            said = kernel.run(CELLS[1], partial(interrupt, topic))
            # The interrupt may arrive before the cell has called the sink.
            is_ours = "kafka_sink" in kernel.trace
            assert said.startswith(f"KeyboardInterrupt: {'the write was stopped: ' if is_ours else ''}"), said
            when_stopped = check_nothing_follows(servers, topic)
            kernel.run("slowly = {}")
            assert kernel.run(CELLS[1]) == str(ROWS)
            check_written_again(servers, topic, way, when_stopped)
        kernel.run(f"folder = {str(tmp_path)!r}; rows.write.parquet(folder + '/in')")
        for way, topic in [(way, new_topic(2)) for _ in range(STOPS) for way in ("atomic", "parallel")]:
            assert kernel.run(f"to, atomic, slowly = {to(topic)}, {way == 'atomic'}, SLOWLY") == ""
            # An interrupt of PySpark's own wait leaves the query running, and its connection in an undefined state.
            assert kernel.run(STREAM, partial(interrupt, topic)) != ""
            assert "" in (kernel.run("query.stop()"), kernel.run("query.stop()"))
            check_nothing_follows(servers, topic, isolation="read_committed")
            assert kernel.run(f"slowly = {{}}\n{STREAM}") == ""
            check_written_again(servers, topic, way, 0)
    finally:
        kernel.stop()


@pytest.mark.behaviour("Stop means stop", "An interrupt over Spark Connect ends the job on the server")
@pytest.mark.way(ways.CONNECT)
@requires_data_sources
@only_long
def test_ctrl_c_ends_a_write_over_spark_connect(cluster: Any, new_topic: Callable[..., str], tmp_path: Path) -> None:
    server = ConnectServer(tmp_path)
    try:
        server.wait_until_ready()
        interrupt_in_every_way(tmp_path, server.url, cluster.bootstrap_servers, new_topic)
    finally:
        server.stop()
