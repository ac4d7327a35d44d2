"""Kafka's hash of a record key, which decides its partition.

Called by the producer's partitioner on the task's thread. It must never differ by a bit from the Java client's: rows of
one key would land in two partitions when producers are mixed.

Source: apache/kafka ``Utils.murmur2`` and ``BuiltInPartitioner``.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafka_sink.records.binary_column import BinaryColumn

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFF_FFFF
#: Keys are mixed by so many bytes at a time: nearly all are shorter.
_STEP_BYTES: Final = 64
# _TAIL_MASKS[n] keeps the first n bytes of a little-endian word.
_TAIL_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFF_FFFF], dtype=np.uint32)

UInt32s: TypeAlias = NDArray[np.uint32]


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


def murmur2_array(column: BinaryColumn) -> NDArray[np.int32]:
    """:func:`murmur2` of every row of *column*, int32[n]; what stands for a null row is the hash of no bytes."""
    h = column.lengths.astype(np.uint32)
    h ^= np.uint32(_SEED)
    _mix_step(h, column)
    for start in range(_STEP_BYTES, column.max_length, _STEP_BYTES):
        # Few keys are that long: from here on only they are touched.
        rows = np.flatnonzero(column.lengths > start)
        part = h[rows]
        _mix_step(part, column.take(rows).without_first(start))
        h[rows] = part
    h ^= h >> np.uint32(13)
    h *= np.uint32(_M)
    h ^= h >> np.uint32(15)
    return h.view(np.int32)


def _mix_step(h: UInt32s, column: BinaryColumn) -> None:
    """Mix the first 64 bytes of each row into *h*; rows that end there are finished with their last one to three."""
    lengths = column.lengths
    width = min(-(-column.max_length // 4) * 4, _STEP_BYTES)
    words = column.windows(width).view("<u4")
    for block in range(width // 4):
        end = 4 * (block + 1)
        if end <= column.min_length:
            _mix_word(h, words[:, block])
        elif end <= column.max_length:
            mixed = h.copy()
            _mix_word(mixed, words[:, block])
            np.copyto(h, mixed, where=lengths >= end)
    if column.min_length == column.max_length and column.max_length % 4 == 0:
        return
    rows = np.flatnonzero((lengths < _STEP_BYTES) & (lengths & 3 != 0))
    ends = lengths[rows]
    tail = h[rows]
    tail ^= words[rows, ends >> 2] & _TAIL_MASKS[ends & 3]
    tail *= np.uint32(_M)
    h[rows] = tail


def _mix_word(h: UInt32s, word: UInt32s) -> None:
    k = word * np.uint32(_M)
    k ^= k >> np.uint32(_R)
    k *= np.uint32(_M)
    h *= np.uint32(_M)
    h ^= k
