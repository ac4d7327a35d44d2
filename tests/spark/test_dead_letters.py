"""Rows that cannot be written, among valid ones, in every way to write on a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.errors import KafkaError
from kafka_sink.reports.writes import SinkProgress
from tests.support.readback import read_topic
from tests.support.write_ways import (
    DF_WRITE,
    DF_WRITE_EXACTLY_ONCE,
    STREAM,
    WRITE,
    WRITE_ATOMIC,
    WRITE_PARALLEL,
    Way,
    WriteJob,
    in_ways,
)

NewTopic = Callable[..., str]
ROWS, EVERY = 400, 40
COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
FIELDS = [{"name": "id", "type": "long"}, {"name": "colour", "type": COLOURS}, {"name": "text", "type": "string"}]
AVRO = {"value.format": "avro", "value.schema": json.dumps({"type": "record", "name": "Order", "fields": FIELDS})}
#: Remainder of a row's id → the reason why the row cannot be written.
REASONS = {1: "not-encodable", 2: "invalid-partition", 3: "invalid-timestamp", 4: "too-large", 5: "null-topic"}
BAD = {row: REASONS[row % EVERY] for row in range(ROWS) if row % EVERY in REASONS}
PREFIX = "__kafkalite.errors."


def orders(numbers: DataFrame, topic: str) -> DataFrame:
    """Return rows of which one in eight cannot be written, for five reasons."""
    # Columns of files are nullable, which the schema would show.
    row = f.coalesce("id", f.lit(0))
    rest = row % EVERY
    value = f.struct(
        row.alias("id"),
        f.when(rest == 1, "GREEN").otherwise("RED").alias("colour"),
        f.when(rest == 4, f.repeat(f.lit("x"), 30_000)).otherwise("x").alias("text"),
    )
    return numbers.select(
        row.cast("string").alias("key"),
        value.alias("value"),
        f.when(rest == 2, 99).when(rest > 20, 1).cast("int").alias("partition"),
        f.timestamp_seconds(f.when(rest == 3, -1)).alias("timestamp"),
        f.when(rest != 5, topic).alias("topic"),
    )


@dataclass(frozen=True)
class Target:
    """The topics that a test writes to, and its folder."""

    cluster: Any
    topic: str
    dead_letters: str
    folder: Path

    def job(self, **more: str) -> WriteJob:
        """Return the write of all rows, with *more* options."""
        options = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "kafka.max.request.size": "20000",
            "reportPath": str(self.folder / "report"),
            **AVRO,
            **more,
        }
        rows = partial(orders, topic=self.topic)
        return WriteJob(rows, ROWS, options, self.topic, self.folder, {"progressTopic": self.topic})

    def reports(self) -> list[SinkProgress]:
        lines = (self.folder / "report").read_text().splitlines()
        return [SinkProgress.of_report(json.loads(line)) for line in lines]


@pytest.fixture
def target(cluster: Any, new_topic: NewTopic, tmp_path: Path) -> Target:
    dead_letters = new_topic(2)
    return Target(cluster, new_topic(3), dead_letters, tmp_path)


def keys_in(target: Target, topic: str) -> list[int]:
    return sorted(int(message.key or b"") for message in read_topic(target.cluster.bootstrap_servers, topic))


@pytest.mark.behaviour(
    "Dead letters", "In every way to write, bad rows are in the dead letter topic once, the others not"
)
@in_ways(long=(DF_WRITE_EXACTLY_ONCE, WRITE, WRITE_PARALLEL, STREAM))
def test_bad_rows_are_dead_letters_in_every_way(write: Way, spark: SparkSession, target: Target) -> None:
    write(spark, target.job(deadLetterTopic=target.dead_letters))
    assert keys_in(target, target.topic) == [row for row in range(ROWS) if row not in BAD]
    assert keys_in(target, target.dead_letters) == sorted(BAD)
    for letter in read_topic(target.cluster.bootstrap_servers, target.dead_letters):
        row = int(letter.key or b"")
        headers = {name.removeprefix(PREFIX): (value or b"").decode() for name, value in letter.headers}
        assert headers["reason"] == BAD[row]
        assert headers.get("topic") == (None if row % EVERY == 5 else target.topic)
        if row % EVERY == 1:
            assert json.loads(letter.value or b"") == {"id": row, "colour": "GREEN", "text": "x"}
            assert (headers["column"], headers["value.encoding"]) == ("value.colour", "json")
    reports = target.reports()
    assert sum(report.bad_rows for report in reports) == len(BAD)
    assert sum(report.rows for report in reports) == ROWS - len(BAD)


def narrow_rows(numbers: DataFrame) -> DataFrame:
    row = f.coalesce("id", f.lit(0))
    ahead = f.current_timestamp() + f.expr("interval 2 hours")
    return numbers.select(
        row.cast("string").alias("key"),
        f.when(row % EVERY == 1, f.repeat(f.lit("x"), 3000)).otherwise("x").alias("value"),
        f.when(row % EVERY == 2, ahead).alias("timestamp"),
    )


@pytest.mark.behaviour("Dead letters", "What the settings of a topic refuse is a bad row before it is sent")
@in_ways(DF_WRITE, WRITE_ATOMIC, STREAM, long=(STREAM,))
def test_rows_that_a_setting_refuses_are_dead_letters(write: Way, spark: SparkSession, target: Target) -> None:
    topic = f"{target.topic}-narrow"
    target.cluster.create_topic(topic, 2, configs={"max.message.bytes": "1500"})
    options = {
        "kafka.bootstrap.servers": target.cluster.bootstrap_servers,
        "topic": topic,
        "deadLetterTopic": target.dead_letters,
    }
    write(spark, WriteJob(narrow_rows, ROWS, options, topic, target.folder))
    bad = [row for row in range(ROWS) if row % EVERY in (1, 2)]
    assert keys_in(target, topic) == [row for row in range(ROWS) if row not in bad]
    assert keys_in(target, target.dead_letters) == bad


@pytest.mark.behaviour(
    "Dead letters", "Beyond maxBadRows nothing is committed, and the same write succeeds when it is raised"
)
@in_ways(DF_WRITE_EXACTLY_ONCE, WRITE_ATOMIC, WRITE_PARALLEL)
def test_too_many_bad_rows_leave_nothing(write: Way, spark: SparkSession, target: Target) -> None:
    said = rf"{len(BAD)} of {ROWS} rows \(12\.50%\) cannot be written, more than option maxBadRows=1% allows; the first"
    with pytest.raises((KafkaError, PySparkException), match=said):
        write(spark, target.job(deadLetterTopic=target.dead_letters, maxBadRows="1%"))
    servers = target.cluster.bootstrap_servers
    with KafkaProducer({"bootstrap.servers": servers}) as producer:
        for topic, count in ((target.topic, 3), (target.dead_letters, 2)):
            for partition in range(count):
                producer.send(ProducerRecord(topic, b"after", key=b"-1", partition=partition))
    # An open transaction would hide the records after it from readers.
    assert keys_in(target, target.topic) == [-1] * 3
    assert keys_in(target, target.dead_letters) == [-1] * 2
    write(spark, target.job(deadLetterTopic=target.dead_letters, maxBadRows="13 %"))
    assert keys_in(target, target.dead_letters) == [-1] * 2 + sorted(BAD)
    assert len(keys_in(target, target.topic)) == 3 + ROWS - len(BAD)


@in_ways(DF_WRITE)
def test_too_many_bad_rows_fail_a_write_at_least_once(write: Way, spark: SparkSession, target: Target) -> None:
    with pytest.raises(PySparkException, match=r"TooManyBadRowsError: 50 of 400 rows \(12\.50%\) cannot be written"):
        write(spark, target.job(deadLetterTopic=target.dead_letters, maxBadRows="1%"))
    with pytest.raises(PySparkException, match=r"\d rows of one task cannot be written, more than option maxBadRows=3"):
        write(spark, target.job(deadLetterTopic=target.dead_letters, maxBadRows="3"))


@pytest.mark.behaviour("Dead letters", "onBadRow=drop leaves bad rows out in every way to write, and counts them")
@in_ways(DF_WRITE, WRITE_ATOMIC)
def test_bad_rows_are_dropped(write: Way, spark: SparkSession, target: Target) -> None:
    write(spark, target.job(onBadRow="drop"))
    assert keys_in(target, target.topic) == [row for row in range(ROWS) if row not in BAD]
    assert keys_in(target, target.dead_letters) == []
    assert sum(report.bad_rows for report in target.reports()) == len(BAD)
