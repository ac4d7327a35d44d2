"""One segment of a partition's log: a file of record batches and its sparse index.

Guarded by the partition's lock. Appends and fetches must only read batch headers. Only the search for a timestamp reads
records; it creates no objects for them and compares the first million of a batch. Bytes that were accepted from disk
without a check, because an index file seals them, are verified by checksum when they are read: damaged data leads to an
error, never to an answer.

Correctness must not depend on the index: it only determines where a scan of batch headers begins, and it can always be
rebuilt from the segment. On disk an index file is also the *seal* of its segment: it is written only after the
segment's bytes were flushed, and stores the number of bytes that it covers. Bytes beyond that (or a segment without a
valid index file) are verified batch by batch when the log is opened.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Final

from crc32c import crc32c

from kafka_sink.broker.log.filesystem import FileSystem, LogFile
from kafka_sink.columns.varint import read_varint, read_varlong
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records.batch import BatchHeader, parse_header, verify_crc
from kafka_sink.records.compression import decompressed
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reader import RecordBatchView, read_batches
from kafka_sink.records.spans import record_spans

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
        sealed = seal.sealed_bytes, seal.next_offset, seal.max_timestamp, seal.max_timestamp_offset
        columns = *self._offsets, *self._positions, *self._timestamps, *self._epochs, *self._epoch_starts
        body = _FIELDS.pack(*sealed, count, epochs) + struct.pack(f">{3 * count + 2 * epochs}q", *columns)
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
        ends = [0, *accumulate((count, count, count, epochs, epochs))]
        columns = (array("q", values[start:end]) for start, end in pairwise(ends))
        return cls(interval_bytes, *columns), Seal(*seal)


def no_seal(base_offset: int) -> Seal:
    """The seal of a segment without a valid index file."""
    return Seal(0, base_offset, NO_TIMESTAMP, base_offset)


LOG_SUFFIX: Final = ".log"
#: The suffix of a file that a compaction writes, until it replaces a segment.
CLEANED_SUFFIX: Final = ".cleaned"
INDEX_SUFFIX: Final = ".index"
_CHUNK_BYTES: Final = 1 << 20
#: Room for a few headers of small batches; a larger read would mostly fetch records that the scan skips.
_WALK_BYTES: Final = 1 << 13
#: Kafka stores a segment's offsets relative to its base in 32 bits.
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
#: The maximum number of records of a batch that are compared with a timestamp.
SEARCHED_RECORDS: Final = 1 << 20
#: Limit on the decompressed size of one batch in a search for a timestamp.
MAX_DECOMPRESSED_BYTES: Final = 256 << 20


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """The path of a segment's file; names sort by offset."""
    return directory / f"{base_offset:020d}{suffix}"


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record's timestamp (ms since the epoch) and its offset."""

    timestamp: int
    offset: int


class Segment:
    """Batches with offsets from *base_offset* on, in one file."""

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        filesystem: FileSystem,
        index_interval_bytes: int,
        suffix: str = LOG_SUFFIX,
    ) -> None:
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset, suffix)
        self._index_path = segment_path(directory, base_offset, INDEX_SUFFIX)
        self._filesystem = filesystem
        self.file: LogFile = filesystem.open(self.path)
        self.index = OffsetIndex(index_interval_bytes)
        self._seal = no_seal(base_offset)
        self.next_offset = base_offset
        self.max_timestamp = self._seal.max_timestamp
        self._max_timestamp_offset = base_offset
        # Bytes at the beginning whose checksums were not verified since the segment was opened.
        self._unchecked_bytes = 0
        # None until it was read.
        self._first_timestamp: int | None = None

    def load_index(self) -> int:
        """Load the index file if it is valid; returns the number of bytes of the segment that it seals."""
        data = self._filesystem.read_file(self._index_path)
        loaded = OffsetIndex.from_bytes(data, self.index.interval_bytes) if data is not None else None
        if loaded is None or loaded[1].sealed_bytes > self.file.size:
            if data is not None:
                # The file covers more bytes than there are: grown again, it would seal bytes not checked.
                self._filesystem.remove_file(self._index_path)
            return 0
        self.index, self._seal = loaded
        self.next_offset = self._seal.next_offset
        self.max_timestamp = self._seal.max_timestamp
        self._max_timestamp_offset = self._seal.max_timestamp_offset
        self._unchecked_bytes = self._seal.sealed_bytes
        return self._seal.sealed_bytes

    def walk(self, start: int, *, verify: bool = False) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from *start* on; ends before the first incomplete or invalid batch.

        With *verify* the checksum of each batch is verified as well, which reads all bytes.
        """
        end = self.file.size
        step = _CHUNK_BYTES if verify else _WALK_BYTES
        position, chunk, chunk_start = start, memoryview(b""), start
        while position + HEADER_BYTES <= end:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = memoryview(self.file.read(position, step)), position, 0
            try:
                header = parse_header(chunk, at)
            except CorruptRecordError:
                return
            size = header.size_in_bytes
            if position + size > end:
                return
            if verify:
                if at + size > len(chunk):
                    chunk, chunk_start, at = memoryview(self.file.read(position, max(size, step))), position, 0
                if not verify_crc(chunk[at : at + size]):
                    return
            yield position, header
            position += size

    def note(self, header: BatchHeader, base_offset: int, position: int, leader_epoch: int) -> None:
        """Add a batch at *position* to the index and to the segment's state."""
        self.index.add(base_offset, position, self.max_timestamp)
        self.index.add_epoch(leader_epoch, base_offset)
        self.next_offset = base_offset + header.last_offset_delta + 1
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self._max_timestamp_offset = base_offset

    @property
    def size(self) -> int:
        return self.file.size

    def has_room(self, size: int, last_offset: int, segment_bytes: int) -> bool:
        """Whether a batch of *size* bytes that ends at *last_offset* fits into this segment."""
        if self.file.size == 0:
            return True
        return self.file.size + size <= segment_bytes and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, :data:`NO_TIMESTAMP` if there is none."""
        if self._first_timestamp is None:
            self._first_timestamp = next((header.max_timestamp for _, header in self.walk(0)), None)
        return NO_TIMESTAMP if self._first_timestamp is None else self._first_timestamp

    def age_at(self, timestamp: int) -> int:
        """The ms from the timestamp of the first batch to *timestamp*; 0 if one of them has none."""
        first = self.first_timestamp
        return 0 if first < 0 or timestamp < 0 else timestamp - first

    def append(self, header: BatchHeader, base_offset: int, leader_epoch: int, parts: Sequence[Buffer]) -> None:
        """Write one batch. :raises OSError: if it failed; truncate the file, a part may be in it."""
        position = self.file.size
        self.file.append(parts)
        self.note(header, base_offset, position, leader_epoch)

    def batches(self, start: int = 0) -> Iterator[RecordBatchView]:
        """All batches from the position *start* on, as the closed segment has them.

        :raises CorruptRecordError: at the first batch that is damaged.
        :raises OSError: if the segment was deleted in the meantime.
        """
        expected = None
        end = start
        for position, header in self.walk(start, verify=True):
            if expected not in (None, header.base_offset):
                break
            yield RecordBatchView(header, memoryview(self.read_batch(position, header)))
            expected, end = header.last_offset + 1, position + header.size_in_bytes
        if end != self.file.size:
            raise CorruptRecordError(f"{self.path.name} is damaged at byte {end}")

    def successor(self) -> Segment:
        """An empty segment that may take the place of this one: see :meth:`take_over`."""
        directory = self.path.parent
        self._filesystem.remove_file(segment_path(directory, self.base_offset, CLEANED_SUFFIX))
        return Segment(directory, self.base_offset, self._filesystem, self.index.interval_bytes, CLEANED_SUFFIX)

    def take_over(self, old: Segment) -> None:
        """Replace *old*, which is not sealed, atomically on disk; all batches here are flushed.

        :raises OSError: if it is unknown which of the two is there.
        """
        self.file.move_to(old.path)
        self.path = old.path
        old.file.close()

    def discard(self) -> None:
        """Remove the file of a segment that replaces no other one."""
        self.file.close()
        self._filesystem.remove_file(self.path)

    @property
    def is_sealed(self) -> bool:
        """Whether the index file seals the whole segment."""
        return self._seal.sealed_bytes == self.file.size

    def seal(self) -> None:
        """Flush, then write the index file that seals the flushed bytes."""
        if self.is_sealed:
            return
        size = self.file.size
        seal = Seal(size, self.next_offset, self.max_timestamp, self._max_timestamp_offset)
        data = self.index.to_bytes(seal)
        self.file.flush()
        self._filesystem.replace_file(self._index_path, data)
        self._seal = seal

    def unseal(self) -> None:
        """Make the index file seal nothing, because another segment will have its name."""
        self._filesystem.replace_file(self._index_path, b"")
        self._seal = no_seal(self.base_offset)

    def delete(self) -> None:
        """Remove the segment's files, the index first: an index without its segment would seal missing bytes."""
        self.file.close()
        self._filesystem.remove_file(self._index_path)
        self._filesystem.remove_file(self.path)

    def position_of(self, offset: int) -> int:
        """The position of the batch with *offset*, or of the first batch after it; the segment's size if there is none.

        :raises CorruptRecordError: if the scanned batches are not contiguous.
        """
        entry = self.index.entry_for_offset(offset) or (self.base_offset, 0)
        expected, end = entry
        for position, header in self.walk(end):
            if header.base_offset != expected:
                break
            if header.last_offset >= offset:
                return position
            expected, end = header.last_offset + 1, position + header.size_in_bytes
        if end != self.file.size:
            raise CorruptRecordError(f"{self.path.name} is damaged at byte {end}, offset {expected}")
        return end

    def after_gaps(self, position: int) -> int:
        """The position of the first batch from *position* on that is not a gap, or of the end of the gaps."""
        end = position
        for at, header in self.walk(position):
            if not header.is_gap:
                return at
            end = at + header.size_in_bytes
        return end

    def read(self, position: int, max_bytes: int, *, whole_first_batch: bool) -> bytes:
        """Batches from *position* on, at most *max_bytes*; the last of several may be incomplete, as in Kafka.

        With *whole_first_batch* the first batch is complete even if it is larger, so that a reader makes progress.
        """
        data = self.file.read(position, max(max_bytes, HEADER_BYTES if whole_first_batch else 0))
        size = parse_header(memoryview(data), 0).size_in_bytes if len(data) >= HEADER_BYTES else HEADER_BYTES
        if size > len(data):
            # Readers treat a part of a single batch as damaged (ReplicaManager, firstEntryIncomplete).
            data = self.file.read(position, size) if whole_first_batch else b""
        return self._sound(data) if position < self._unchecked_bytes else data

    def _sound(self, data: bytes) -> bytes:
        """The complete batches before the first damaged one.

        :raises CorruptRecordError: if the first batch is damaged.
        """
        end, expected = 0, None
        for batch in read_batches(data):
            header = batch.header
            placed = expected in (None, header.base_offset)
            led = header.partition_leader_epoch == self.index.epoch_at(header.base_offset)
            if not (placed and led and batch.verify_crc()):
                if not end:
                    raise CorruptRecordError(f"{self.path.name} is damaged at offset {header.base_offset}")
                break
            expected, end = header.last_offset + 1, end + header.size_in_bytes
        return data[:end]

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        return self.file.read(position, header.size_in_bytes)

    def offset_for_timestamp(self, timestamp: int, min_offset: int) -> TimestampOffset | None:
        """The first record from *min_offset* on with at least this *timestamp*, None if all are older.

        :raises CorruptRecordError: if the batch in question does not decompress within :data:`MAX_DECOMPRESSED_BYTES`.
        """
        if self.max_timestamp < timestamp:
            return None
        for position, header in self.walk(self.index.position_for_timestamp(timestamp)):
            if header.max_timestamp >= timestamp and header.last_offset >= min_offset and header.record_count:
                record = self._first_in_batch(position, header, timestamp, min_offset)
                if record is not None:
                    return record
        return None

    def max_timestamp_record(self, min_offset: int) -> TimestampOffset | None:
        """The first record from *min_offset* on with the largest timestamp of those."""
        start = max(min_offset, self.base_offset)
        has_newest = self._max_timestamp_offset >= start
        record = self.offset_for_timestamp(self.max_timestamp, start) if has_newest else None
        if record is None:
            # The record with it was deleted (DeleteRecords, or a compaction), so only the rest counts.
            rest = (batch for batch in self.walk(self.position_of(start)) if batch[1].record_count)
            newest = max((self._newest_in_batch(*batch, start) for batch in rest), default=NO_TIMESTAMP)
            record = self.offset_for_timestamp(newest, start)
        return record

    def _newest_in_batch(self, position: int, header: BatchHeader, min_offset: int) -> int:
        """The largest timestamp of a batch's records from *min_offset* on, of the first million that it has."""
        first = min_offset - header.base_offset
        if first <= 0:
            return header.max_timestamp
        records = islice(self._times_in_batch(position, header, first), SEARCHED_RECORDS)
        return max((timestamp for delta, timestamp in records if delta >= first), default=NO_TIMESTAMP)

    def _first_in_batch(
        self, position: int, header: BatchHeader, timestamp: int, min_offset: int
    ) -> TimestampOffset | None:
        """The first record of a batch with at least *timestamp*, which its header announces. If there is none, or if a
        million records are older, the result is the offset reached so far: readers may begin too early, never too
        late."""
        first = max(min_offset - header.base_offset, 0)
        for compared, (delta, found) in enumerate(self._times_in_batch(position, header, first)):
            if compared == SEARCHED_RECORDS or (delta >= first and found >= timestamp):
                return TimestampOffset(max(found, timestamp), header.base_offset + max(delta, first))
        return None if first else TimestampOffset(header.max_timestamp, header.base_offset)

    def _times_in_batch(self, position: int, header: BatchHeader, first: int) -> Iterator[tuple[int, int]]:
        """(offset delta, timestamp) of a batch's records; without those before the delta *first*, if it has no gaps."""
        data = memoryview(self.read_batch(position, header))
        if not verify_crc(data):
            raise CorruptRecordError(f"{self.path.name} is damaged at offset {header.base_offset}")
        is_stamped, count = header.is_log_append_time, header.record_count
        # After a compaction, the index of a record does not determine its offset.
        has_gaps = count != header.last_offset_delta + 1
        if is_stamped and not has_gaps:
            yield from ((delta, header.max_timestamp) for delta in range(first, count))
            return
        pieces = decompressed(header.compression, data[HEADER_BYTES:], MAX_DECOMPRESSED_BYTES)
        skipped = 0 if has_gaps else first
        for index, (plain, start, _) in enumerate(record_spans(pieces, count, skipped), skipped):
            timestamp_delta, at = read_varlong(plain, start + 1)
            delta = read_varint(plain, at)[0] if has_gaps else index
            yield delta, header.max_timestamp if is_stamped else header.base_timestamp + timestamp_delta
