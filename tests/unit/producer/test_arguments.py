"""Arguments of a wrong form are refused before anything is staged, and the error names the correct form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.common.errors import SerializationError

TOPIC = "orders"
ROWS = pa.table({"value": [b"a", b"b"]})


class Answering:
    """A user's serializer or partitioner that returns a wrong result."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def serialize(self, topic: str, headers: list[Any], data: Any) -> bytes:
        headers.append(self.answer)
        return b"v"

    def configure(self, *_: Any) -> None:
        pass

    def partition(self, *_: Any) -> Any:
        return self.answer

    partition_rows = partition


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic(TOPIC, partitions=4)
        yield running


@pytest.fixture(scope="module")
def producer(cluster: EmbeddedCluster) -> Iterator[KafkaProducer]:
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        yield made


@pytest.mark.behaviour("KafkaProducer", "Wrong arguments are raised at once")
@pytest.mark.parametrize("record", [None, b"abcdef", {"topic": TOPIC}, (TOPIC, b"v", None, None, None, ())])
def test_send_refuses_other_than_records_by_type(producer: KafkaProducer, record: Any) -> None:
    with pytest.raises(ValueError, match=f"send takes a topic, or a ProducerRecord, got {type(record).__name__}"):
        producer.send(record)


def test_uncallable_callback_is_refused_before_staging(producer: KafkaProducer) -> None:
    before = producer.metrics()["record-send-total"]
    for send in (
        lambda: producer.send(ProducerRecord(TOPIC, b"v"), on_delivery=5),  # type: ignore[arg-type]
        lambda: producer.send_columns(TOPIC, ROWS, on_delivery=5),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match="on_delivery must be a function of a Delivery, got int"):
            send()
    producer.flush(timeout=5)
    assert producer.metrics()["record-send-total"] == before


@pytest.mark.parametrize("rows", ["value", None, {"value": [b"a"]}, [b"a"], np.array([b"a"]), pa.array([b"a"])])
def test_send_columns_refuses_other_than_rows_by_type(producer: KafkaProducer, rows: Any) -> None:
    with pytest.raises(ValueError, match=f"must be a pyarrow Table or RecordBatch, got {type(rows).__name__}"):
        producer.send_columns(TOPIC, rows)


@pytest.mark.parametrize(
    "partitions", [[0, 1], 5, pa.array([0, 1]), np.array([0.5, 1]), np.array(["0", "1"]), np.array([[0], [1]])]
)
def test_partitions_that_are_no_array_of_integers_are_refused(producer: KafkaProducer, partitions: Any) -> None:
    with pytest.raises(ValueError, match="partitions must be a numpy array of integers"):
        producer.send_columns(TOPIC, ROWS, partitions)


@pytest.mark.behaviour("KafkaProducer", "Wrong arguments are raised at once")
@pytest.mark.parametrize("count", [0, 1, 3])
def test_partitions_that_are_not_as_many_as_the_rows_are_refused(producer: KafkaProducer, count: int) -> None:
    before = producer.metrics()["record-send-total"]
    with pytest.raises(ValueError, match=f"got {count} partitions for 2 rows"):
        producer.send_columns(TOPIC, ROWS, np.zeros(count, dtype=np.int32))
    producer.flush(timeout=5)
    assert producer.metrics()["record-send-total"] == before


@pytest.mark.behaviour("Interceptors and serializers", "Headers that a serializer adds are checked too")
@pytest.mark.parametrize("header", [5, ("a", 5), ("a", bytearray(b"x")), (b"a", b"x"), ("\ud800", b"x"), None])
def test_headers_that_a_serializer_adds_are_looked_at_too(cluster: EmbeddedCluster, header: Any) -> None:
    properties = {"bootstrap.servers": cluster.bootstrap_servers}
    with KafkaProducer(properties, value_serializer=Answering(header)) as producer:
        with pytest.raises(SerializationError, match="header 1"):
            producer.send(ProducerRecord(TOPIC, b"v", headers=[("own", b"x")]))
        assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]


def test_a_header_that_is_no_utf_8_is_refused_by_its_number(producer: KafkaProducer) -> None:
    with pytest.raises(SerializationError, match=r"header 0 .*cannot be written in UTF-8"):
        producer.send(ProducerRecord(TOPIC, b"v", headers=[("\ud800", b"x")]))
    assert producer.send(ProducerRecord(TOPIC, b"v", headers=[("é", b"x")])).result(60).offset >= 0


@pytest.mark.behaviour(
    "Interceptors and serializers", "A partition that does not exist is refused by the name of the partitioner"
)
@pytest.mark.parametrize("choice", [None, "1", 1.5, True])
def test_invalid_partition_is_refused_with_the_partitioners_name(cluster: EmbeddedCluster, choice: Any) -> None:
    properties = {"bootstrap.servers": cluster.bootstrap_servers}
    with (
        KafkaProducer(properties, partitioner=Answering(choice)) as producer,
        pytest.raises(ValueError, match=rf"Answering \(partitioner.class\) chose {type(choice).__name__}"),
    ):
        producer.send(ProducerRecord(TOPIC, b"v"))
