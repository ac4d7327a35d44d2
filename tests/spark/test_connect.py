"""Spark Connect, where the program that writes has no JVM, and Declarative Pipelines, which run on it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.spark.driver import jobs
from tests.support import amounts, ways
from tests.support.connect_server import ENVIRON, SPARK_HOME, ConnectServer
from tests.support.readback import read_topic
from tests.support.spark_version import HAS_DATA_SOURCES, requires_spark

PIPELINE_RUNS = amounts.PIPELINE_RUNS

PROGRAM = """
import pickle, sys, time
from pyspark.sql import SparkSession
import kafka_sink
from kafka_sink.common.errors import ConfigError
from kafka_sink.preflight.findings import Status
from kafka_sink.spark.format_lookup import look_up
from tests.support.spark_version import HAS_DATA_SOURCES

remote, servers, folder, at_least_once, once, by_foreach_batch, by_save, by_stream = sys.argv[1:]
to = {"kafka.bootstrap.servers": servers}
spark = SparkSession.builder.remote(remote).config("spark.sql.shuffle.partitions", "4").getOrCreate()
rows = spark.range(1000).selectExpr("cast(id as string) as value")
rows.write.parquet(folder + "/in")
stream = spark.readStream.schema("value string").parquet(folder + "/in")

def run(name, writer):
    writer = writer.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
    kafka_sink.run_until_stopped(writer.start())

def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"not refused: {text}")

kafka_sink.write(rows, options=to, topic=at_least_once)
numbered = {"options": to, "topic": once, "app_id": "connect", "version": 1}
for expected in ("written", "skipped"):
    assert kafka_sink.write(rows, **numbered, atomic=HAS_DATA_SOURCES).decision == expected
write_batch = kafka_sink.foreach_batch(
    options=to, topic=by_foreach_batch, app_id="connect-foreach-batch", atomic=HAS_DATA_SOURCES
)
run("foreach-batch", stream.writeStream.foreachBatch(write_batch))

seen = []
report = folder + "/report.jsonl"
listener = kafka_sink.progress_listener(report, callback=seen.append)
found = look_up(spark)
assert found.status is Status.OK, found
if HAS_DATA_SOURCES:
    rows.write.format("kafkalite").mode("append").options(**to, topic=by_save).save()
    spark.streams.addListener(listener)
    exactly_once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "connect-stream"}
    writer = stream.writeStream.format("kafkalite").options(**to, topic=by_stream, reportPath=report, **exactly_once)
    run("stream", writer)
    # The server tells its listeners on a thread of its own.
    deadline = time.monotonic() + 60
    while not seen and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(seen) == 1, seen
else:
    refused(ConfigError, "atomic=True over Spark Connect needs Spark 4.0", lambda: kafka_sink.write(rows, **numbered))
    refused(pickle.PicklingError, "before Spark 4.0", lambda: spark.streams.addListener(listener))
spark.stop()  # Or the thread in which PySpark listens would keep the program alive.
"""

PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

dp.create_sink(
    "orders",
    "kafkalite",
    {
        "kafka.bootstrap.servers": "SERVERS",
        "topic": "TOPIC",
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": "pipeline",
    },
)


@dp.append_flow(target="orders")
def flow():
    spark = SparkSession.active()
    return spark.readStream.schema("id long").json("FOLDER/in").selectExpr("to_json(struct(*)) as value")
"""


def run(*command: str | Path) -> None:
    """Run *command* with the package installed for its Spark, as pip does."""
    done = subprocess.run(
        [str(each) for each in command],
        env=ENVIRON,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    started = ConnectServer(tmp_path_factory.mktemp("connect"))
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.stop()


def values(cluster: Any, topic: str) -> Counter[bytes | None]:
    return Counter(message.value for message in read_topic(cluster.bootstrap_servers, topic))


@pytest.mark.behaviour("Spark Connect", "Every way to write works without a JVM in the program")
@pytest.mark.way(ways.CONNECT)
@pytest.mark.skipif(PIPELINE_RUNS == 0, reason="KAFKALITE_PIPELINE_RUNS is not set")
def test_every_way_to_write_works_over_spark_connect(
    server: ConnectServer, cluster: Any, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    topics = [new_topic(2) for _ in range(5)]
    run(sys.executable, program, server.url, cluster.bootstrap_servers, tmp_path, *topics)
    expected = Counter(str(number).encode() for number in range(1000))
    for topic in topics if HAS_DATA_SOURCES else topics[:3]:
        assert values(cluster, topic) == expected


@pytest.mark.behaviour("Spark Connect", "A sink of a Declarative Pipeline is exactly once")
@pytest.mark.way(ways.CONNECT)
@requires_spark("4.1", "Declarative Pipelines")
@pytest.mark.skipif(PIPELINE_RUNS == 0, reason="KAFKALITE_PIPELINE_RUNS is not set")
def test_a_sink_of_a_declarative_pipeline_is_exactly_once(
    server: ConnectServer, cluster: Any, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    (tmp_path / "in").mkdir()
    (tmp_path / "flows").mkdir()
    text = PIPELINE.replace("SERVERS", cluster.bootstrap_servers).replace("TOPIC", topic)
    (tmp_path / "flows" / "orders.py").write_text(text.replace("FOLDER", str(tmp_path)))
    specification = tmp_path / "spark-pipeline.yml"
    specification.write_text(
        f"name: orders\nstorage: file://{tmp_path}/storage\nlibraries:\n  - glob:\n      include: flows/**\n"
    )
    for number in range(PIPELINE_RUNS):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        run(SPARK_HOME / "bin" / "spark-pipelines", "--remote", server.url, "run", "--spec", specification)
        assert values(cluster, topic) == Counter(f'{{"id":{n}}}'.encode() for n in range(number + 1))


@pytest.mark.behaviour("Spark Connect", "Odd options and rows of one program are refused, and others are served")
@pytest.mark.skipif(PIPELINE_RUNS == 0, reason="KAFKALITE_PIPELINE_RUNS is not set")
def test_an_attack_over_spark_connect_finds_nothing() -> None:
    run(sys.executable, "-m", "tests.hostile.fuzz", "--only", "Spark Connect", "--minutes", "2", "--seed", "1")


def test_jobs_over_connect_have_the_tags_of_their_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Spark 3.5 tags belong to a thread, and interruptTag finds jobs by them."""

    class OverConnect:
        def __init__(self) -> None:
            self.of_thread = threading.local()
            self.of_thread.tags = {"callers"}

        def getTags(self) -> set[str]:
            return set(self.of_thread.tags)

        def addTag(self, tag: str) -> None:
            self.of_thread.tags = {*getattr(self.of_thread, "tags", ()), tag}

    monkeypatch.setattr(jobs, "inheriting", lambda session, run: run)
    session = OverConnect()
    tags = jobs.run_stoppable(session, session.getTags, jobs.Interrupts())  # type: ignore[arg-type]
    assert len(tags) == 2 and "callers" in tags and session.getTags() == {"callers"}
