"""A partitioner is called only for rows without a partition, as Kafka's Java client calls it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kafka_sink import EmbeddedCluster, KafkaProducer
from tests.support.readback import read_topic


class OfKey:
    """The first byte of the key is the partition, so every row for which it is called must have a key."""

    def partition(self, topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, cluster: Any) -> int:
        return int(key[0])


def test_round_robin_takes_turns_with_rows_without_a_partition() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("rows", 2)
        servers = cluster.bootstrap_servers
        with KafkaProducer({"bootstrap.servers": servers, "partitioner.class": "round-robin"}) as producer:
            values = [b"fixed", b"free"] * 10
            partitions = pa.array([0, None] * 10, pa.int32())
            producer.send_columns("rows", pa.record_batch({"value": pa.array(values), "partition": partitions}))
        free = [message.partition for message in read_topic(servers, "rows") if message.value == b"free"]
        assert (free.count(0), free.count(1)) == (5, 5)


def test_a_partitioner_is_not_asked_for_a_row_with_a_partition() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("rows", 2)
        servers = cluster.bootstrap_servers
        with KafkaProducer({"bootstrap.servers": servers, "partitioner.class": OfKey()}) as producer:
            keys, values = pa.array([None, b"\x00", b"\x01"], pa.binary()), pa.array([b"a", b"b", b"c"])
            partitions = pa.array([1, None, None], pa.int32())
            rows = pa.record_batch({"key": keys, "value": values, "partition": partitions})
            producer.send_columns("rows", rows).result()
        assert [(message.partition, message.value) for message in read_topic(servers, "rows")] == [
            (0, b"b"),
            (1, b"a"),
            (1, b"c"),
        ]
