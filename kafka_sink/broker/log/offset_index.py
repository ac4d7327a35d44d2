"""Sparse index of one segment: offset → position, timestamp → position, leader epoch → first offset.

Owned by its segment and guarded by the partition's lock. Correctness must not depend on it: it only determines where a
scan of batch headers begins, and it can always be rebuilt from the segment.

On disk an index file is also the *seal* of its segment: it is written only after the segment's bytes were flushed, and
stores the number of bytes that it covers. Bytes beyond that (or a segment without a valid index file) are verified
batch by batch when the log is opened.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from kafka_sink.common.model import NO_TIMESTAMP

_MAGIC: Final = b"KLX2"
# magic, CRC-32C of all following bytes; sealed bytes, next offset, largest timestamp, its offset, number of entries and
# number of leader epochs
_PREFIX: Final = struct.Struct(">4sI")
_FIELDS: Final = struct.Struct(">qqqqii")


@dataclass(frozen=True, slots=True)
class Seal:
    """The state of a segment that its index file guarantees."""

    sealed_bytes: int
    next_offset: int
    max_timestamp: int
    max_timestamp_offset: int


def _int64s() -> array[int]:
    return array("q")


@dataclass(slots=True)
class OffsetIndex:
    """One entry per *interval_bytes* of the segment: base offset, position and largest timestamp of a batch.

    The timestamp of an entry is the largest one *before* its position, so the entries are sorted by timestamp as well.
    The index also has every leader epoch of the segment, with its first offset here.
    """

    interval_bytes: int
    _offsets: array[int] = field(default_factory=_int64s)
    _positions: array[int] = field(default_factory=_int64s)
    _timestamps: array[int] = field(default_factory=_int64s)
    _epochs: array[int] = field(default_factory=_int64s)
    _epoch_starts: array[int] = field(default_factory=_int64s)

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, base_offset: int, position: int, max_timestamp_before: int) -> None:
        """Record the batch at *position*; an entry is added if the last entry is at least an interval away."""
        if self._positions and position - self._positions[-1] < self.interval_bytes:
            return
        self._offsets.append(base_offset)
        self._positions.append(position)
        self._timestamps.append(max_timestamp_before)

    def add_epoch(self, epoch: int, base_offset: int) -> None:
        """Record the leader epoch of the batch at *base_offset*; an entry is added if the epoch is new."""
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._epoch_starts.append(base_offset)

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch, -1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at *offset*, -1 if the index has no epoch that old."""
        entry = bisect_right(self._epoch_starts, offset) - 1
        return self._epochs[entry] if entry >= 0 else -1

    def epochs(self) -> list[tuple[int, int]]:
        """(leader epoch, its first offset in this segment), in order."""
        return list(zip(self._epochs, self._epoch_starts, strict=True))

    def entry_for_offset(self, offset: int) -> tuple[int, int] | None:
        """(base offset, position) of a batch at or before the one with *offset*, None for an empty segment."""
        entry = bisect_right(self._offsets, offset) - 1
        return (self._offsets[entry], self._positions[entry]) if entry >= 0 else None

    def position_for_timestamp(self, timestamp: int) -> int:
        """A position before which every record is older than *timestamp* (ms)."""
        entry = bisect_left(self._timestamps, timestamp) - 1
        return self._positions[entry] if entry >= 0 else 0

    def to_bytes(self, seal: Seal) -> bytes:
        """The content of the index file for a segment whose first ``seal.sealed_bytes`` bytes are on disk."""
        count, epochs = len(self), len(self._epochs)
        places = seal.sealed_bytes, seal.next_offset, seal.max_timestamp, seal.max_timestamp_offset
        columns = *self._offsets, *self._positions, *self._timestamps, *self._epochs, *self._epoch_starts
        body = _FIELDS.pack(*places, count, epochs) + struct.pack(f">{3 * count + 2 * epochs}q", *columns)
        return _PREFIX.pack(_MAGIC, crc32c(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes, interval_bytes: int) -> tuple[OffsetIndex, Seal] | None:
        """Parse an index file; None if it is damaged in any way (the caller rebuilds it)."""
        if len(data) < _PREFIX.size + _FIELDS.size:
            return None
        magic, checksum = _PREFIX.unpack_from(data)
        if magic != _MAGIC or checksum != crc32c(memoryview(data)[_PREFIX.size :]):
            return None
        *seal, count, epochs = _FIELDS.unpack_from(data, _PREFIX.size)
        if min(count, epochs) < 0 or 8 * (3 * count + 2 * epochs) != len(data) - _PREFIX.size - _FIELDS.size:
            return None
        values = struct.unpack_from(f">{3 * count + 2 * epochs}q", data, _PREFIX.size + _FIELDS.size)
        index = cls(
            interval_bytes,
            array("q", values[:count]),
            array("q", values[count : 2 * count]),
            array("q", values[2 * count : 3 * count]),
            array("q", values[3 * count : 3 * count + epochs]),
            array("q", values[3 * count + epochs :]),
        )
        return index, Seal(*seal)


def no_seal(base_offset: int) -> Seal:
    """The seal of a segment without a valid index file."""
    return Seal(0, base_offset, NO_TIMESTAMP, base_offset)
