"""Segments that are due for a compaction, and segments that it merges: each limit, exactly at it and next to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from kafka_sink.broker.log.compaction import Compaction, CompactionRules, segments_to_compact
from kafka_sink.broker.log.segment import MAX_RELATIVE_OFFSET, Segment
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP
from kafka_sink.records.batch import BatchHeader
from tests.fakes.record_batches import with_header
from tests.support.cases import with_each

NEVER = 2**63 - 1
WALL_MS = 10_000


@dataclass
class Part:
    """The attributes of a segment that the rules read."""

    base_offset: int
    next_offset: int
    size: int = 10
    first_timestamp: int = 5000
    max_timestamp: int = 5000


def parts(*ends: int, size: int = 10) -> list[Part]:
    """Consecutive segments that end before *ends*."""
    return [Part(base, end, size) for base, end in zip((0, *ends), ends, strict=False)]


def due(
    segments: Sequence[Part],
    *,
    first_dirty: int = 0,
    stable: int = NEVER,
    min_lag_ms: int = 0,
    max_lag_ms: int = NEVER,
    ratio: float = 0.0,
) -> list[int]:
    """The base offsets of the segments that are due."""
    rules = CompactionRules(0, min_lag_ms, max_lag_ms, ratio, 1 << 20)
    found = segments_to_compact(cast(Sequence[Segment], segments), first_dirty, stable, rules, WALL_MS)
    return [segment.base_offset for segment in found]


def compaction(segments: Sequence[Part] = (), **last_batches: tuple[int, int]) -> Compaction:
    """A compaction of segments of 100 bytes; *last_batches* are those of the producers ``p7``, ``p8``, …"""
    rules = CompactionRules(0, 0, NEVER, 0.0, 1 << 20)
    of_producers = {int(name[1:]): batch for name, batch in last_batches.items()}
    return Compaction(tuple(cast(Sequence[Segment], segments)), 0, rules, 100, of_producers, (), WALL_MS)


def groups(segments: Sequence[Part], end: int = NEVER) -> list[list[int]]:
    return [[each.base_offset for each in group] for group in compaction(segments).groups(end)]


def test_all_closed_segments_are_due_but_the_active_one() -> None:
    assert due(parts(10, 20, 30)) == [0, 10]
    assert due(parts(10)) == due([]) == []


@with_each(("stable", "expected"), [(9, []), (10, [0]), (19, [0]), (20, [0, 10]), (30, [0, 10])])
def test_segments_are_due_up_to_the_stable_offset(stable: int, expected: list[int]) -> None:
    assert due(parts(10, 20, 30), stable=stable) == expected


@with_each(("first_dirty", "expected"), [(0, [0, 10]), (10, [0, 10]), (19, [0, 10]), (20, []), (21, [])])
def test_nothing_is_due_where_all_is_compacted(first_dirty: int, expected: list[int]) -> None:
    assert due(parts(10, 20, 30), first_dirty=first_dirty) == expected


@with_each(
    ("lag_ms", "newest", "first_dirty", "expected"),
    [
        (1000, WALL_MS - 1000, 0, [0, 10, 20]),
        (1000, WALL_MS - 999, 0, [0]),
        # A segment that was compacted does not wait for the lag again.
        (1000, WALL_MS, 20, [0, 10, 20]),
        (1000, WALL_MS, 19, []),
        # Without a lag, timestamps may be in the future; the smallest lag is 1 ms.
        (0, WALL_MS + 5, 0, [0, 10, 20]),
        (1, WALL_MS, 0, [0]),
        (1, WALL_MS - 1, 0, [0, 10, 20]),
    ],
)
def test_young_segments_wait(lag_ms: int, newest: int, first_dirty: int, expected: list[int]) -> None:
    segments = parts(10, 20, 30, 40)
    segments[1].max_timestamp = newest
    assert due(segments, min_lag_ms=lag_ms, first_dirty=first_dirty) == expected


@with_each(
    ("sizes", "ratio", "expected"),
    [
        # The second and the third of four segments are dirty, and the last one is active.
        ((60, 30, 10, 1000), 0.39, [0, 10, 20]),
        ((60, 30, 10, 1000), 0.4, []),
        ((60, 30, 11, 1000), 0.4, [0, 10, 20]),
        ((59, 30, 10, 1000), 0.4, [0, 10, 20]),
        ((0, 30, 10, 0), 0.99, [0, 10, 20]),
        ((60, 0, 0, 1000), 0.0, []),
    ],
)
def test_enough_bytes_have_to_be_new(sizes: tuple[int, ...], ratio: float, expected: list[int]) -> None:
    segments = [Part(number * 10, number * 10 + 10, size) for number, size in enumerate(sizes)]
    assert due(segments, first_dirty=10, ratio=ratio) == expected


@with_each(
    ("first", "first_dirty", "expected"),
    [
        (WALL_MS - 1001, 0, [0, 10]),
        (WALL_MS - 1000, 0, []),
        (1, 0, [0, 10]),
        (0, 0, []),
        (NO_TIMESTAMP, 0, []),
        # The maximum lag applies only to dirty records.
        (1, 19, [0, 10]),
        (1, 20, []),
    ],
)
def test_late_records_are_due_however_few(first: int, first_dirty: int, expected: list[int]) -> None:
    segments = parts(10, 20, 30)
    for segment in segments:
        segment.first_timestamp = WALL_MS
    segments[1].first_timestamp = first
    assert due(segments, first_dirty=first_dirty, max_lag_ms=1000, ratio=1.0) == expected
    segments[1].first_timestamp, segments[0].first_timestamp = WALL_MS, 1
    assert due(segments, first_dirty=10, max_lag_ms=1000, ratio=1.0) == []


def test_late_records_behind_the_stable_offset_count() -> None:
    segments = parts(10, 20, 30)
    segments[0].first_timestamp = WALL_MS
    assert due(segments, stable=10, max_lag_ms=1000, ratio=1.0) == [0]
    # No dirty record may be compacted yet.
    assert due(segments, stable=10, first_dirty=10, max_lag_ms=1000, ratio=1.0) == []
    # The active segment does not count.
    segments[1].first_timestamp = WALL_MS
    assert due(segments, stable=10, max_lag_ms=1000, ratio=1.0) == []


def test_segments_become_one_up_to_the_size_of_a_segment() -> None:
    # 100 bytes fit, 101 do not.
    segments = parts(*range(10, 70, 10), size=50)
    assert groups(segments) == [[0, 10], [20, 30], [40, 50]]
    segments[3].size = 51
    assert groups(segments) == [[0, 10], [20], [30], [40, 50]]
    segments = parts(*range(10, 70, 10), size=33)
    segments[0].size = 34
    assert groups(segments) == [[0, 10, 20], [30, 40, 50]]
    segments[0].size = 1000
    assert groups(segments) == [[0], [10, 20, 30], [40, 50]]
    assert groups([]) == []


@with_each(("end", "expected"), [(0, []), (1, [[0]]), (10, [[0]]), (11, [[0, 10]]), (21, [[0, 10, 20]])])
def test_segments_are_rewritten_up_to_the_last_known_key(end: int, expected: list[list[int]]) -> None:
    assert groups(parts(10, 20, 30), end) == expected


def test_offsets_of_a_group_fit_into_a_segment() -> None:
    most = MAX_RELATIVE_OFFSET
    assert groups(parts(5, most)) == [[0, 5]]
    assert groups(parts(5, most + 1)) == [[0], [5]]
    beyond = [Part(7, 12), Part(12, most + 7), Part(most + 7, most + 8)]
    assert groups(beyond) == [[7, 12], [most + 7]]


def header(last_offset: int, *, producer: int = 7, epoch: int = 3, is_control: bool = False) -> BatchHeader:
    values = [b"v"] * (last_offset + 1)
    return with_header(values, producer_id=producer, producer_epoch=epoch, base_sequence=0, is_control=is_control)[1]


def test_the_last_batch_of_a_producer_is_that_of_its_offset() -> None:
    asked = compaction(p7=(4, 3), p8=(NO_OFFSET, 3), p9=(0, 3))
    assert asked.is_last_of_producer(header(4))
    assert not asked.is_last_of_producer(header(3))
    assert not asked.is_last_of_producer(header(5))
    # If the producer has batches, a marker is not its last batch.
    assert not asked.is_last_of_producer(header(0, is_control=True))
    assert asked.is_last_of_producer(header(0, producer=9))
    # If it has none, the marker with its epoch is.
    assert asked.is_last_of_producer(header(0, producer=8, is_control=True))
    assert not asked.is_last_of_producer(header(0, producer=8, epoch=2, is_control=True))
    assert not asked.is_last_of_producer(header(0, producer=8))
    assert not asked.is_last_of_producer(header(4, producer=10))
