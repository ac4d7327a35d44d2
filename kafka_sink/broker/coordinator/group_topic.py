"""The partition of ``__consumer_offsets`` in which Kafka would store a group.

The topic does not exist in this broker, but a transaction that commits offsets has that partition as a participant.

Source: apache/kafka ``GroupCoordinatorService.partitionFor``, ``String.hashCode``, ``Utils.abs``.
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
#: Kafka's default of offsets.topic.num.partitions, which is hardly ever changed.
OFFSETS_PARTITIONS: Final = 50


def offsets_partition(group_id: str) -> int:
    """The partition of :data:`OFFSETS_TOPIC` for the offsets of *group_id*."""
    code = 0
    units = group_id.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    # The absolute value of Java's smallest int is not an int; Kafka uses 0 for it.
    return abs(signed) % OFFSETS_PARTITIONS if signed != -(1 << 31) else 0
