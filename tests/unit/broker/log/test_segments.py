"""The segments of a log together: the segment that serves a read, those to delete, and the names of their files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_sink.broker.log.segment import Segment, TimestampOffset, segment_path
from kafka_sink.broker.log.segments import COMPACTED_SUFFIX, START_SUFFIX, Segments, stored_offsets
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records.batch import parse_header
from tests.fakes.compacted_log import DIRECTORY
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.unit.broker.log.made_segments import BASE_MS, batch_at, filled, gap_at

#: Offsets 5 to 30 in seven segments, with gaps at the beginning, in the middle and at the end of them, and one of gaps
#: only.
GROUPS = (
    [batch_at(5), gap_at(6, 1), batch_at(8, [(0, 0), (1, 0)], value=b"x" * 20)],
    [gap_at(10, 0), gap_at(11, 1), batch_at(13, value=b"y" * 50), gap_at(14, 0)],
    [gap_at(15, 1), gap_at(17, 0)],
    [gap_at(18, 2)],
    [batch_at(21, value=b"z"), gap_at(22, 0, producer=3), gap_at(23, 0)],
    [gap_at(24, 1), batch_at(26)],
    [gap_at(27, 0), batch_at(28, [(0, 0), (2, 0)])],
)
END = 31


def together(
    disk: MemoryFileSystem, groups: Sequence[Sequence[bytes]] = GROUPS, start: int | None = None, compacted: int = -1
) -> Segments:
    segments = [filled(disk, batches) for batches in groups]
    return Segments(DIRECTORY, disk, 0, segments, segments[0].base_offset if start is None else start, compacted)


def bases(segments: Segments) -> list[int]:
    return [segment.base_offset for segment in segments]


def path(offset: int, suffix: str) -> str:
    return segment_path(DIRECTORY, offset, suffix).name


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem()


# --- the newest segment ----------------------------------------------------------------------------------------------


def test_a_new_segment_begins_at_the_end(disk: MemoryFileSystem) -> None:
    segments = together(disk, GROUPS[:2])
    disk.replace_file(segment_path(DIRECTORY, 15, ".index"), b"of a segment that was truncated")
    _, old = segments
    new = segments.roll()
    assert (new.base_offset, new.path.name) == (15, path(15, ".log"))
    assert segments.active is new and list(segments)[1:] == [old, new] and segments.unsealed == [old]
    assert disk.list_directory(DIRECTORY) == [path(offset, ".log") for offset in (5, 10, 15)]
    assert segments.end_offset == 15
    more = batch_at(15)
    new.append(parse_header(more), 15, 0, (more,))
    assert segments.end_offset == 16


def test_size_and_epoch_are_those_of_all_segments(disk: MemoryFileSystem) -> None:
    batches = [batch_at(0, epoch=3), batch_at(1, epoch=4)]
    segments = together(disk, [batches[:1], batches[1:]])
    assert (segments.size, segments.last_epoch) == (sum(map(len, batches)), 4)
    segments.roll()
    assert segments.last_epoch == 4, "that of the newest batch"
    empty = Segments(DIRECTORY, MemoryFileSystem(), 0, [Segment(DIRECTORY, 9, MemoryFileSystem(), 0)], 9, -1)
    assert (empty.size, empty.last_epoch, empty.end_offset) == (0, -1, 9)


# --- reading ---------------------------------------------------------------------------------------------------------


def cut(batches: Sequence[bytes], most: int, *, is_whole: bool) -> bytes:
    """At most *most* bytes, but never a part of the first batch alone."""
    data, first = b"".join(batches), len(batches[0])
    return data[:most] if most >= first else data[:first] if is_whole else b""


def is_gap(data: bytes) -> bool:
    return parse_header(data).is_gap


def without_gaps(batches: Sequence[bytes], data: bytes) -> bytes:
    """*data*, which begins with *batches* and may end within one, without the gaps."""
    kept, position = b"", 0
    for each in batches:
        part = data[position : position + len(each)]
        kept += b"" if is_gap(each) and part == each else part
        position += len(each)
    return kept


def expected(offset: int, end: int, most: int, *, is_whole: bool, has_gaps: bool) -> bytes:
    """The result of a read, computed from all batches."""
    first = max(number for number, group in enumerate(GROUPS) if parse_header(group[0]).base_offset <= offset)
    left = b""
    for number in range(first if offset < end else len(GROUPS), len(GROUPS)):
        inside = [each for each in GROUPS[number] if offset <= parse_header(each).last_offset < end]
        skipped = has_gaps and number + 1 < len(GROUPS)
        rest = inside[next((at for at, each in enumerate(inside) if not is_gap(each)), len(inside)) if skipped else 0 :]
        if rest:
            data = cut(rest, most, is_whole=is_whole)
            return without_gaps(rest, data) if skipped else data
        left = left or (cut(inside, most, is_whole=is_whole) if inside else b"")
    return left


@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_read_is_of_the_first_segment_that_has_more(disk: MemoryFileSystem, is_whole: bool, has_gaps: bool) -> None:
    segments = together(disk)
    for offset in range(5, END + 2):
        for end in range(5, END + 1):
            for most in (0, 100, 150, 1000):
                found = segments.read(offset, end, most, whole_first_batch=is_whole, has_gaps=has_gaps)
                assert found == expected(offset, end, most, is_whole=is_whole, has_gaps=has_gaps)


@pytest.mark.parametrize("has_gaps", [False, True])
def test_a_read_ends_at_any_byte_and_has_no_gaps(disk: MemoryFileSystem, has_gaps: bool) -> None:
    segments = together(disk)
    for offset in (5, 10, 13, 15, 21, 24, 27):
        for most in range(300):
            found = segments.read(offset, END, most, whole_first_batch=True, has_gaps=has_gaps)
            assert found == expected(offset, END, most, is_whole=True, has_gaps=has_gaps)


def test_records_of_a_lost_segment_are_those_of_the_next(disk: MemoryFileSystem) -> None:
    segments = together(disk, [*GROUPS[:2], *GROUPS[4:]])
    for offset in (15, 17, 20):
        found = segments.read(offset, END, 1000, whole_first_batch=False, has_gaps=False)
        assert found == b"".join(GROUPS[4])


def test_an_offset_is_closed_in_an_earlier_segment(disk: MemoryFileSystem) -> None:
    segments = together(disk)
    pairs = {(5, 9): False, (9, 10): True, (10, 10): False, (10, 14): False, (14, 15): True, (27, 31): False}
    assert {pair: segments.is_closed_at(*pair) for pair in pairs} == pairs


# --- timestamps and epochs -------------------------------------------------------------------------------------------


def test_a_time_is_found_in_the_first_segment_with_it(disk: MemoryFileSystem) -> None:
    stamps = [7, 3, 9, 9, 1]
    segments = together(disk, [[batch_at(number, [(0, stamp)])] for number, stamp in enumerate(stamps)])
    for start in range(6):
        segments.start_offset = start
        for asked in range(11):
            first = next((at for at in range(start, 5) if stamps[at] >= asked), None)
            stamped = None if first is None else TimestampOffset(BASE_MS + stamps[first], first)
            assert segments.offset_for_timestamp(BASE_MS + asked) == stamped
        newest = max(range(start, 5), key=lambda at: stamps[at], default=None)
        latest = None if newest is None else TimestampOffset(BASE_MS + stamps[newest], newest)
        assert segments.max_timestamp_record() == latest


@pytest.mark.parametrize(
    ("groups", "newest"),
    [
        ([(20, 40), (10, 35)], 0),
        ([(20, 40), (None, 35)], 0),
        ([(20, 40), (20, 35)], 0),
        ([(20, 35), (20, 40)], 0),
        ([(10, 30), (20, 20), (20, 40)], 1),
        ([(20, 40), (30, 35), (25, 25)], 1),
        ([(20, 40), (19, 19), (40, 40)], 2),
        ([(20, 20), (None, 40), (10, 30)], 0),
        ([(None, 40), (10, 10)], 1),
        ([(None, 40), (None, 30)], None),
    ],
)
def test_the_newest_record_may_be_gone_from_its_segment(
    disk: MemoryFileSystem, groups: list[tuple[int | None, int]], newest: int | None
) -> None:
    # A segment has a record with the first timestamp, and an empty batch whose header states the second one.
    batches = [
        [*([batch_at(2 * number, [(0, stamp)])] if stamp is not None else []), gap_at(2 * number + 1, 0, most_ms=said)]
        for number, (stamp, said) in enumerate((stamp, BASE_MS + said) for stamp, said in groups)
    ]
    found = together(disk, batches).max_timestamp_record()
    stamp = None if newest is None else groups[newest][0]
    expected = None if newest is None or stamp is None else TimestampOffset(BASE_MS + stamp, 2 * newest)
    assert found == expected


@pytest.mark.parametrize("older", [0, 100])
def test_an_epoch_ends_where_the_next_one_begins(disk: MemoryFileSystem, older: int) -> None:
    epochs = [[2, 2, 4], [4, 4], [4, 7], [9]]
    offset, groups = 5, []
    for group in epochs:
        groups.append([batch_at(offset + at, epoch=older + epoch) for at, epoch in enumerate(group)])
        offset += len(group)
    segments = together(disk, groups)
    ends = {1: (1, 5), 2: (2, 7), 3: (2, 7), 4: (4, 11), 6: (4, 11), 7: (7, 12), 8: (7, 12), 9: (9, 13), 10: (9, 13)}
    for epoch, (found, end) in ends.items():
        assert segments.end_of_epoch(older + epoch) == (older + found, end)
    segments.start_offset = 8
    for epoch, (found, end) in {1: (1, 8), 2: (2, 8), 4: (4, 11)}.items():
        assert segments.end_of_epoch(older + epoch) == (older + found, end)


# --- deleting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most_bytes", [-1, 0, 1, 62, 63, 123, 124, 200])
def test_so_many_segments_are_beyond_the_size(disk: MemoryFileSystem, most_bytes: int) -> None:
    # Batches of 61 bytes each.
    segments = together(disk, [[gap_at(number, 0)] for number in range(4)])
    limits = {-1: 0, 0: 3, 1: 3, 62: 2, 63: 2, 123: 1, 124: 1, 200: 0}
    assert segments.expired(most_bytes, -1, 0) == limits[most_bytes]
    assert segments.expired(61 * 2, -1, 0) == 2
    assert segments.expired(61 * 3, -1, 0) == 1
    assert segments.expired(61 * 4, -1, 0) == 0


def test_so_many_segments_are_too_old(disk: MemoryFileSystem) -> None:
    stamps = (10, 20, 5, NO_TIMESTAMP, 1, 1)
    segments = together(disk, [[gap_at(number, 0, most_ms=stamp)] for number, stamp in enumerate(stamps)])
    ages = {(-1, 10**9): 0, (0, 10): 0, (0, 11): 1, (5, 15): 0, (5, 16): 1, (5, 25): 1, (5, 26): 3, (0, 10**9): 3}
    assert {(most, now): segments.expired(-1, most, now) for most, now in ages} == ages
    # A timestamp of 0 is valid.
    old = together(MemoryFileSystem(), [[gap_at(number, 0, most_ms=0)] for number in range(3)])
    assert (old.expired(-1, 5, 5), old.expired(-1, 5, 6), old.expired(-1, 0, 1)) == (0, 2, 2)
    # By size or by time; each segment to delete reduces the size for the next one.
    assert segments.expired(61 * 5, 5, 26) == 3
    assert segments.expired(61 * 2, -1, 0) == 4


def test_the_oldest_segment_goes_with_its_files(disk: MemoryFileSystem) -> None:
    segments = together(disk, GROUPS[:4])
    oldest, second, *_ = segments
    oldest.seal()
    segments.unsealed = [oldest, second]
    segments.drop_oldest()
    assert (bases(segments), segments.unsealed, segments.start_offset) == ([10, 15, 18], [second], 10)
    assert disk.list_directory(DIRECTORY) == [path(offset, ".log") for offset in (10, 15, 18)]
    segments.unsealed, segments.start_offset = [], 16
    segments.drop_oldest()
    assert (bases(segments), segments.start_offset) == ([15, 18], 16)


@pytest.mark.parametrize(
    ("offset", "left"), [(6, 5), (9, 5), (10, 10), (14, 10), (15, 15), (30, 27), (END, 27), (5, None), (4, None)]
)
def test_deletion_keeps_the_segment_with_the_offset(disk: MemoryFileSystem, offset: int, left: int | None) -> None:
    segments = together(disk)
    before = disk.steps
    segments.delete_before(offset)
    if left is None:
        assert (bases(segments)[0], segments.start_offset, disk.steps) == (5, 5, before)
    else:
        assert (bases(segments)[0], segments.start_offset) == (left, offset)
        assert stored_offsets(DIRECTORY, disk, START_SUFFIX) == [offset]


def test_only_the_newest_start_is_stored(disk: MemoryFileSystem) -> None:
    segments = together(disk)
    # As after crashes: before the older ones were removed, and before anything was deleted.
    for old in (6, 7, 12):
        disk.replace_file(segment_path(DIRECTORY, old, START_SUFFIX), b"")
    segments.delete_before(12)
    assert stored_offsets(DIRECTORY, disk, START_SUFFIX) == [12]
    segments.note_compacted(14)
    segments.note_compacted(14)
    assert (segments.compacted_offset, stored_offsets(DIRECTORY, disk, COMPACTED_SUFFIX)) == (14, [14])
    segments.note_compacted(20)
    assert (segments.compacted_offset, stored_offsets(DIRECTORY, disk, COMPACTED_SUFFIX)) == (20, [20])
    assert stored_offsets(DIRECTORY, disk, START_SUFFIX) == [12]


def test_offsets_in_names_are_found_in_their_order(disk: MemoryFileSystem) -> None:
    for name in ("10.start", "9.start", "0.start", "x.start", ".start", "8.starts", "7.log"):
        disk.replace_file(DIRECTORY / name, b"")
    assert stored_offsets(DIRECTORY, disk, START_SUFFIX) == [0, 9, 10]


# --- compaction ------------------------------------------------------------------------------------------------------


def test_segments_follow_each_other_while_they_are_there(disk: MemoryFileSystem) -> None:
    segments = together(disk, GROUPS[:4])
    first, second, third, fourth = segments
    for there in ([first], [first, second], [second, third], [fourth], [first, second, third, fourth]):
        assert segments.follow_each_other(there)
    other = Segment(DIRECTORY, 10, MemoryFileSystem(), 0)
    for gone in ([first, third], [second, first], [other], [first, other], [third, fourth, other]):
        assert not segments.follow_each_other(gone)
    segments.drop_oldest()
    assert not segments.follow_each_other([first]) and not segments.follow_each_other([first, second])
    assert segments.follow_each_other([second, third])


def test_a_compacted_segment_takes_the_place_of_some(disk: MemoryFileSystem) -> None:
    segments = together(disk, GROUPS[:5])
    first, second, third, fourth, fifth = segments
    cleaned = second.successor()
    cleaned.append(parse_header(GROUPS[1][2]), 13, 0, (GROUPS[1][2],))
    segments.unsealed = [first, second, fourth]
    segments.replace([second, third], cleaned)
    assert list(segments) == [first, cleaned, fourth, fifth]
    assert segments.unsealed == [first, fourth, cleaned]
    assert cleaned.path.name == path(10, ".log")
    assert disk.read_file(cleaned.path) == GROUPS[1][2]
