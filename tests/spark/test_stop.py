"""Whatever ends a write from outside ends it at once: no row follows, nothing is tried again, and a repeated write is
whole."""

from __future__ import annotations

import _thread
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import IO, Any, Final

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from kafka_sink.exactly_once.model import ExactlyOnceError
from kafka_sink.spark.driver.job_failures import CancelledWriteError
from tests.support import ways
from tests.support.amounts import STOPS, only_long
from tests.support.connect_server import ENVIRON, ConnectServer
from tests.support.spark_version import requires_data_sources
from tests.support.stopped_writes import (
    PROGRAM,
    ROWS,
    SLOWLY,
    WAYS,
    await_first_rows,
    await_moment,
    check_nothing_follows,
    check_written_again,
    end,
)

STAYS = {
    "at-least-once": r"the rows of other tasks that were acknowledged before stay in topic",
    "atomic": r"no row of version 0 became visible; write it again",
    "parallel": r"no row of version 0 became visible; write it again",
}


def numbered(way: str) -> dict[str, Any]:
    return {**WAYS[way], "version": 0} if "app_id" in WAYS[way] else {}


def rows_of(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")


@contextmanager
def once_rows_appear(servers: str, topic: str, act: Callable[[], None]) -> Iterator[None]:
    """*act* is called in a thread of its own as soon as *topic* has records."""

    def run() -> None:
        await_first_rows(servers, topic)
        act()

    thread = InheritableThread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.behaviour("Stop means stop", "An interrupted write ends its Spark job, and a repeated one is whole")
@pytest.mark.parametrize("way", WAYS)
def test_interrupted_write_ends_at_once(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], way: str
) -> None:
    topic, servers = new_topic(2), cluster.bootstrap_servers
    to = {"kafka.bootstrap.servers": servers, "topic": topic}
    with once_rows_appear(servers, topic, _thread.interrupt_main), pytest.raises(KeyboardInterrupt, match=STAYS[way]):
        kafka_sink.write(rows_of(spark), options={**to, **SLOWLY}, **numbered(way))
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    when_stopped = end(servers, topic)
    assert kafka_sink.write(rows_of(spark), options=to, **numbered(way)).rows == ROWS
    check_written_again(servers, topic, way, when_stopped)


@pytest.mark.behaviour("Stop means stop", "A write that somebody cancels is not tried again")
@pytest.mark.parametrize(("way", "cancel"), [("at-least-once", "group"), ("atomic", "all"), ("parallel", "tag")])
def test_cancelled_write_is_not_tried_again(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], way: str, cancel: str
) -> None:
    topic, servers, context = new_topic(2), cluster.bootstrap_servers, spark.sparkContext
    to = {"kafka.bootstrap.servers": servers, "topic": topic}

    def act() -> None:
        if cancel == "group":
            context.cancelJobGroup(topic)
        elif cancel == "all":
            context.cancelAllJobs()
        else:
            context.cancelJobsWithTag(topic)

    context.setJobGroup(topic, "of the user")
    context.addJobTag(topic)
    try:
        with once_rows_appear(servers, topic, act), pytest.raises(CancelledWriteError, match=STAYS[way]):
            kafka_sink.write(rows_of(spark), options={**to, **SLOWLY}, **numbered(way))
        assert context.getLocalProperty("spark.jobGroup.id") == topic
        assert set(context.getJobTags()) == {topic}
    finally:
        context.clearJobTags()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type,unused-ignore]
    when_stopped = end(servers, topic)
    assert kafka_sink.write(rows_of(spark), options=to, **numbered(way)).rows == ROWS
    check_written_again(servers, topic, way, when_stopped)


@pytest.mark.behaviour("Stop means stop", "A query that is stopped within a batch has not failed, and runs it once")
@pytest.mark.parametrize("way", ["atomic", "parallel"])
def test_stop_within_a_batch_of_foreach_batch(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path, way: str
) -> None:
    topic, servers = new_topic(2), cluster.bootstrap_servers
    rows_of(spark).write.parquet(f"{tmp_path}/in")

    def start(options: dict[str, str]) -> Any:
        to = {"kafka.bootstrap.servers": servers, "topic": topic, **options}
        write = kafka_sink.foreach_batch(options=to, app_id=f"stop-{topic}", atomic=way == "atomic")
        stream = spark.readStream.schema("value string").parquet(f"{tmp_path}/in").writeStream.foreachBatch(write)
        return stream.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()

    query = start(SLOWLY)
    await_first_rows(servers, topic)
    query.stop()
    assert query.exception() is None
    start({}).awaitTermination()
    check_written_again(servers, topic, way, 0)


@pytest.mark.behaviour("Stop means stop", "What no attempt cures is raised at once, with its first cause")
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("select if(assert_true(id < 3) is null, 'x', 'y') as value from range(9)", "is not true"),
        ("select cast(raise_error('the cause') as string) as value from range(9)", "the cause"),
        ("select cast(1 / id as string) as value from range(9)", "DIVIDE_BY_ZERO"),
    ],
)
def test_what_no_attempt_cures_is_raised_at_once(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], rows: str, says: str
) -> None:
    to = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic(2)}
    before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        with pytest.raises(Exception, match=says) as raised:
            kafka_sink.write(spark.sql(rows), options=to, app_id=to["topic"], version=0)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert not isinstance(raised.value, ExactlyOnceError)
    # One for the rows by partition, which has failed.
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == before + 1


class Program:
    """The program with these topics, in a process of its own."""

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
    topics, random = [(way, new_topic(2)) for _ in range(STOPS) for way in WAYS], Random(1)
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
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
import kafka_sink
from tests.support.stopped_writes import ROWS, SLOWLY, WAYS
rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")
""",
    "print('begins', flush=True); kafka_sink.write(rows, options={**to, **slowly}, **numbered).rows",
)
STREAM: Final = """
write = kafka_sink.foreach_batch({**to, **slowly}, app_id=to["topic"], atomic=atomic)
query = (spark.readStream.schema("value string").parquet(folder + "/in").writeStream.foreachBatch(write)
    .option("checkpointLocation", folder + "/" + to["topic"]).trigger(availableNow=True).start())
print("begins", flush=True)
try:
    query.awaitTermination()
finally:
    query.stop()
"""


class Kernel:
    """The kernel of a notebook, of this interpreter."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import start_new_kernel

        start: Callable[..., Any] = start_new_kernel
        kernel = folder / "kernels" / "python3"
        kernel.mkdir(parents=True)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
        self.manager, self._client = start(kernel_name="python3", env=ENVIRON, startup_timeout=120)

    def run(self, code: str, once_it_begins: Callable[[], None] | None = None) -> str:
        """The value of the cell *code*, or what it has raised. *once_it_begins* is called when the cell has printed."""
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
                said = f"{content['ename']}: {content['evalue']}"
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
            assert said.startswith("KeyboardInterrupt: the write was stopped: "), said
            when_stopped = check_nothing_follows(servers, topic)
            kernel.run("slowly = {}")
            assert kernel.run(CELLS[1]) == str(ROWS)
            check_written_again(servers, topic, way, when_stopped)
        kernel.run(f"folder = {str(tmp_path)!r}; rows.write.parquet(folder + '/in')")
        for way, topic in [(way, new_topic(2)) for _ in range(STOPS) for way in ("atomic", "parallel")]:
            assert kernel.run(f"to, atomic, slowly = {to(topic)}, {way == 'atomic'}, SLOWLY") == ""
            assert kernel.run(STREAM, partial(interrupt, topic)).startswith("KeyboardInterrupt")
            check_nothing_follows(servers, topic)
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
