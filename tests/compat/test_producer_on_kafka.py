"""The producer writes to a real Kafka; librdkafka reads the records, and Kafka's own DumpLogSegments validates them."""

from __future__ import annotations

import random
import re
import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk, HeadersColumn
from kafka_sink.common.errors import RecordTooLargeError
from kafka_sink.producer.futures import Delivery
from tests.support.amounts import only_long
from tests.support.kafka_tools import run_kafka_tool
from tests.support.readback import Message, read_topic

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def make_rows(seed: int) -> list[Row]:
    """Return rows with null keys, null values, empty strings, headers, and values from 1 byte to 900 kB."""
    rng = random.Random(seed)
    sizes = [1, 0, 900_000, 127, 128, 16_383, 16_384, *(rng.randrange(300) for _ in range(3000))]
    rows: list[Row] = []
    for number, size in enumerate(sizes):
        key = None if rng.random() < 0.2 else rng.choice([b"", str(number).encode(), f"schlüssel-{number}".encode()])
        value = None if rng.random() < 0.1 and size < 300 else rng.randbytes(size // 2) + b"a" * (size - size // 2)
        headers = [(f"h{n}", rng.choice([None, b"", b"wert"])) for n in range(rng.randrange(4))]
        rows.append((key, value, headers))
    return rows


def as_chunk(rows: list[Row]) -> ColumnChunk:
    return ColumnChunk(
        value=BinaryColumn.from_arrow(pa.array([row[1] for row in rows], pa.binary())),
        key=BinaryColumn.from_arrow(pa.array([row[0] for row in rows], pa.binary())),
        headers=HeadersColumn.from_arrow(
            pa.array([[{"key": k, "value": v} for k, v in row[2]] for row in rows], HEADERS)
        ),
    )


def as_rows(messages: list[Message]) -> list[Row]:
    return [(message.key, message.value, list(message.headers)) for message in messages]


def sort_key(row: Row) -> str:
    return repr(row)


@pytest.fixture
def topic(real_kafka: RealKafka) -> str:
    name = f"ours-{uuid.uuid4().hex[:8]}"
    with AdminClient(real_kafka.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=3)
    return name


@pytest.mark.behaviour(
    "Record format", "A real Kafka finds every batch valid, and foreign readers get the columns unchanged"
)
@pytest.mark.parametrize("codec", CODECS)
def test_columns_arrive_unchanged_and_kafka_finds_batches_valid(real_kafka: RealKafka, topic: str, codec: str) -> None:
    rows = make_rows(seed=len(codec))
    told: list[Delivery] = []
    properties = {
        "bootstrap.servers": real_kafka.bootstrap_servers,
        "compression.type": codec,
        "batch.size": 100_000,
        "linger.ms": 50,
    }
    with KafkaProducer(properties) as producer:
        for start in range(0, len(rows), 1000):
            producer.send_columns(topic, as_chunk(rows[start : start + 1000]), on_delivery=told.append)
        producer.flush()
    assert [delivery.error for delivery in told if delivery.error] == []
    assert sum(delivery.count for delivery in told) == len(rows)
    found = read_topic(real_kafka.bootstrap_servers, topic)
    assert sorted(as_rows(found), key=sort_key) == sorted(rows, key=sort_key)
    check_with_dump_log_segments(real_kafka, topic, len(rows), codec)


@pytest.mark.parametrize(
    "codec", ["none", "lz4", *(pytest.param(codec, marks=only_long) for codec in ("gzip", "snappy", "zstd"))]
)
def test_single_records_arrive_unchanged(real_kafka: RealKafka, topic: str, codec: str) -> None:
    rows = make_rows(seed=100 + len(codec))
    properties = {"bootstrap.servers": real_kafka.bootstrap_servers, "compression.type": codec}
    with KafkaProducer(properties) as producer:
        futures = [producer.send(ProducerRecord(topic, value, key, headers=headers)) for key, value, headers in rows]
        places = [future.result(30) for future in futures]
    by_place = {
        (message.partition, message.offset): message for message in read_topic(real_kafka.bootstrap_servers, topic)
    }
    for row, place in zip(rows, places, strict=True):
        message = by_place[(place.partition, place.offset)]
        assert (message.key, message.value, list(message.headers)) == row
    check_with_dump_log_segments(real_kafka, topic, len(rows), codec)


def check_with_dump_log_segments(kafka: RealKafka, topic: str, rows: int, codec: str) -> None:
    """Let Kafka's own tool read every record of every batch and check the CRCs."""
    logs = [str(path) for number in range(3) for path in sorted(kafka.partition_directory(topic, number).glob("*.log"))]
    dump = run_kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(logs))
    batches = re.findall(r"count: (\d+) .*compresscodec: (\w+).* isvalid: (\w+)", dump)
    assert batches, dump[:2000]
    assert sum(int(count) for count, _, _ in batches) == rows
    assert {valid for _, _, valid in batches} == {"true"}
    assert {name for _, name, _ in batches} == {codec}
    assert len(re.findall(r"^\| offset: ", dump, flags=re.MULTILINE)) == rows


