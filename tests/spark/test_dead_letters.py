"""Rows that cannot be written, among others, in every way to write on a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafka_sink
from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.errors import KafkaError
from kafka_sink.spark.streaming.progress import SinkProgress
from tests.support import ways
from tests.support.amounts import only_long
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

NewTopic = Callable[..., str]
ROWS, EVERY = 400, 40
COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
FIELDS = [{"name": "id", "type": "long"}, {"name": "colour", "type": COLOURS}, {"name": "text", "type": "string"}]
AVRO = {"value.format": "avro", "value.schema": json.dumps({"type": "record", "name": "Order", "fields": FIELDS})}
#: What is wrong with a row, by the rest of its id.
REASONS = {1: "not-encodable", 2: "invalid-partition", 3: "invalid-timestamp", 4: "too-large", 5: "null-topic"}
BAD = {row: REASONS[row % EVERY] for row in range(ROWS) if row % EVERY in REASONS}
PREFIX = "__kafkalite.errors."


def orders(numbers: DataFrame, topic: str) -> DataFrame:
    """Rows of which one in eight cannot be written, for five reasons."""
    # A file's columns may be null, and then the schema says so.
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
    """Where a test writes to."""

    cluster: Any
    topic: str
    dead_letters: str
    folder: Path
    more: Mapping[str, str]

    @property
    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "kafka.max.request.size": "20000",
            "progressTopic": self.topic,
            "reportPath": str(self.folder / "report"),
            **AVRO,
            **self.more,
        }

    def reports(self) -> list[SinkProgress]:
        lines = (self.folder / "report").read_text().splitlines()
        return [SinkProgress.of_report(json.loads(line)) for line in lines]


def numbers_of(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, numPartitions=2)


def by_df_write(spark: SparkSession, target: Target, **options: str) -> None:
    given = {name: value for name, value in target.options.items() if options or name != "progressTopic"}
    orders(numbers_of(spark), target.topic).write.format("kafkalite").mode("append").options(**given, **options).save()


def by_write(spark: SparkSession, target: Target, **arguments: Any) -> None:
    options = {name: value for name, value in target.options.items() if arguments or name != "progressTopic"}
    report = kafka_sink.write(orders(numbers_of(spark), target.topic), options=options, **arguments)
    assert (report.rows, report.bad_rows) == (ROWS - len(BAD), len(BAD))


def by_stream(spark: SparkSession, target: Target, options: Mapping[str, str], batch: Any = None) -> None:
    source = target.folder / "source"
    source.mkdir()
    for part in range(2):
        ids = range(part * ROWS // 2, (part + 1) * ROWS // 2)
        (source / f"{part}.json").write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))
    numbers = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
    stream = orders(numbers, target.topic).writeStream.option("checkpointLocation", str(target.folder / "checkpoint"))
    given = {name: value for name, value in target.options.items() if options or name != "progressTopic"}
    stream = stream.format("kafkalite").options(**given, **options) if batch is None else stream.foreachBatch(batch)
    stream.trigger(availableNow=True).start().awaitTermination(120)


def by_foreach_batch(spark: SparkSession, target: Target) -> None:
    by_stream(spark, target, {}, kafka_sink.foreach_batch(options=target.options, app_id=target.topic))


WAYS = [
    pytest.param(by_df_write, marks=[requires_data_sources, pytest.mark.way(ways.DF_WRITE)], id="df.write"),
    pytest.param(
        lambda spark, target: by_df_write(spark, target, txnAppId=target.topic, txnVersion="0"),
        marks=[requires_data_sources, pytest.mark.way(ways.DF_WRITE)],
        id="df.write-exactly-once",
    ),
    pytest.param(by_write, marks=[only_long, pytest.mark.way(ways.AT_LEAST_ONCE)], id="write"),
    pytest.param(
        lambda spark, target: by_write(spark, target, app_id=target.topic, version=0),
        marks=pytest.mark.way(ways.ATOMIC),
        id="write-atomic",
    ),
    pytest.param(
        lambda spark, target: by_write(spark, target, app_id=target.topic, version=0, atomic=False),
        marks=pytest.mark.way(ways.PARALLEL),
        id="write-parallel",
    ),
    pytest.param(
        lambda spark, target: by_stream(spark, target, {}),
        marks=[only_long, requires_data_sources, pytest.mark.way(ways.AT_LEAST_ONCE_STREAM)],
        id="stream",
    ),
    pytest.param(
        lambda spark, target: by_stream(
            spark, target, {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": target.topic}
        ),
        marks=[requires_data_sources, pytest.mark.way(ways.EXACTLY_ONCE_STREAM)],
        id="stream-exactly-once",
    ),
    pytest.param(by_foreach_batch, marks=pytest.mark.way(ways.FOREACH_BATCH), id="foreach_batch"),
]


@pytest.fixture
def target(cluster: Any, new_topic: NewTopic, tmp_path: Path) -> Target:
    dead_letters = new_topic(2)
    return Target(cluster, new_topic(3), dead_letters, tmp_path, {"deadLetterTopic": dead_letters})


def keys_in(target: Target, topic: str) -> list[int]:
    return sorted(int(message.key or b"") for message in read_topic(target.cluster.bootstrap_servers, topic))


@pytest.mark.behaviour(
    "Dead letters", "In every way to write, bad rows are in the dead letter topic once, the others not"
)
@pytest.mark.parametrize("write", WAYS)
def test_bad_rows_are_dead_letters_in_every_way(
    write: Callable[[SparkSession, Target], None], spark: SparkSession, target: Target
) -> None:
    write(spark, target)
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


NUMBERED = [each for each in WAYS if each.id in ("df.write-exactly-once", "write-atomic", "write-parallel")]


@pytest.mark.behaviour(
    "Dead letters", "Beyond maxBadRows nothing is committed, and the same write succeeds when it is raised"
)
@pytest.mark.parametrize("write", NUMBERED)
def test_too_many_bad_rows_leave_nothing(
    write: Callable[[SparkSession, Target], None], spark: SparkSession, target: Target
) -> None:
    said = rf"{len(BAD)} of {ROWS} rows \(12\.50%\) cannot be written, more than option maxBadRows=1% allows; the first"
    with pytest.raises((KafkaError, PySparkException), match=said):
        write(spark, replace(target, more={**target.more, "maxBadRows": "1%"}))
    servers = target.cluster.bootstrap_servers
    with KafkaProducer({"bootstrap.servers": servers}) as producer:
        for topic, count in ((target.topic, 3), (target.dead_letters, 2)):
            for partition in range(count):
                producer.send(ProducerRecord(topic, b"after", key=b"-1", partition=partition))
    # Transactions that were still open would hold back readers from what follows them.
    assert keys_in(target, target.topic) == [-1] * 3
    assert keys_in(target, target.dead_letters) == [-1] * 2
    write(spark, replace(target, more={**target.more, "maxBadRows": "13 %"}))
    assert keys_in(target, target.dead_letters) == [-1] * 2 + sorted(BAD)
    assert len(keys_in(target, target.topic)) == 3 + ROWS - len(BAD)


@requires_data_sources
def test_too_many_bad_rows_fail_a_write_at_least_once(spark: SparkSession, target: Target) -> None:
    with pytest.raises(PySparkException, match=r"TooManyBadRowsError: 50 of 400 rows \(12\.50%\) cannot be written"):
        by_df_write(spark, replace(target, more={**target.more, "maxBadRows": "1%"}))
    with pytest.raises(PySparkException, match=r"\d rows of one task cannot be written, more than option maxBadRows=3"):
        by_df_write(spark, replace(target, more={**target.more, "maxBadRows": "3"}))


@pytest.mark.behaviour("Dead letters", "onBadRow=drop leaves bad rows out in every way to write, and counts them")
@pytest.mark.parametrize("write", [each for each in WAYS if each.id in ("df.write", "write-atomic")])
def test_bad_rows_are_dropped(
    write: Callable[[SparkSession, Target], None], spark: SparkSession, target: Target
) -> None:
    write(spark, replace(target, more={"onBadRow": "drop"}))
    assert keys_in(target, target.topic) == [row for row in range(ROWS) if row not in BAD]
    assert keys_in(target, target.dead_letters) == []
    assert sum(report.bad_rows for report in target.reports()) == len(BAD)
