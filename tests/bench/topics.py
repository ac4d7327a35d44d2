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
#: The configuration of a topic with short retention, so that 10 GB do not need 10 GB of disk.
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
    """Wait for the leaders: Metadata names them before they act as such, and clients react to that differently."""
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
    """Return the number of records ever written to *topic*, including those that retention has deleted."""
    return sum(high for _, high in _watermarks(bootstrap_servers, topic, partitions))


def records_in(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """Return the sum over all partitions of the offsets between their start and end."""
    return sum(high - low for low, high in _watermarks(bootstrap_servers, topic, partitions))


def await_records(bootstrap_servers: str, topic: str, partitions: int, least: int) -> int:
    """Return :func:`records_in` once there are *least*: a transaction's markers may be written after its commit."""
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
