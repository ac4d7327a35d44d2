"""An answer to a fetch that is full in the middle of a partition's first batch has nothing of that partition."""

from __future__ import annotations

import pytest

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.consumer.log_reader import LogReader
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord

PARTITIONS, RECORDS = 8, 3


@pytest.mark.parametrize("most_bytes", [1_100, 1_200, 3_000])
def test_no_answer_has_a_part_of_a_batch_alone(most_bytes: int) -> None:
    """Java's consumer fails by one: "Failed to make progress reading messages"."""
    with EmbeddedCluster(nodes=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", PARTITIONS)
        for _ in range(RECORDS):
            with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
                for number in range(PARTITIONS):
                    producer.send(ProducerRecord("t", b"x" * 1_000, partition=number))
        limits = {"bootstrap.servers": cluster.bootstrap_servers, "fetch.max.bytes": most_bytes}
        with LogReader(limits) as reader:
            found = sorted((record.partition, record.offset) for record in reader.read("t"))
    assert found == [(number, offset) for number in range(PARTITIONS) for offset in range(RECORDS)]
