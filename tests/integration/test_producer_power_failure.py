"""Our producer, the embedded broker, and a disk that forgets what was not flushed: what acknowledged records are worth.

KAFKALITE_POWER_FAILURES sets how often the power fails.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.producer.futures import Delivery
from tests.conftest import Figure
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.support import amounts
from tests.support.ordered_load import OrderedLoad
from tests.support.readback import Message, read_topic

POWER_FAILURES = amounts.POWER_FAILURES
RECORDS = 5_000


class CountedLoad(OrderedLoad):
    """Also notes where each acknowledged record is."""

    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        super().__init__(producer, topic)
        self.places: set[tuple[int, int]] = set()

    def _told(self, delivery: Delivery) -> None:
        super()._told(delivery)
        assert delivery.error is None
        partition = delivery.topic_partition.partition
        self.places.update((partition, delivery.base_offset + number) for number in range(delivery.count))


@pytest.mark.behaviour(
    "Faults: disk and power",
    "A power failure behind an acknowledgement loses what no flush had reached, and nothing that one had",
)
@pytest.mark.parametrize("is_flushed", [True, False], ids=["log.flush.interval.messages=1", "default"])
def test_a_power_failure_behind_an_acknowledgement(is_flushed: bool, tmp_path: Path, figure: Figure) -> None:
    config = replace(BrokerConfig(), log_flush_interval_messages=1) if is_flushed else BrokerConfig()
    acknowledged = lost = 0
    for number in range(POWER_FAILURES):
        disk = MemoryFileSystem()
        data_dir = tmp_path / str(number)
        data_dir.mkdir()
        with EmbeddedCluster(data_dir=data_dir, filesystem=disk, config=config) as cluster:
            cluster.create_topic("t", partitions=3)
            with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 2_000}) as producer:
                load = CountedLoad(producer, "t")
                for _ in range(20):
                    load.send(RECORDS // 20)
                producer.flush(timeout=30)
            # Before the cluster stops: it would flush everything then.
            after_failure = disk.clone()
        after_failure.lose_unflushed()
        with EmbeddedCluster(data_dir=data_dir, filesystem=after_failure, config=config) as cluster:
            found = read_topic(cluster.bootstrap_servers, "t")
        there = {(message.partition, message.offset) for message in found}
        acknowledged += len(load.places)
        lost += len(load.places - there)
        verdict = load.judge(found)
        assert (verdict.duplicates, verdict.out_of_order, verdict.foreign) == (0, 0, 0)
        assert is_prefix(found), "what is lost is the end, and leaves no hole"
    figure("power failures", POWER_FAILURES)
    figure("acknowledged rows lost", f"{lost} of {acknowledged}")
    assert acknowledged == POWER_FAILURES * RECORDS
    assert (lost == 0) if is_flushed else lost > 0


def is_prefix(found: list[Message]) -> bool:
    partitions = itertools.groupby(found, lambda message: message.partition)
    offsets = ([message.offset for message in messages] for _, messages in partitions)
    return all(of_one == list(range(len(of_one))) for of_one in offsets)
