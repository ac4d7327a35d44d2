"""Recovery of a log that may have been left in any state.

Called once per partition, before the log is used. Bytes that an index file seals (see ``segment``) are accepted
without a check; all others are verified batch by batch, with checksums, and the log ends before the first batch that is
incomplete or invalid. Recovery must never guess: the bytes after an invalid batch are truncated, and later segments are
deleted.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_sink.broker.log.filesystem import FileSystem, with_checksum, without_checksum
from kafka_sink.broker.log.producer_state import AbortedRange, ProducerStateManager
from kafka_sink.broker.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, Segment, segment_path
from kafka_sink.broker.log.segments import COMPACTED_SUFFIX, START_SUFFIX, Segments, stored_offsets
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET
from kafka_sink.records.batch import BatchHeader, verify_crc
from kafka_sink.records.control import EndTransactionMarker, read_marker

SNAPSHOT_SUFFIX: Final = ".snapshot"
#: If the newest snapshot is beyond the recovered end, the one before it is used.
_SNAPSHOTS_KEPT: Final = 2


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """An opened log: at least one segment, the producer state, and the number of truncated bytes."""

    segments: Segments
    producers: ProducerStateManager
    truncated_bytes: int
    #: Why the producer state cannot be determined: the log must then not be read or written. None if it is intact.
    damage: str | None


def open_log(
    directory: Path, filesystem: FileSystem, index_interval_bytes: int, producer_expiration_ms: int, wall_ms: int
) -> RecoveredLog:
    """Open the segments in *directory* and bring indexes and producer state up to date."""
    for name in filesystem.list_directory(directory):
        if name.endswith(CLEANED_SUFFIX):
            filesystem.remove_file(directory / name)
    segments, truncated = _open_segments(directory, filesystem, index_interval_bytes)
    if truncated:
        ContextLogger(__name__, f"log {directory.name}").warning(
            "truncated %d bytes that were not complete, valid batches; the log ends at offset %d",
            truncated,
            segments[-1].next_offset,
        )
    start = max(stored_offsets(directory, filesystem, START_SUFFIX), default=0)
    if segments and segments[-1].next_offset < start:
        # The deletion was on disk, but the later records are not: their offsets must not be assigned again.
        for segment in segments:
            segment.delete()
        segments.clear()
    if not segments:
        segments.append(Segment(directory, start, filesystem, index_interval_bytes))
    producers, damage = ProducerStateManager(producer_expiration_ms), None
    compacted = max(stored_offsets(directory, filesystem, COMPACTED_SUFFIX), default=NO_OFFSET)
    try:
        _load_producers(producers, directory, filesystem, segments, wall_ms)
        if compacted != NO_OFFSET:
            producers.forget_aborted({aborted for aborted in producers.aborted if not _has_marker(segments, aborted)})
    except CorruptRecordError as error:
        damage = str(error)
    start = max(start, segments[0].base_offset)
    producers.forget_aborted_before(start)
    # The offsets of lost records will be assigned to other records.
    compacted = compacted if compacted <= segments[-1].next_offset else NO_OFFSET
    log_segments = Segments(directory, filesystem, index_interval_bytes, segments, start, compacted)
    return RecoveredLog(log_segments, producers, truncated, damage)


def _open_segments(directory: Path, filesystem: FileSystem, index_interval_bytes: int) -> tuple[list[Segment], int]:
    """The segments with valid batches, and the number of bytes that had to be truncated."""
    segments: list[Segment] = []
    superfluous: list[Segment] = []
    torn = truncated = 0
    for base in stored_offsets(directory, filesystem, LOG_SUFFIX):
        segment = Segment(directory, base, filesystem, index_interval_bytes)
        if segments and (torn or segments[-1].next_offset > base):
            # Segments that follow a truncated one are not part of the recovered log, nor are those whose records a
            # compaction has put into an earlier one.
            truncated += segment.size if torn else 0
            superfluous.append(segment)
            continue
        torn = _load_segment(segment, segments[-1].index.last_epoch if segments else -1)
        segments.append(segment)
    # Truncation comes last: after a crash in between, the next start repeats the same steps.
    for segment in superfluous:
        segment.delete()
    if torn:
        truncated += torn
        segments[-1].file.truncate(segments[-1].size - torn)
    while len(segments) > 1 and not segments[-1].size:
        # Empty after a roll, or because no batch survived: it must not claim offsets without records.
        segments.pop().delete()
    return segments, truncated


def _load_segment(segment: Segment, epoch_before: int) -> int:
    """Verify the unsealed bytes; returns the number of bytes at the end that are not complete, valid batches."""
    position = segment.load_index()
    for at, header in segment.walk(position, verify=True):
        newest_epoch = max(segment.index.last_epoch, epoch_before)
        if header.base_offset != segment.next_offset or header.partition_leader_epoch < newest_epoch:
            # The checksum covers neither offset nor epoch, so check that offsets are contiguous and epochs never go
            # back.
            break
        segment.note(header, header.base_offset, at, header.partition_leader_epoch)
        position = at + header.size_in_bytes
    return segment.size - position


def _load_producers(
    producers: ProducerStateManager, directory: Path, filesystem: FileSystem, segments: list[Segment], wall_ms: int
) -> None:
    """:raises CorruptRecordError: if a control batch is damaged, so that the ends of transactions are unknown."""
    end = segments[-1].next_offset
    covered = segments[0].base_offset
    for offset in reversed(stored_offsets(directory, filesystem, SNAPSHOT_SUFFIX)):
        path = segment_path(directory, offset, SNAPSHOT_SUFFIX)
        stored = filesystem.read_file(path)
        data = without_checksum(stored) if stored is not None else None
        if offset > end:
            # The snapshot includes lost batches; producers that send them again would get duplicate responses.
            filesystem.remove_file(path)
        elif data is not None and producers.load(data):
            covered = offset
            break
    for segment in segments:
        if segment.next_offset <= covered:
            continue
        entry = segment.index.entry_for_offset(covered)
        for position, header in segment.walk(0 if entry is None else entry[1]):
            if header.base_offset < covered:
                continue
            if not header.is_control:
                producers.update(header, header.base_offset, wall_ms)
                continue
            marker = _marker_at(segment, position, header)
            if marker is not None:
                producers.complete(marker, header.base_offset, wall_ms)
    producers.expire(wall_ms)


def _has_marker(segments: list[Segment], aborted: AbortedRange) -> bool:
    """Whether the marker still exists, which a compaction may have removed after the snapshot was stored.

    :raises CorruptRecordError: if the segment is damaged before it.
    """
    at = bisect_right(segments, aborted.last_offset, key=lambda segment: segment.base_offset) - 1
    if at < 0:
        return False
    batch = next(segments[at].walk(segments[at].position_of(aborted.last_offset)), None)
    return batch is not None and batch[1].is_control and batch[1].producer_id == aborted.producer_id


def _marker_at(segment: Segment, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    batch = segment.read_batch(position, header)
    if not verify_crc(memoryview(batch)):
        damage = f"the control batch at offset {header.base_offset} does not match its checksum"
        raise CorruptRecordError(f"{segment.path} is damaged at byte {position}: {damage}")
    return read_marker(batch)


def write_snapshot(directory: Path, filesystem: FileSystem, end_offset: int, producers: ProducerStateManager) -> None:
    """Store the state of the producers after all batches before *end_offset*; delete old snapshots."""
    offsets = stored_offsets(directory, filesystem, SNAPSHOT_SUFFIX)
    content = with_checksum(producers.to_bytes())
    filesystem.replace_file(segment_path(directory, end_offset, SNAPSHOT_SUFFIX), content)
    for offset in offsets[: -(_SNAPSHOTS_KEPT - 1)]:
        if offset != end_offset:
            filesystem.remove_file(segment_path(directory, offset, SNAPSHOT_SUFFIX))