def test_partitions_and_timestamps_are_kept(real_kafka: RealKafka, topic: str) -> None:
    count = 5000
    partitions = np.arange(count, dtype=np.int32) % 3
    stamps = 1_356_998_400_000 + np.random.default_rng(7).integers(-(10**9), 10**9, count)
    chunk = ColumnChunk(
        value=BinaryColumn.from_arrow(pa.array([str(n) for n in range(count)])), timestamps=stamps.astype(np.int64)
    )
    with KafkaProducer({"bootstrap.servers": real_kafka.bootstrap_servers, "batch.size": 5000}) as producer:
        producer.send_columns(topic, chunk, partitions)
    for message in read_topic(real_kafka.bootstrap_servers, topic):
        row = int(message.value or b"")
        assert message.partition == row % 3
        assert message.timestamp == stamps[row]


@pytest.mark.behaviour(
    "Batch split", "Batches over a topic's max.message.bytes are split on a real Kafka until they fit"
)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_over_the_topics_limit_are_split_until_they_fit(real_kafka: RealKafka, codec: str) -> None:
    topic = f"small-{uuid.uuid4().hex[:8]}"
    with AdminClient(real_kafka.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions=2, configs={"max.message.bytes": "20000"})
    properties = {
        "bootstrap.servers": real_kafka.bootstrap_servers,
        "batch.size": 300_000,
        "linger.ms": 100,
        "compression.type": codec,
    }
    values = [b"%d " % number + random.Random(number).randbytes(150) for number in range(10_000)]
    told: list[Delivery] = []
    with KafkaProducer(properties) as producer:
        for start in range(0, len(values), 2_000):
            column = BinaryColumn.from_arrow(pa.array(values[start : start + 2_000], pa.binary()))
            partitions = np.zeros(2_000, dtype=np.int32)
            producer.send_columns(topic, ColumnChunk(value=column), partitions, on_delivery=told.append)
        futures = [producer.send(ProducerRecord(topic, value, partition=1)) for value in values[:2_000]]
        too_large = producer.send(ProducerRecord(topic, random.Random(1).randbytes(30_000), partition=1))
        futures += [producer.send(ProducerRecord(topic, value, partition=1)) for value in values[2_000:4_000]]
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(4_000))
        with pytest.raises(RecordTooLargeError, match=r"raise max\.message\.bytes of the topic"):
            too_large.result(0)
        assert producer.metrics()["batch-split-total"] > 10
    assert sum(delivery.count for delivery in told) == len(values)
    found = read_topic(real_kafka.bootstrap_servers, topic)
    assert [message.value for message in found if message.partition == 0] == values
    assert [message.value for message in found if message.partition == 1] == values[:4_000]
