"""Partitioners for ``partitioner.class``: those of Kafka, and the calls of custom partitioners.

A partitioner has ``partition(topic, key, key_bytes, value, value_bytes, cluster)`` for one record; one that computes
arrays has ``partition_rows(topic, chunk, sizes, cluster)``, too, where *sizes* int64[rows] are the bytes of key, value
and headers. Several calling threads may use it at once. Records with a key go to the same partition as with Kafka's
Java client, so that both clients can share a topic: the hash of a key, murmur2, must equal the Java client's in every
bit.

Source: apache/kafka ``Utils.murmur2`` and ``BuiltInPartitioner``.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.columns.binary_column import BinaryColumn, Int64s
from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.plugins import name_of

#: The overhead of a record in most batches, bytes: length, attributes and two deltas. If the estimate is slightly too
#: high, batches are not quite full; if it is too low, the rest of every batch is sent as a tiny batch.
_RECORD_OVERHEAD_BYTES = 7


class RoundRobinPartitioner:
    """Sends each record to the next partition that has a leader, regardless of its key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: Cluster
    ) -> int:
        return int(self._take_turns(topic, 1, cluster)[0])

    def partition_rows(
        self, topic: str, chunk: ColumnChunk, sizes: NDArray[np.int64], cluster: Cluster
    ) -> NDArray[np.int32]:
        return self._take_turns(topic, chunk.num_rows, cluster)

    def _take_turns(self, topic: str, count: int, cluster: Cluster) -> NDArray[np.int32]:
        with self._lock:
            first = self._next.get(topic, 0)
            self._next[topic] = first + count
        available = [info.partition for info in cluster.available_partitions(topic)]
        choices = np.array(available or range(partition_count(topic, cluster)), dtype=np.int32)
        return choices[(first + np.arange(count)) % len(choices)]


_JAVA: Final = "org.apache.kafka.clients.producer."

#: Removed in Kafka 4.0; since 3.3 the partitioner without a name has replaced it (KIP-794).
FORMER_DEFAULT: Final = _JAVA + "internals.DefaultPartitioner"

BUILT_IN: Final[Mapping[str, type[RoundRobinPartitioner]]] = {
    "round-robin": RoundRobinPartitioner,
    _JAVA + "RoundRobinPartitioner": RoundRobinPartitioner,
}


def partition_count(topic: str, cluster: Cluster) -> int:
    count = cluster.partition_count(topic)
    if not count:
        raise RuntimeError(f"the partitions of topic {topic} must be known before one is chosen for a record")
    return count


def key_partitions(key: BinaryColumn, count: int) -> NDArray[np.int32]:
    """The partition of each row by its key, of *count* partitions, as Kafka's Java client computes it; arbitrary for
    null rows."""
    hashes = murmur2_array(key)
    partitions: NDArray[np.int32] = (hashes & np.int32(0x7FFFFFFF)) % np.int32(count)
    return partitions


def cut_turns(sizes: NDArray[np.int64], turn_bytes: int, filled: int) -> tuple[list[int], int]:
    """Split rows into turns of at most *turn_bytes*, the first of which already has *filled* bytes.

    :returns: the number of rows of each turn, and the bytes of the last one.
    """
    ends = np.cumsum(sizes + _RECORD_OVERHEAD_BYTES)
    lengths: list[int] = []
    start = before = 0
    while True:
        end = int(np.searchsorted(ends, before + turn_bytes - filled, side="right"))
        if end == start and not filled:
            # A row that is larger than a batch gets a batch that holds only this row.
            end = start + 1
        lengths.append(end - start)
        if end >= len(sizes):
            return lengths, filled + int(ends[-1]) - before
        start, filled = end, 0
        before = int(ends[start - 1]) if start else 0


def row_by_row(partitioner: Any, topic: str, chunk: ColumnChunk, cluster: Cluster) -> NDArray[np.int32]:
    """The partition that *partitioner* chooses for each row of *chunk*, called as for a record: keys and values are
    bytes.

    :raises ValueError: if it returned something that is not a partition of *topic*.
    """
    chosen = np.empty(chunk.num_rows, dtype=np.int32)
    for row in range(chunk.num_rows):
        key = None if chunk.key is None else chunk.key.value(row)
        value = chunk.value.value(row)
        choice = partitioner.partition(topic, key, key, value, value, cluster)
        check_choice(partitioner, topic, choice, cluster)
        chosen[row] = choice
    return chosen


def check_choice(partitioner: Any, topic: str, partition: Any, cluster: Cluster) -> None:
    """:raises ValueError: if *partition*, the result of *partitioner*, is not an int or not a partition of *topic*."""
    count = cluster.partition_count(topic) or 0
    if not isinstance(partition, int | np.integer) or isinstance(partition, bool):
        raise ValueError(
            f"{name_of(partitioner)} (partitioner.class) chose {type(partition).__name__} ({partition!r:.50}) for "
            f"topic {topic}; a partitioner must return an int from 0 to {count - 1}"
        )
    if not 0 <= partition < count:
        raise ValueError(
            f"{name_of(partitioner)} (partitioner.class) chose partition {partition} of topic {topic}, which has "
            f"{count} partitions"
        )


def check_choices(partitioner: Any, topic: str, partitions: Any, rows: int) -> None:
    """:raises ValueError: if *partitions* is not one partition for each of *rows* rows, because rows would be lost."""
    if not (
        isinstance(partitions, np.ndarray)
        and partitions.shape == (rows,)
        and np.issubdtype(partitions.dtype, np.integer)
    ):
        choice = (
            f"{partitions.dtype}{list(partitions.shape)}"
            if isinstance(partitions, np.ndarray)
            else f"{partitions!r:.50}"
        )
        raise ValueError(
            f"{name_of(partitioner)} (partitioner.class) chose {choice} for {rows} rows of topic {topic}; "
            "partition_rows must return int32[rows]"
        )


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


def positive_murmur2(data: bytes) -> int:
    """:func:`murmur2` without its sign bit (not its absolute value), as in Kafka before the modulo; needed once per
    record."""
    return murmur2(data) & 0x7FFF_FFFF


#: Up to this size the hashes of keys are kept: keys return, and a hash in Python takes a third of a record's time.
KEPT_KEY_BYTES: Final = 64
kept_positive_murmur2: Final = lru_cache(maxsize=16_384)(positive_murmur2)


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 of *data* as an unsigned number; Java's is signed."""
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


def murmur2_array(column: BinaryColumn) -> NDArray[np.int32]:
    """:func:`murmur2` of every row of *column* as a signed number, int32[n]; for a null row the hash of zero bytes."""
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
    positions = np.minimum(blocks, columns - 1) + np.arange(0, rows * columns, columns)
    mixed = words.reshape(-1).take(positions)
    mixed &= _TAIL_MASKS.take(tails)
    mixed ^= h
    mixed *= np.uint32(_M)
    h[:] = np.where((tails != 0) & (blocks < columns), mixed, h)
