"""Reads topics with confluent-kafka (librdkafka): a client that we did not write judges what we wrote."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

_IDLE_LIMIT_S = 60.0
#: consume() waits this long for a full load, so it is short.
_LOAD_WAIT_S = 0.02

#: The broker answers a fetch at the end of a partition after this time, and only then the end is known. The embedded
#: broker has written the markers of a transaction when it answers its end; a real Kafka may need :data:`KAFKA_WAIT_MS`.
end_wait_ms = 10
KAFKA_WAIT_MS = 500


@dataclass(frozen=True)
class Message:
    """A record as the foreign client sees it; timestamp in ms."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_topic(bootstrap_servers: str, topic: str, *, isolation: str = "read_committed") -> list[Message]:
    """Every record of *topic* up to its end when called, partition by partition in offset order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "readback",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": end_wait_ms,
            "fetch.message.max.bytes": 8 * 1024 * 1024,
            "message.max.bytes": 16 * 1024 * 1024,
            "check.crcs": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        open_partitions = set(partitions)
        found: list[Message] = []
        deadline = time.monotonic() + _IDLE_LIMIT_S
        while open_partitions:
            messages = consumer.consume(10_000, timeout=_LOAD_WAIT_S)
            if messages:
                deadline = time.monotonic() + _IDLE_LIMIT_S
            elif time.monotonic() > deadline:
                raise AssertionError(f"{topic}: nothing arrived for {_IDLE_LIMIT_S} s, {len(found)} records until then")
            for message in messages:
                error = message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise AssertionError(f"{topic}: {error}")
                    open_partitions.discard(partition)
                    continue
                assert offset is not None
                # The consumer has no deserializers, so all of it is bytes.
                headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                found.append(
                    Message(partition, offset, message.timestamp()[1], message.key(), message.value(), tuple(headers))
                )
        return sorted(found, key=lambda message: (message.partition, message.offset))
    finally:
        consumer.close()


def read_values(bootstrap_servers: str, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
    """The value of every record of *topic*, of which none may be null."""
    values: list[bytes] = []
    for message in read_topic(bootstrap_servers, topic, isolation=isolation):
        assert message.value is not None, message
        values.append(message.value)
    return values
