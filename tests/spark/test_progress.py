"""Figures of a real stream as its program's listeners get them; and the trigger that passes no rows to Python."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_sink import SinkProgress, foreach_batch, progress_listener, run_until_stopped, write
from kafka_sink.common.errors import KafkaError
from kafka_sink.reports.writes import read_writes
from kafka_sink.spark.driver import lineage
from tests.conftest import Figure
from tests.support.readback import read_topic
from tests.support.spark_version import HAS_DATA_SOURCES, requires_data_sources

LIMIT_S = 60.0
WAYS = ("batch", "stream")


def rows_of(spark: SparkSession, folder: Path) -> Any:
    return spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(folder))


@pytest.mark.behaviour("Progress and continuous triggers", "A program hears of every batch")
def test_listener_reports_progress_of_every_batch(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path, figure: Figure
) -> None:
    source, report, prom, topic = tmp_path / "source", tmp_path / "report.jsonl", tmp_path / "sink.prom", new_topic()
    source.mkdir()
    for number in range(3):
        (source / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(100)))
    told: list[SinkProgress] = []
    listener = progress_listener(report, callback=told.append, prometheus_file=prom, tags={"query": "lines"})
    spark.streams.addListener(listener)
    try:
        to = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "reportPath": str(report)}
        stream = rows_of(spark, source).writeStream
        if HAS_DATA_SOURCES:
            to |= {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": topic}
            stream = stream.format("kafkalite").options(**to)
        else:
            stream = stream.foreachBatch(foreach_batch(options=to, app_id=topic, atomic=False))
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_until_stopped(stream.trigger(availableNow=True).start())
        deadline = time.monotonic() + LIMIT_S
        while len(told) < 3 and time.monotonic() < deadline:
            # Spark notifies its listeners some time after the batch.
            time.sleep(0.02)
    finally:
        spark.streams.removeListener(listener)
    assert [(each.batch, each.decision, each.rows) for each in told] == [(n, "written", 100) for n in range(3)]
    ends: dict[str, int] = {}
    for message in read_topic(cluster.bootstrap_servers, topic):
        ends[f"{topic}-{message.partition}"] = message.offset
    last = {name: part.last_offset for each in told for name, part in each.partitions.items()}
    assert last == ends
    for each in told:
        assert each.ack_p50_ms is not None
        assert each.ack_p99_ms is not None
        assert 0 <= each.ack_p50_ms <= each.ack_p99_ms <= each.elapsed_ms
        assert each.commit_ms > 0
    assert 'kafka_sink_rows_total{query="lines"} 300.0' in prom.read_text()
    figure("last batch", f"ack p50 {told[2].ack_p50_ms}, p99 {told[2].ack_p99_ms}, commit {told[2].commit_ms} ms")


@pytest.mark.behaviour("Progress and continuous triggers", "A write that fails is in the report, with its error")
@pytest.mark.parametrize("way", ["write", *(pytest.param(way, marks=requires_data_sources) for way in WAYS)])
def test_failed_writes_are_in_the_report(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path, way: str
) -> None:
    report = tmp_path / "report.jsonl"
    to = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic(), "reportPath": str(report)}
    to["kafka.max.request.size"] = "100"
    source = tmp_path / "source"
    source.mkdir()
    (source / "0.txt").write_text("x" * 1_000)
    with pytest.raises(Exception, match="RowTooLargeError"):
        if way == "write":
            write(spark.read.text(str(source)), options=to)
        elif way == "batch":
            spark.read.text(str(source)).write.format("kafkalite").mode("append").options(**to).save()
        else:
            stream = rows_of(spark, source).writeStream.format("kafkalite").options(**to)
            query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
            query.awaitTermination()
    _, (failed,) = read_writes(report, 9)
    assert failed.is_failed and failed.timestamp_ms is not None
    assert ("RowTooLargeError" in failed.error) == (way == "write")
    assert failed.batch == (0 if way == "stream" else -1)


@pytest.mark.behaviour("Lineage", "A write tells which files it read and which offsets it wrote")
def test_a_write_tells_its_lineage(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, events, topic = tmp_path / "rows.txt", tmp_path / "events.jsonl", new_topic(1)
    source.write_text("a\nb\nc\n")
    # On a busy machine the import of OpenLineage's library takes longer than a write waits.
    monkeypatch.setattr(lineage, "LONGEST_S", 60.0)
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(events))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    write(spark.read.text(str(source)), options={"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic})
    (event,) = (json.loads(line) for line in events.read_text().splitlines())
    assert [each["name"] for each in event["inputs"]] == [str(source)]
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == (f"kafka://{cluster.bootstrap_servers}", topic)
    assert output["outputFacets"]["kafkalite_offsets"]["partitions"] == [
        {"partition": 0, "firstOffset": 0, "lastOffset": 2}
    ]
    assert [field["name"] for field in output["facets"]["schema"]["fields"]] == ["value"]


def continuous_query(spark: SparkSession, cluster: Any, topic: str, folder: Path) -> Any:
    rates = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    stream = rates.selectExpr("cast(value as string) as value").writeStream.format("kafkalite").option("topic", topic)
    stream = stream.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return (
        stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(continuous="300 milliseconds").start()
    )


@pytest.mark.behaviour("Progress and continuous triggers", "The program that waits for a continuous query stops it")
@requires_data_sources
def test_run_until_stopped_stops_a_continuous_query(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    query = continuous_query(spark, cluster, new_topic(1), tmp_path)
    with pytest.raises(KafkaError, match=r"was stopped: trigger\(continuous=…\) does not pass rows .* they are LOST"):
        run_until_stopped(query)
    assert not query.isActive


@pytest.mark.behaviour("Progress and continuous triggers", "The listener stops a continuous query")
@requires_data_sources
def test_a_continuous_query_is_stopped_by_the_listener(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def is_told() -> bool:
        return any("ROWS WERE BEING LOST" in message for message in caplog.messages)

    listener = progress_listener(tmp_path / "report.jsonl")
    spark.streams.addListener(listener)
    try:
        with caplog.at_level(logging.ERROR):
            query = continuous_query(spark, cluster, new_topic(1), tmp_path)
            deadline = time.monotonic() + LIMIT_S
            while not is_told() and time.monotonic() < deadline:
                time.sleep(0.05)
            is_active = query.isActive
            query.stop()
        assert not is_active
        assert is_told()
    finally:
        spark.streams.removeListener(listener)
