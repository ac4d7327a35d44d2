"""The segments of one log in offset order, the newest one open for appends, and the log start offset.

Owned by its log and guarded by the partition's lock. The log starts with its oldest segment, or later if records were
deleted: then an empty file whose name is the offset (``<offset>.start``) stores the log start offset, so it has no
content that could be damaged. ``<offset>.compacted`` stores the end of the compacted part in the same way. The active
segment must not be deleted, and the log must not start beyond its end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.log.segment import Segment, TimestampOffset, segment_path
from kafka_sink.common.bounded import known_number
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records.reader import read_batches

START_SUFFIX: Final = ".start"
COMPACTED_SUFFIX: Final = ".compacted"


@dataclass(slots=True, eq=False)
class Segments:
    """At least one segment, oldest first."""

    _directory: Path
    _filesystem: FileSystem
    _index_interval_bytes: int
    _segments: list[Segment]
    #: The offset of the oldest record that is kept.
    start_offset: int
    #: All records before it have been through a compaction.
    compacted_offset: int
    #: Segments that are rolled but not sealed yet.
    unsealed: list[Segment] = field(default_factory=list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._segments[-1].next_offset

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch of any batch, -1 if there is none."""
        return next((segment.index.last_epoch for segment in reversed(self._segments) if segment.size), -1)

    @property
    def size(self) -> int:
        """The number of bytes in all segments."""
        return sum(segment.size for segment in self._segments)

    def roll(self) -> Segment:
        """Create a new active segment at the end of the log."""
        base_offset = self.end_offset
        # An old index file with this name, of a segment that was truncated, would seal bytes that it does not cover.
        self._filesystem.remove_file(segment_path(self._directory, base_offset, ".index"))
        segment = Segment(self._directory, base_offset, self._filesystem, self._index_interval_bytes)
        self.unsealed.append(self.active)
        self._segments.append(segment)
        return segment

    def read(self, offset: int, end: int, max_bytes: int, *, whole_first_batch: bool, has_gaps: bool) -> bytes:
        """Batches of one segment from the one with *offset* on, up to the offset *end*.

        With *has_gaps*, empty batches that replace removed ones are omitted, because Kafka has none and some clients
        cannot read them; one of them is returned if nothing follows it.

        :raises CorruptRecordError: if the data is damaged.
        """
        if offset >= end:
            return b""
        gap = b""
        # Usually the first of these segments has it; if a whole segment was lost, the next record is in a later one.
        for segment in self._segments[self._index_of(offset) :]:
            position = segment.position_of(offset)
            limit = segment.size if segment.next_offset <= end else segment.position_of(end)
            may_skip = has_gaps and segment is not self.active
            start = segment.after_gaps(position) if may_skip else position
            if start < limit:
                batches = segment.read(start, min(max_bytes, limit - start), whole_first_batch=whole_first_batch)
                return _without_gaps(batches) if may_skip else batches
            if position < limit and not gap:
                gap = segment.read(position, min(max_bytes, limit - position), whole_first_batch=whole_first_batch)
        return gap

    def is_closed_at(self, offset: int, end: int) -> bool:
        """Whether *offset* is in an earlier segment than *end*."""
        return self._index_of(offset) < self._index_of(end)

    def _index_of(self, offset: int) -> int:
        return bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """See :meth:`PartitionLog.offset_for_timestamp`. :raises CorruptRecordError: if a batch is damaged."""
        found = (segment.offset_for_timestamp(timestamp, self.start_offset) for segment in self._segments)
        return next(filter(None, found), None)

    def max_timestamp_record(self) -> TimestampOffset | None:
        """See :meth:`PartitionLog.max_timestamp_record`. :raises CorruptRecordError: if a batch is damaged."""
        newest = None
        for segment in sorted(self._segments, key=lambda segment: -segment.max_timestamp):
            # A compaction may have removed the newest record of a segment. Of records of equal times the first counts.
            if newest is not None and (segment.max_timestamp, newest.offset) < (newest.timestamp, segment.base_offset):
                break
            found = filter(None, (newest, segment.max_timestamp_record(self.start_offset)))
            newest = max(found, key=lambda record: (record.timestamp, -record.offset), default=None)
        return newest

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """See :meth:`PartitionLog.end_of_epoch`."""
        history: list[tuple[int, int]] = []
        for segment in self._segments:
            history += [entry for entry in segment.index.epochs() if not history or entry[0] > history[-1][0]]
        count = bisect_right(history, epoch, key=lambda entry: entry[0])
        end = history[count][1] if count < len(history) else self.end_offset
        return (history[count - 1][0] if count else epoch), max(end, self.start_offset)

    def expired(self, retention_bytes: int, retention_ms: int, wall_ms: int) -> int:
        """The number of oldest segments, without the active one, that exceed ``retention.bytes`` or ``retention.ms``
        (−1: no limit)."""
        left = self.size
        for count, segment in enumerate(self._segments[:-1]):
            too_large = retention_bytes >= 0 and left - segment.size >= retention_bytes
            too_old = 0 <= retention_ms < wall_ms - segment.max_timestamp
            if not (too_large or (too_old and segment.max_timestamp != NO_TIMESTAMP)):
                return count
            left -= segment.size
        return len(self._segments) - 1

    def drop_oldest(self) -> None:
        """Delete the oldest segment, which must not be the active one."""
        segment = self._segments.pop(0)
        if segment in self.unsealed:
            self.unsealed.remove(segment)
        self.start_offset = max(self.start_offset, self._segments[0].base_offset)
        segment.delete()

    def delete_before(self, offset: int) -> None:
        """Advance the log start offset to *offset*, at most to the end; delete the segments before it."""
        if offset <= self.start_offset:
            return
        self._store(offset, START_SUFFIX)
        self.start_offset = offset
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            self.drop_oldest()

    def _store(self, offset: int, suffix: str) -> None:
        outdated = stored_offsets(self._directory, self._filesystem, suffix)
        self._filesystem.replace_file(segment_path(self._directory, offset, suffix), b"")
        for old in outdated:
            if old != offset:
                self._filesystem.remove_file(segment_path(self._directory, old, suffix))

    def follow_each_other(self, segments: Sequence[Segment]) -> bool:
        """Whether all of *segments* are still here, in this order."""
        first = self._index_of(segments[0].base_offset)
        return self._segments[first : first + len(segments)] == list(segments)

    def replace(self, segments: Sequence[Segment], cleaned: Segment) -> None:
        """Replace *segments* by *cleaned*, which has all their offsets. The caller deletes the files of all but the
        first, which are no longer part of the log, not even for recovery."""
        cleaned.take_over(segments[0])
        first = self._index_of(cleaned.base_offset)
        self._segments[first : first + len(segments)] = [cleaned]
        self.unsealed = [segment for segment in self.unsealed if segment not in segments] + [cleaned]

    def note_compacted(self, offset: int) -> None:
        """Store that all records before *offset* have been compacted."""
        self._store(offset, COMPACTED_SUFFIX)
        self.compacted_offset = offset


def _without_gaps(batches: bytes) -> bytes:
    """*batches*, of which the last one may be incomplete, without the gaps among them."""
    kept, since, position = [], 0, 0
    for batch in read_batches(batches):
        end = position + batch.header.size_in_bytes
        if batch.header.is_gap:
            kept.append(batches[since:position])
            since = end
        position = end
    return b"".join((*kept, batches[since:])) if kept else batches


def stored_offsets(directory: Path, filesystem: FileSystem, suffix: str) -> list[int]:
    """The offsets that are the names of files with *suffix* in *directory*, in ascending order."""
    names = (name.removesuffix(suffix) for name in filesystem.list_directory(directory) if name.endswith(suffix))
    return sorted(number for number in map(known_number, names) if number is not None)
