"""The partitions of rows that Spark groups before a task writes them: each depends only on the row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.producer.plugins.partitioner import murmur2
from kafka_sink.producer.topic_limits import TimeLimit, TopicLimits
from kafka_sink.spark.options import parse_arguments
from kafka_sink.spark.task.placing import with_partitions
from kafka_sink.spark.write_spec import WriteSpec
from tests.support.cases import with_each

PARTITIONS = 6
NOW_MS = 1_700_000_000_000
VALUES = [f"order {number}".encode() for number in range(60)]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        for topic in ("rows", "rejected"):
            cluster.create_topic(topic, PARTITIONS)
        yield cluster.bootstrap_servers


def spec_of(servers: str, **options: str) -> WriteSpec:
    named = {name.replace("_", "."): value for name, value in options.items()}
    given = {"kafka.bootstrap.servers": servers, "topic": "rows", **named}
    return parse_arguments(given, {"txnAppId": "a", "txnVersion": 1}).spec


def placed(servers: str, batches: list[pa.RecordBatch], **options: str) -> list[pa.RecordBatch]:
    return list(with_partitions(iter(batches), spec_of(servers, **options), NOW_MS))


def partitions(batches: list[pa.RecordBatch]) -> dict[bytes, int]:
    rows = pa.Table.from_batches(batches)
    return dict(zip(rows["value"].to_pylist(), rows["partition"].to_pylist(), strict=True))


def of_key(key: bytes) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % PARTITIONS


@pytest.mark.behaviour("Exactly once: atomic", "A stage that Spark runs again in another order places each row alike")
def test_rows_without_a_key_are_placed_alike_in_any_order(servers: str) -> None:
    rows = pa.record_batch([pa.array(VALUES), pa.nulls(len(VALUES), pa.binary())], names=["value", "key"])
    found = partitions(placed(servers, [rows]))
    assert set(found.values()) == set(range(PARTITIONS))
    again = rows.take(pa.array(range(len(VALUES) - 1, -1, -1)))
    assert partitions(placed(servers, [again.slice(0, 7), again.slice(7)])) == found


@with_each(
    ("ignored", "expected"),
    [("false", [of_key(b"a"), of_key(b"w"), 4]), ("true", [of_key(b"v"), of_key(b"w"), 4])],
)
def test_a_row_is_placed_by_column_then_key_then_value(servers: str, ignored: str, expected: list[int]) -> None:
    columns = [pa.array([b"v", b"w", b"x"]), pa.array([b"a", None, b"b"]), pa.array([None, None, 4], pa.int32())]
    rows = pa.record_batch(columns, names=["value", "key", "partition"])
    (found,) = placed(servers, [rows], kafka_partitioner_ignore_keys=ignored)
    assert found["partition"].to_pylist() == expected


@with_each("kind", [pa.string(), pa.large_string()])
def test_dead_letters_follow_text_of_any_width(servers: str, kind: pa.DataType) -> None:
    rows = pa.record_batch([pa.array(["v", "w"], kind), pa.array([-1, None], pa.int32())], names=["value", "partition"])
    good, letters = placed(servers, [rows], deadLetterTopic="rejected")
    assert good["value"].to_pylist() == ["w"]
    assert {good.schema.field("value").type, letters.schema.field("value").type} == {pa.string()}


@pytest.mark.behaviour("Exactly once: atomic", "A stage that Spark runs again in another order places each row alike")
def test_limits_of_timestamps_are_those_of_the_writes_begin(servers: str) -> None:
    spec = spec_of(servers, onBadRow="drop")
    limit = TimeLimit("message.timestamp.before.max.ms", 1000)
    spec = replace(spec, limits={"rows": TopicLimits(before=limit)})
    sent = [datetime.fromtimestamp((NOW_MS - age_ms) / 1000, UTC) for age_ms in (1001, 1000)]
    rows = pa.record_batch(
        [pa.array([b"old", b"new"]), pa.array(sent, pa.timestamp("us", "UTC"))], ["value", "timestamp"]
    )
    good, dropped = with_partitions(iter([rows]), spec, NOW_MS)
    assert (good["value"].to_pylist(), dropped.num_rows) == ([b"new"], 1)
