"""Selects the segments of a log that are due for compaction, under the lock of the log; ``cleaner`` compacts them.

Neither the active segment is compacted nor a record at or beyond the last stable offset, because its transaction may
still be aborted.

Source: apache/kafka ``LogCleanerManager`` (``cleanableOffsets``, ``maxCompactionDelay``) and ``Cleaner``
(``groupSegmentsBySize``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.broker.log.producer_state import AbortedRange
from kafka_sink.broker.log.segment import MAX_RELATIVE_OFFSET, Segment
from kafka_sink.common.model import NO_OFFSET
from kafka_sink.records.batch import BatchHeader


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The settings of a compacted topic: times in ms, *map_bytes* of memory for its keys."""

    delete_retention_ms: int
    min_lag_ms: int
    max_lag_ms: int
    min_dirty_ratio: float
    map_bytes: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """The input of a compaction: the first *segments* of the log, with new records from *first_dirty* on.

    When it began, *last_batches* were the last offset of data (:data:`NO_OFFSET` if there is none) and the epoch of
    each producer id, and *aborted* the aborted transactions.
    """

    segments: tuple[Segment, ...]
    first_dirty: int
    rules: CompactionRules
    segment_bytes: int
    last_batches: Mapping[int, tuple[int, int]]
    aborted: tuple[AbortedRange, ...]
    wall_ms: int

    def groups(self, end: int) -> list[list[Segment]]:
        """The segments with offsets before *end*; each group becomes one segment."""
        groups: list[list[Segment]] = []
        for segment in self.segments:
            if segment.base_offset >= end:
                break
            group = groups[-1] if groups else []
            size = sum(member.size for member in group) + segment.size
            is_near = not group or segment.next_offset - group[0].base_offset <= MAX_RELATIVE_OFFSET
            if group and size <= self.segment_bytes and is_near:
                group.append(segment)
            else:
                groups.append([segment])
        return groups

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a batch determines the state of a known producer: its last sequence, or, in a marker, its
        epoch."""
        if header.producer_id not in self.last_batches:
            return False
        last_offset, epoch = self.last_batches[header.producer_id]
        if last_offset != NO_OFFSET:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch


def segments_to_compact(
    segments: Sequence[Segment], first_dirty: int, last_stable_offset: int, rules: CompactionRules, wall_ms: int
) -> Sequence[Segment]:
    """The first segments of a log that are due for a compaction, together; none if too few of them are dirty."""
    closed = segments[:-1]
    whole = 0
    for segment in closed:
        is_dirty = segment.next_offset > first_dirty
        is_young = rules.min_lag_ms > 0 and is_dirty and segment.max_timestamp > wall_ms - rules.min_lag_ms
        if segment.next_offset > last_stable_offset or is_young:
            break
        whole += 1
    compactable = closed[:whole]
    dirty_bytes = sum(segment.size for segment in compactable if segment.next_offset > first_dirty)
    if not dirty_bytes:
        return ()
    dirty = (segment for segment in closed if segment.next_offset > first_dirty)
    is_late = any(0 < segment.first_timestamp < wall_ms - rules.max_lag_ms for segment in dirty)
    is_dirty_enough = dirty_bytes / sum(segment.size for segment in compactable) > rules.min_dirty_ratio
    return compactable if is_late or is_dirty_enough else ()
