"""Megabytes over TLS: slots, small memory, expiring sessions, and a slow reader."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.support.certificates import Authority
from tests.support.readback import read_topic
from tests.support.secure_cluster import PASSWORD, address, client_properties, secure_cluster
from tests.support.sessions import renew_early, warnings_but_of_one_late_renewal

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("127.0.0.1", "localhost")
TRUSTED = {"ssl_truststore_certificates": AUTHORITY.pem}
PARTITIONS = 3
RECORDS = 5_000
VALUE_BYTES = 1000
MEMORY_BYTES = 4_000_000
#: Less than the size of a request, so that TLS buffers the bytes that the socket does not accept.
SEND_BUFFER_BYTES = 16_384


@pytest.fixture
def cluster(caplog: pytest.LogCaptureFixture) -> Iterator[EmbeddedCluster]:
    caplog.set_level(logging.DEBUG, "kafka_sink.broker.network.processor")
    with secure_cluster(BROKER.pem(), connections_max_reauth_ms=3000) as running:
        running.create_topic("load", PARTITIONS)
        yield running


def value(number: int) -> bytes:
    return b"%d " % number + b"x" * VALUE_BYTES


def send_one_by_one(producer: KafkaProducer, numbers: range) -> None:
    futures = [
        producer.send(ProducerRecord("load", value(number), partition=number % PARTITIONS)) for number in numbers
    ]
    producer.flush()
    for future in futures:
        future.result(0)


def send_by_columns(producer: KafkaProducer, numbers: range) -> None:
    rows = {"value": [value(number) for number in numbers], "partition": np.array(numbers, np.int32) % PARTITIONS}
    future = producer.send_columns("load", pa.table(rows))
    producer.flush()
    assert sum(delivery.count for delivery in future.result(0)) == len(numbers)


@pytest.mark.behaviour(
    "TLS under load", "Megabytes of records and columns arrive whole and in order, with sessions that are renewed"
)
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_load_over_tls_arrives_whole_and_in_order(
    cluster: EmbeddedCluster, protocol: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sasl = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "alice", "sasl_password": PASSWORD}
    sessions = renew_early(monkeypatch)
    limits = {"buffer_memory": MEMORY_BYTES, "send_buffer_bytes": SEND_BUFFER_BYTES}
    patience = {"max_block_ms": 60_000, "delivery_timeout_ms": 60_000}
    properties = client_properties(
        cluster, protocol, **limits, **patience, **TRUSTED, **(sasl if protocol == "SASL_SSL" else {})
    )
    sent = 0
    with KafkaProducer(properties) as producer:
        # The first two sessions are those of the bootstrap address and of the node.
        while sent < 20_000 or (protocol == "SASL_SSL" and len(sessions) < 5):
            send_one_by_one(producer, range(sent, sent + RECORDS))
            send_by_columns(producer, range(sent + RECORDS, sent + 2 * RECORDS))
            sent += 2 * RECORDS
        # A busy machine may stall for as long as one session lasts.
        assert producer.metrics()["connection-close-total"] <= (protocol == "SASL_SSL")
    messages = read_topic(cluster.bootstrap_servers, "load")
    numbers: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for message in messages:
        assert message.value is not None
        number, _, rest = message.value.partition(b" ")
        assert len(rest) == VALUE_BYTES
        numbers[message.partition].append(int(number))
    assert numbers == {partition: list(range(partition, sent, PARTITIONS)) for partition in range(PARTITIONS)}
    assert warnings_but_of_one_late_renewal(caplog) == []


@pytest.mark.behaviour("TLS under load", "A slow reader gets large responses")
def test_large_responses_reach_a_reader_that_is_slow(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        send_by_columns(producer, range(RECORDS))
    consumer = Consumer(
        {
            "bootstrap.servers": address(cluster, "SSL"),
            "security.protocol": "SSL",
            "ssl.ca.pem": AUTHORITY.pem,
            "group.id": "slow",
            "enable.auto.commit": False,
            # Responses of megabytes through a window of a few kilobytes: TLS buffers bytes that do not fit.
            "socket.receive.buffer.bytes": 4096,
            "fetch.message.max.bytes": 4 * 1024 * 1024,
            "queued.max.messages.kbytes": 1024,
            "check.crcs": True,
        }
    )
    found: Counter[int] = Counter()
    try:
        consumer.assign([TopicPartition("load", number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        while found.total() < RECORDS:
            messages = consumer.consume(500, timeout=30)
            assert messages
            for message in messages:
                assert message.error() is None
                found[int((message.value() or b"").partition(b" ")[0])] += 1
    finally:
        consumer.close()
    assert found == Counter(range(RECORDS))
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []
