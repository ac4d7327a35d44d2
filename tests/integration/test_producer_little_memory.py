"""Large batches that begin small and grow, in memory that is little for them: everything arrives, once and in order.

KAFKALITE_LITTLE_MEMORY sets how many records are sent to topics of how many partitions ("5000x1,30,200").
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.producer.futures import Delivery
from tests.conftest import Figure
from tests.support import amounts
from tests.support.readback import read_topic

_COUNT, _PARTITIONS = amounts.LITTLE_MEMORY.split("x")
RECORDS = int(_COUNT)
PADDING = b"." * 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


def send(cluster: EmbeddedCluster, topic: str, partitions: int, **properties: int) -> tuple[float, list[Delivery]]:
    """Seconds that it took, and what was told."""
    told: list[Delivery] = []
    given = {name.replace("_", "."): value for name, value in properties.items()}
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, **given}) as producer:
        producer.partitions_for(topic)
        began = time.monotonic()
        for number in range(RECORDS):
            value = b"%d %b" % (number, PADDING)
            producer.send(ProducerRecord(topic, value, partition=number % partitions), on_delivery=told.append)
        producer.flush(timeout=120)
        return time.monotonic() - began, told


@pytest.mark.behaviour(
    "Faults: errors of records", "Large batches in little memory carry every record once and in order"
)
@pytest.mark.parametrize("partitions", [int(count) for count in _PARTITIONS.split(",")])
def test_large_batches_in_little_memory_carry_everything(
    partitions: int, cluster: EmbeddedCluster, figure: Figure
) -> None:
    cluster.create_topic(f"default-{partitions}", partitions)
    by_default, _ = send(cluster, f"default-{partitions}", partitions)
    figure(f"{partitions} partition(s), producer's defaults", f"{RECORDS / by_default:,.0f} records/s")
    for memory_mib in (1, 4):
        topic = f"t-{partitions}-{memory_mib}"
        cluster.create_topic(topic, partitions)
        took, told = send(
            cluster, topic, partitions, batch_size=512 * 1024, linger_ms=100, buffer_memory=memory_mib * 1024 * 1024
        )
        figure(f"{memory_mib} MiB", f"{RECORDS / took:,.0f} records/s")
        assert [delivery.error for delivery in told if delivery.error is not None] == []
        found = [int((message.value or b"").split()[0]) for message in read_topic(cluster.bootstrap_servers, topic)]
        # Partition by partition, in the order sent.
        assert found == [number for first in range(partitions) for number in range(first, RECORDS, partitions)]
