"""Kafka's hash of a record key, which determines its partition.

The producer's partitioner calls it on the task's thread. It must equal the Java client's hash in every bit; otherwise
rows with one key would go to two partitions when both clients are used.

Source: apache/kafka ``Utils.murmur2`` and ``BuiltInPartitioner``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import BinaryColumn, Int64s

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFF_FFFF
#: How many bytes of the keys are processed at a time; nearly all keys are shorter.
_STEP_BYTES: Final = 64
# _TAIL_MASKS[n] keeps the first n bytes of a little-endian word.
_TAIL_MASKS: Final = np.array([0, 0xFF, 0xFFFF, 0xFF_FFFF], dtype=np.uint32)

#: Prepared for common key lengths: the unpacker for each number of whole words.
_UNPACKERS: Final = 17
_WORDS: Final = tuple(struct.Struct(f"<{words}I").unpack_from for words in range(_UNPACKERS))

_UINT8_MAX: Final = 0xFF
_UINT16_MAX: Final = 0xFFFF

UInt32s: TypeAlias = NDArray[np.uint32]


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 of *data* as a signed number, like Java's."""
    h = _murmur2(data)
    return h - (1 << 32) if h >> 31 else h


def positive_murmur2(data: bytes) -> int:
    """:func:`murmur2` without its sign bit (:func:`to_positive`), which is needed once per record."""
    return _murmur2(data) & 0x7FFF_FFFF


#: Up to this size the hashes of keys are kept: keys return, and a hash in Python takes a third of a record's time.
KEPT_KEY_BYTES: Final = 64
kept_positive_murmur2: Final = lru_cache(maxsize=16_384)(positive_murmur2)


def _murmur2(data: bytes) -> int:
    length = len(data)
    whole = length >> 2
    words = _WORDS[whole] if whole < _UNPACKERS else struct.Struct(f"<{whole}I").unpack_from
    h = _SEED ^ length
    for k in words(data):
        k = (k * _M) & _MASK
        h = ((h * _M) ^ ((k ^ (k >> _R)) * _M)) & _MASK
    if length & 3:
        h = ((h ^ int.from_bytes(data[whole << 2 :], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def to_positive(hash_value: int) -> int:
    """*hash_value* without its sign bit (not its absolute value), as in Kafka before the modulo."""
    return hash_value & 0x7FFF_FFFF


def murmur2_array(column: BinaryColumn) -> NDArray[np.int32]:
    """:func:`murmur2` of every row of *column*, int32[n]; for a null row the hash of zero bytes."""
    if column.min_length == column.max_length:
        return _hash_longest_first(column)
    # Longest first: the rows that still have bytes are always at the front, and no pass touches the others. numpy sorts
    # numbers of up to 16 bits by counting, which is much faster than by comparison.
    longest = column.max_length
    narrow = np.uint8 if longest <= _UINT8_MAX else np.uint16 if longest <= _UINT16_MAX else np.uint32
    order = np.argsort((longest - column.lengths).astype(narrow), kind="stable")
    hashes = np.empty(len(column), dtype=np.int32)
    hashes[order] = _hash_longest_first(column.take(order))
    return hashes


def _hash_longest_first(column: BinaryColumn) -> NDArray[np.int32]:
    lengths = column.lengths
    h = lengths.astype(np.uint32)
    h ^= np.uint32(_SEED)
    for start in range(0, column.max_length, _STEP_BYTES):
        width = min(-(-(column.max_length - start) // 4) * 4, _STEP_BYTES)
        ends = range(start + 4, start + width + 1, 4)
        reached, *complete = _count_at_least(column, [start + 1, *ends])
        words = column.slice(0, reached).windows(width, start).view("<u4")
        for block, rows in enumerate(complete):
            _mix(h[:rows], words[:rows, block])
        _mix_tails(h[:reached], words, lengths[:reached] - start)
    h ^= h >> np.uint32(13)
    h *= np.uint32(_M)
    h ^= h >> np.uint32(15)
    return h.view(np.int32)


def _count_at_least(column: BinaryColumn, bounds: list[int]) -> list[int]:
    """How many rows are at least as long as each of *bounds*, for rows in descending order of length."""
    if column.min_length == column.max_length:
        return [len(column) if bound <= column.max_length else 0 for bound in bounds]
    counts: list[int] = (len(column) - np.searchsorted(column.lengths[::-1], bounds)).tolist()
    return counts


def _mix(h: UInt32s, word: UInt32s) -> None:
    k = word * np.uint32(_M)
    k ^= k >> np.uint32(_R)
    k *= np.uint32(_M)
    h *= np.uint32(_M)
    h ^= k


def _mix_tails(h: UInt32s, words: UInt32s, lengths: Int64s) -> None:
    """Mix in the one to three bytes after the last whole word of the rows that end within *words*."""
    tails = lengths & 3
    if not tails.any():
        return
    rows, columns = words.shape
    blocks = lengths >> 2
    places = np.minimum(blocks, columns - 1) + np.arange(0, rows * columns, columns)
    mixed = words.reshape(-1).take(places)
    mixed &= _TAIL_MASKS.take(tails)
    mixed ^= h
    mixed *= np.uint32(_M)
    h[:] = np.where((tails != 0) & (blocks < columns), mixed, h)
