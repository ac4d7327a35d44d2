"""Topics of a benchmark: created for one run, counted with another project's client, and deleted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 60.0
#: Of a topic that forgets quickly: 10 GB shall not need 10 GB of disk.
SMALL_LOG: Final[Mapping[str, str]] = {"segment.bytes": str(64 << 20), "retention.bytes": str(256 << 20)}


@contextmanager
def fresh_topic(
    bootstrap_servers: str, partitions: int, configs: Mapping[str, str] | None = None, replication_factor: int = 1
) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    topic = f"bench-{uuid.uuid4().hex}"
    new = NewTopic(topic, partitions, replication_factor, config=dict(configs or {}))
    admin.create_topics([new])[topic].result(WAIT_S)
    _await_leaders(bootstrap_servers, topic, partitions)
    try:
        yield topic
    finally:
        admin.delete_topics([topic])[topic].result(WAIT_S)


def _await_leaders(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Metadata names leaders before they know of it, and clients differ in what they make of that: no run begins so."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            end_offsets(bootstrap_servers, topic, partitions)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def end_offsets(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """Records that were ever written to *topic*, whether retention has left them there or not."""
    return sum(high for _, high in _watermarks(bootstrap_servers, topic, partitions))


def records_in(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """Offsets between the ends of every partition, added up."""
    return sum(high - low for low, high in _watermarks(bootstrap_servers, topic, partitions))


def await_records(bootstrap_servers: str, topic: str, partitions: int, least: int) -> int:
    """:func:`records_in`, once there are *least*: a committed transaction's markers may come a moment after its end."""
    deadline = time.monotonic() + WAIT_S
    while (found := records_in(bootstrap_servers, topic, partitions)) < least and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _watermarks(bootstrap_servers: str, topic: str, partitions: int) -> list[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench", "log_level": 3})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WAIT_S)
            for number in range(partitions)
        ]
    finally:
        consumer.close()
