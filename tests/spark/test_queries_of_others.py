"""Batches written by the program's own threads, queries of another session, and one app_id for two topics."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from kafka_sink.errors import ConfigError
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

NewTopic = Callable[..., str]
LIMIT_S = 60.0


def run(spark: SparkSession, folder: Path, write_batch: Callable[[DataFrame, int], None]) -> None:
    stream = spark.readStream.schema("value string").text(str(folder / "in")).writeStream.foreachBatch(write_batch)
    stream = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    stream.start().awaitTermination(120)


def add_file(folder: Path, name: str) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_text("".join(f"{name}-{row}\n" for row in range(10)))


def found(cluster: Any, topic: str) -> int:
    return len(read_topic(cluster.bootstrap_servers, topic))


def test_one_app_id_for_two_topics_in_a_batch_is_refused(
    spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    progress, one, other = new_topic(1), new_topic(1), new_topic(1)
    to = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "progressTopic": progress}
    first, second = (kafka_sink.foreach_batch(to, app_id=progress, topic=topic) for topic in (one, other))

    def both(df: DataFrame, batch: int) -> None:
        first(df, batch)
        second(df, batch)

    add_file(tmp_path, "a")
    with pytest.raises(Exception, match=rf"app_id '{progress}' was used twice in batch 0"):
        run(spark, tmp_path, both)
    assert (found(cluster, one), found(cluster, other)) == (10, 0)


def test_threads_of_foreach_batch_know_their_query(
    spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    topics = new_topic(1), new_topic(1)
    to = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    writers = [kafka_sink.foreach_batch(to, app_id=topic, topic=topic) for topic in topics]

    def both(df: DataFrame, batch: int) -> None:
        with ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(write, df, batch) for write in writers]:
                each.result()

    def one_by_one(df: DataFrame, batch: int) -> None:
        for write in writers:
            write(df, batch)

    add_file(tmp_path, "a")
    run(spark, tmp_path, both)
    # A repeated batch is skipped in any thread.
    for path in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        path.unlink()
    run(spark, tmp_path, one_by_one)
    assert [found(cluster, topic) for topic in topics] == [10, 10]
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "in")
    add_file(tmp_path, "b")
    with pytest.raises(Exception, match=r"belongs to query .* and not to query"):
        run(spark, tmp_path, both)


def test_one_app_id_twice_is_refused_for_unknown_queries(
    spark: SparkSession, cluster: Any, new_topic: NewTopic
) -> None:
    """The query is unknown, as over Spark Connect."""
    topic, rows = new_topic(1), spark.range(10).selectExpr("cast(id as string) as value")
    write_batch = kafka_sink.foreach_batch(
        {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}, app_id=topic
    )
    write_batch(rows.filter("value < '5'"), 0)
    write_batch(rows.filter("value < '5'"), 0)
    with pytest.raises(ConfigError, match="was used twice in batch 0"):
        write_batch(rows.filter("value >= '5'"), 0)
    write_batch(rows.filter("value >= '5'"), 1)
    assert found(cluster, topic) == 10


@requires_data_sources
def test_listener_of_another_session_stops_continuous_query(
    spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = spark.newSession()
    kafka_sink.register(session)
    listener = kafka_sink.progress_listener(tmp_path / "report.jsonl")
    session.streams.addListener(listener)
    rates = session.readStream.format("rate").load().selectExpr("cast(value as string) as value").writeStream
    to = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic(1)}
    stream = rates.format("kafkalite").options(**to).option("checkpointLocation", str(tmp_path / "checkpoint"))
    try:
        with caplog.at_level(logging.ERROR):
            query = stream.trigger(continuous="300 milliseconds").start()
            deadline = time.monotonic() + LIMIT_S / 4
            while query.isActive and time.monotonic() < deadline:
                time.sleep(0.05)
            is_active = query.isActive
            query.stop()
        assert not is_active
    finally:
        session.streams.removeListener(listener)
        kafka_sink.register(spark)
