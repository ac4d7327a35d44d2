"""The same records go to a compacted topic of a real Kafka and of the embedded broker: both compactions keep the same
records, batch by batch."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as LibrdkafkaAdmin
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.model import TopicPartition
from kafka_sink.records.reader import Record, read_batches
from tests.compat.kafka_version import requires_kafka
from tests.support.real_kafka import RealKafka

pytestmark = requires_kafka("3.6", "limits of timestamps in the past and in the future (KIP-937)")
TIMEOUT_S = 20
PLACE = TopicPartition("compacted", 0)
SETTINGS = {
    "cleanup.policy": "compact",
    # A segment rolls after some minutes of the records' timestamps.
    "segment.ms": "300000",
    "min.cleanable.dirty.ratio": "0",
    # The timestamps are in the future, so any lag prevents the compaction.
    "min.compaction.lag.ms": "1",
    "delete.retention.ms": "86400000",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


class Batch(NamedTuple):
    """The remains of a batch after compaction, without markers' timestamps and delete horizons, which vary by clock."""

    first_offset: int
    last_offset: int
    producer_epoch: int
    base_sequence: int
    codec: int
    is_dated: bool
    is_control: bool
    records: list[Record]


def fill(admin: AdminClient, address: str, start_ms: int) -> None:
    """Write records of an idempotent producer, and of committed and aborted transactions, 20 s after one another."""
    chance, end = random.Random(5), 0
    # The linger makes each flush one batch.
    common = {"bootstrap.servers": address, "linger.ms": 30_000, "compression.codec": "lz4"}
    plain = Producer({**common, "enable.idempotence": True})
    transactional = Producer({**common, "transactional.id": "compacted"})
    transactional.init_transactions(TIMEOUT_S)
    for number in range(70):
        writer = transactional if number % 3 else plain
        if writer is transactional:
            writer.begin_transaction()
        count = chance.randint(1, 5)
        for row in range(count):
            key, is_tombstone = b"k%d" % chance.randrange(12), chance.random() < 0.35
            value = None if is_tombstone else b"%d" % chance.randrange(10**6)
            writer.produce(PLACE.topic, value, key, partition=0, timestamp=start_ms + number * 20_000 + row)
        assert writer.flush(TIMEOUT_S) == 0
        end += count
        if writer is transactional:
            writer.abort_transaction(TIMEOUT_S) if chance.random() < 0.4 else writer.commit_transaction(TIMEOUT_S)
            end += 1
        # Kafka responds before it has written the marker.
        while admin.offsets([PLACE])[PLACE] < end:
            continue


def batches_in(directory: Path) -> list[Batch]:
    """Return the batches in the segments, except empty ones without a producer id, which only preserve offsets."""
    found = []
    for path in sorted(directory.glob("*.log")):
        for batch in read_batches(path.read_bytes()):
            assert batch.verify_crc()
            header, is_dated = batch.header, batch.header.delete_horizon_ms is not None
            records = [record._replace(timestamp=0) if batch.is_control else record for record in batch.records()]
            if records or header.has_producer_id:
                sequence = header.producer_epoch, header.base_sequence, header.compression
                found.append(
                    Batch(header.base_offset, header.last_offset, *sequence, is_dated, batch.is_control, records)
                )
    return found


def is_compacted(batches: list[Batch]) -> bool:
    """Of more than 200 records, compaction keeps the last ones of 12 keys and those in the active segment."""
    return any(batch.is_dated for batch in batches) and sum(len(batch.records) for batch in batches) < 120


@pytest.mark.behaviour("Compaction", "What a compaction leaves is what Kafka's leaves, batch by batch")
def test_the_same_batches_are_left_as_in_kafka(real_kafka: RealKafka, tmp_path: Path) -> None:
    often = ConfigEntry("log.cleaner.backoff.ms", "50", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[often])
    brokers = LibrdkafkaAdmin({"bootstrap.servers": real_kafka.bootstrap_servers})
    (changed,) = brokers.incremental_alter_configs([broker]).values()
    changed.result(TIMEOUT_S)
    start_ms = SYSTEM_CLOCK.wall_ms() + 3_600_000
    with EmbeddedCluster(data_dir=tmp_path, config=BrokerConfig(log_cleaner_backoff_ms=50)) as embedded:
        for address in (real_kafka.bootstrap_servers, embedded.bootstrap_servers):
            with AdminClient(address) as admin:
                admin.create_topic(PLACE.topic, 1, configs=SETTINGS)
                fill(admin, address, start_ms)
                # All records are written before the first compaction.
                admin.alter_topic_configs(PLACE.topic, {"min.compaction.lag.ms": "0"})
        kafka, ours = real_kafka.partition_directory(*PLACE), tmp_path / "logs" / str(PLACE)
        deadline = SYSTEM_CLOCK.monotonic_ms() + 60_000
        of_kafka: list[Batch] = []
        left: list[Batch] = []
        while not (is_compacted(left) and of_kafka == left) and SYSTEM_CLOCK.monotonic_ms() < deadline:
            # Compaction may replace a segment during the read.
            with suppress(FileNotFoundError):
                of_kafka, left = batches_in(kafka), batches_in(ours)
        assert is_compacted(left)
        assert of_kafka == left
