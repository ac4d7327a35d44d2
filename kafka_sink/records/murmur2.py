"""Kafka's hash of a record key, which decides its partition.

Called by the producer's partitioner on the task's thread. It must never differ by a bit from the Java client's: rows of
one key would land in two partitions when producers are mixed.

Source: apache/kafka ``Utils.murmur2`` and ``BuiltInPartitioner``.
"""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 of *data* as the signed number that Java shows."""
    length = len(data)
    whole = length >> 2
    h = _SEED ^ length
    for k in struct.unpack_from(f"<{whole}I", data):
        k = (k * _M) & _MASK
        k ^= k >> _R
        h = ((h * _M) ^ (k * _M)) & _MASK
    tail = data[whole << 2 :]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def to_positive(hash_value: int) -> int:
    """*hash_value* without its sign bit (not its absolute value), as Kafka does before the modulo."""
    return hash_value & 0x7FFF_FFFF
