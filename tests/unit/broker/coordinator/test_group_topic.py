"""Groups are mapped to the same partitions of the offsets topic as in Kafka."""

from __future__ import annotations

from kafka_sink.broker.coordinator.transaction_markers import offsets_partition
from tests.support.cases import with_each


# The numbers are the JVM's results of Math.abs(group.hashCode()) % 50, and 0 for Integer.MIN_VALUE.
@with_each(
    ("group", "partition"),
    [
        ("", 0),
        ("g", 3),
        ("readers", 28),
        ("console-consumer-1", 24),
        ("Größe", 35),
        ("\U0001f600", 49),
        ("polygenelubricants", 0),
    ],
)
def test_the_partition_is_kafkas(group: str, partition: int) -> None:
    assert offsets_partition(group) == partition
