"""One segment on a fake disk: the positions of its batches, its reads, and the contents of its index file."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from crc32c import crc32c

from kafka_sink.broker.log import segment as module
from kafka_sink.broker.log.segment import MAX_RELATIVE_OFFSET, OffsetIndex, Segment, TimestampOffset, segment_path
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records.batch import BatchHeader, parse_header, with_records
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.layout import HEADER_BYTES
from tests.fakes.compacted_log import DIRECTORY
from tests.fakes.memory_filesystem import MemoryFileSystem, MemoryLogFile
from tests.unit.broker.log.made_segments import BASE_MS, Deltas, batch_at, filled, gap_at, positions

BASE = 5
PATH = segment_path(DIRECTORY, BASE, ".log")
INDEX_PATH = segment_path(DIRECTORY, BASE, ".index")
CLEANED_PATH = segment_path(DIRECTORY, BASE, ".cleaned")


class Disk(MemoryFileSystem):
    """Notes the position and the length of each read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int]] = []

    def open(self, path: Path) -> MemoryLogFile:
        file = super().open(path)
        really_read = file.read

        def read(position: int, length: int) -> bytes:
            self.reads.append((position, length))
            return really_read(position, length)

        file.read = read  # type: ignore[method-assign]
        return file

    def flip(self, position: int) -> None:
        """Damage the segment at *position*."""
        self.files[PATH].data[position] ^= 1

    def forget_reads(self) -> list[tuple[int, int]]:
        seen, self.reads = self.reads, []
        return seen


@pytest.fixture
def disk() -> Disk:
    return Disk()


def sealed(disk: MemoryFileSystem, batches: Sequence[bytes], *, interval: int = 0) -> Segment:
    """Closed with an index file, and opened again."""
    filled(disk, batches, interval=interval).seal()
    again = Segment(DIRECTORY, BASE, disk, interval)
    assert again.load_index() == again.size
    return again


#: Batches of many sizes, also headers alone, and with one record or more; offsets 5 to 19.
BATCHES = (
    batch_at(5),
    gap_at(6, 0, producer=3),
    batch_at(7, [(0, 0), (1, 3), (2, 1)], value=b"x" * 30),
    batch_at(10, value=b"y" * 300),
    gap_at(11, 1),
    gap_at(13, 0),
    batch_at(14, [(0, 4), (1, 2)], value=b"z", epoch=2),
    batch_at(16, [(0, 4), (1, 2)], value=b"z" * 90, epoch=7),
    gap_at(18, 1, epoch=7),
)
END = 20
SIZE = sum(map(len, BATCHES))


# --- walking over headers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_verified", [False, True])
def test_a_walk_finds_the_whole_batches_and_no_other(disk: Disk, is_verified: bool) -> None:
    segment = filled(disk, BATCHES)
    places = list(zip(positions(BATCHES), map(parse_header, BATCHES), strict=True))
    for number, (start, _) in enumerate(places):
        assert list(segment.walk(start, verify=is_verified)) == places[number:]
    assert list(segment.walk(SIZE, verify=is_verified)) == []
    whole = disk.files[PATH].data[:]
    for end in range(SIZE + 1):
        disk.files[PATH].data = whole[:end]
        expected = [(at, header) for at, header in places if at + header.size_in_bytes <= end]
        assert list(segment.walk(0, verify=is_verified)) == expected


@pytest.mark.parametrize(("is_verified", "step"), [(False, 1 << 13), (True, 1 << 20)])
def test_a_walk_reads_a_chunk_only_where_it_has_to(disk: Disk, is_verified: bool, step: int) -> None:
    # The second header ends with the first chunk, and the fourth one a byte after the second chunk. The fourth batch
    # has the size of a chunk, the fifth one is larger, and the seventh has a byte in the next chunk.
    sizes = [step - 61, 61, step - 60, step, step + 1, 61, step - 60, 61]
    batches = [bytes(with_records(BatchHeader(BASE + number), bytes(size - 61))) for number, size in enumerate(sizes)]
    at = positions(batches)
    segment = filled(disk, batches)
    assert [position for position, _ in segment.walk(0, verify=is_verified)] == at
    chunks = [(at[number], step) for number in (0, 2, 3, 4, 5, 7)]
    if is_verified:
        chunks[4:5] = [(at[4], step + 1), (at[5], step), (at[6], step)]
    assert disk.reads == chunks


def test_a_walk_ends_before_what_is_no_batch(disk: Disk) -> None:
    segment, at = filled(disk, BATCHES), positions(BATCHES)
    disk.flip(at[4] - 1)
    assert [position for position, _ in segment.walk(0)] == at
    assert [position for position, _ in segment.walk(0, verify=True)] == at[:3]
    # The format version (magic) of the sixth batch.
    disk.flip(at[5] + 16)
    assert [position for position, _ in segment.walk(0)] == at[:5]


# --- properties of the batches ---------------------------------------------------------------------------------------


def test_the_index_file_has_what_the_batches_say(disk: Disk) -> None:
    stamps = [(5, BASE_MS), (6, BASE_MS + 20), (8, BASE_MS + 20), (9, BASE_MS + 10)]
    batches = [batch_at(base, [(0, 0), (1, 0)] if base == 6 else ((0, 0),), most_ms=stamp) for base, stamp in stamps]
    segment = filled(disk, [*batches, batch_at(10, [(0, 0), (2, 0)], epoch=4)])
    at = positions([*batches, b""])
    assert (segment.next_offset, segment.max_timestamp) == (13, BASE_MS + 20)
    segment.seal()
    # The first batch with the largest timestamp counts, and an index entry has the largest timestamp before it.
    body = struct.pack(">qqqqii", segment.size, 13, BASE_MS + 20, 6, 5, 2)
    body += struct.pack(">10q", 5, 6, 8, 9, 10, *at)
    body += struct.pack(">9q", -1, BASE_MS, *[BASE_MS + 20] * 3, 0, 4, 5, 10)
    assert disk.read_file(INDEX_PATH) == b"KLX2" + struct.pack(">I", crc32c(body)) + body
    again = Segment(DIRECTORY, BASE, disk, 0)
    assert (again.next_offset, again.max_timestamp, again.is_sealed) == (BASE, NO_TIMESTAMP, False)
    assert again.load_index() == segment.size
    assert (again.next_offset, again.max_timestamp, again.is_sealed) == (13, BASE_MS + 20, True)
    assert again.index == segment.index
    # Appends continue from there.
    (more,) = [batch_at(13, most_ms=BASE_MS + 20)]
    again.append(parse_header(more), 13, 4, (more,))
    again.seal()
    stored = OffsetIndex.from_bytes(disk.read_file(INDEX_PATH) or b"", 0)
    assert stored is not None and stored[1] == module.Seal(again.size, 14, BASE_MS + 20, 6)


def test_a_segment_has_room_up_to_its_bytes_and_offsets(disk: Disk) -> None:
    empty = Segment(DIRECTORY, BASE, disk, 0)
    assert empty.has_room(10**9, BASE + 2**40, 1)
    segment = filled(disk, BATCHES)
    assert segment.has_room(100, END, SIZE + 100)
    assert not segment.has_room(101, END, SIZE + 100)
    assert MAX_RELATIVE_OFFSET == 2**31 - 1
    assert segment.has_room(100, BASE + 2**31 - 1, SIZE + 100)
    assert not segment.has_room(100, BASE + 2**31, SIZE + 100)


@pytest.mark.parametrize(
    ("first", "ages"),
    [
        (1000, {1000: 0, 1001: 1, 999: -1, 0: -1000, -1: 0}),
        (0, {0: 0, 7: 7, -1: 0}),
        (1, {0: -1, 7: 6, -1: 0}),
        (-1, {0: 0, 7: 0, -1: 0}),
    ],
)
def test_age_counts_from_the_timestamp_of_the_first_batch(disk: Disk, first: int, ages: dict[int, int]) -> None:
    empty = Segment(DIRECTORY, BASE, disk, 0)
    assert (empty.first_timestamp, empty.age_at(7)) == (NO_TIMESTAMP, 0)
    segment = filled(disk, [batch_at(5, most_ms=first), batch_at(6, most_ms=5000)])
    assert segment.first_timestamp == first
    assert {timestamp: segment.age_at(timestamp) for timestamp in ages} == ages
    # The timestamp is read once, but not before there is a batch.
    assert empty.first_timestamp == first
    assert disk.forget_reads() == [(0, 1 << 13)] * 2


# --- closed segments, and those that replace them --------------------------------------------------------------------


def test_batches_of_a_closed_segment_are_as_written(disk: Disk) -> None:
    segment = filled(disk, BATCHES)
    for number, start in enumerate(positions(BATCHES)):
        assert [bytes(each.data) for each in segment.batches(start)] == list(BATCHES[number:])
    assert [each.base_offset for each in segment.batches()] == [parse_header(each).base_offset for each in BATCHES]
    assert list(segment.batches(SIZE)) == []
    assert list(Segment(DIRECTORY, 0, disk, 0).batches()) == []


def test_damage_in_a_closed_segment_is_named(disk: Disk) -> None:
    segment, at = filled(disk, BATCHES), positions(BATCHES)

    def is_damaged(count: int) -> None:
        batches = segment.batches()
        assert [bytes(next(batches).data) for _ in range(count)] == list(BATCHES[:count])
        with pytest.raises(CorruptRecordError, match=f"^{PATH.name} is damaged at byte {at[count]}$"):
            next(batches)

    # An incomplete batch, a wrong offset, which the checksum does not cover, and a wrong byte.
    disk.files[PATH].data.pop()
    is_damaged(8)
    disk.flip(at[6] + 7)
    is_damaged(6)
    disk.flip(at[4] - 1)
    is_damaged(3)
    disk.flip(at[1] - 1)
    is_damaged(0)


def test_a_successor_is_empty_and_takes_the_place_in_one_step(disk: Disk) -> None:
    old = filled(disk, BATCHES, interval=77)
    disk.replace_file(CLEANED_PATH, b"of a compaction that ended too soon")
    cleaned = old.successor()
    assert (cleaned.path, cleaned.size, cleaned.base_offset) == (CLEANED_PATH, 0, BASE)
    assert cleaned.index == OffsetIndex(77)
    cleaned.append(parse_header(BATCHES[0]), BASE, 0, (BATCHES[0],))
    cleaned.file.flush()
    before = disk.steps
    cleaned.take_over(old)
    assert disk.steps == before + 1
    assert (cleaned.path, set(disk.files), disk.read_file(PATH)) == (PATH, {PATH}, BATCHES[0])
    with pytest.raises(OSError, match="closed"):
        old.read_batch(0, parse_header(BATCHES[0]))


def test_what_is_discarded_or_deleted_is_gone(disk: Disk) -> None:
    old = filled(disk, BATCHES)
    old.seal()
    cleaned = old.successor()
    cleaned.discard()
    assert set(disk.files) == {PATH, INDEX_PATH}
    old.delete()
    assert set(disk.files) == set()
    for each in (cleaned, old):
        with pytest.raises(OSError, match="closed"):
            each.file.flush()


def test_a_segment_is_sealed_once_and_unsealed(disk: Disk) -> None:
    segment = Segment(DIRECTORY, BASE, disk, 0)
    assert segment.is_sealed
    before = disk.steps
    segment.seal()
    assert disk.steps == before
    segment = filled(disk, BATCHES)
    assert not segment.is_sealed
    before = disk.steps
    segment.seal()
    segment.seal()
    assert segment.is_sealed and disk.steps == before + 2
    assert disk.files[PATH].flushed == b"".join(BATCHES)
    segment.unseal()
    assert not segment.is_sealed and disk.read_file(INDEX_PATH) == b""
    segment.seal()
    assert disk.files[INDEX_PATH].data


def test_an_index_file_that_is_wrong_seals_nothing(disk: Disk) -> None:
    before = disk.steps
    assert Segment(DIRECTORY, BASE, disk, 0).load_index() == 0
    assert disk.steps == before + 1, "nothing is removed where nothing is"
    filled(disk, BATCHES).seal()
    good = disk.read_file(INDEX_PATH) or b""
    whole = disk.files[PATH].data[:]
    for data, size in ((good[:-1], SIZE), (b"", SIZE), (good, SIZE - 1)):
        disk.replace_file(INDEX_PATH, data)
        disk.files[PATH].data = whole[:size]
        segment = Segment(DIRECTORY, BASE, disk, 0)
        assert segment.load_index() == 0
        assert (segment.next_offset, segment.max_timestamp, len(segment.index)) == (BASE, NO_TIMESTAMP, 0)
        assert disk.read_file(INDEX_PATH) is None
    # Bytes after the sealed size remain to be checked.
    disk.replace_file(INDEX_PATH, good)
    disk.files[PATH].data = whole + b"more"
    segment = Segment(DIRECTORY, BASE, disk, 0)
    assert (segment.load_index(), segment.is_sealed) == (SIZE, False)


# --- finding and reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [0, 100, 400, 1 << 20])
def test_the_position_of_an_offset_is_that_of_its_batch(disk: Disk, interval: int) -> None:
    indexed = filled(disk, BATCHES, interval=interval)
    for segment in (indexed, Segment(DIRECTORY, BASE, disk, interval)):
        for offset in range(END):
            ends = zip(positions(BATCHES), map(parse_header, BATCHES), strict=True)
            expected = next(at for at, header in ends if header.last_offset >= offset)
            assert segment.position_of(offset) == expected
        assert [segment.position_of(offset) for offset in (END, END + 9)] == [SIZE, SIZE]


def test_a_search_begins_at_the_entry_of_the_index(disk: Disk) -> None:
    segment, at = filled(disk, BATCHES), positions(BATCHES)
    for offset, number in ((5, 0), (9, 2), (10, 3), (19, 8)):
        segment.position_of(offset)
        assert disk.forget_reads() == [(at[number], 1 << 13)]


def test_damage_before_an_offset_is_named(disk: Disk) -> None:
    segment, at = filled(disk, BATCHES, interval=1 << 20), positions(BATCHES)

    def is_damaged(position: int, expected: int) -> None:
        text = f"^{PATH.name} is damaged at byte {position}, offset {expected}$"
        for offset in (expected, END):
            with pytest.raises(CorruptRecordError, match=text):
                segment.position_of(offset)
        assert segment.position_of(expected - 1) < position

    disk.files[PATH].data.pop()
    is_damaged(at[8], 18)
    disk.flip(at[3] + 7)
    is_damaged(at[3], 10)
    del disk.files[PATH].data[at[1] : at[2]]
    is_damaged(at[1], 6)


def test_gaps_are_passed_over_up_to_a_batch_or_the_end(disk: Disk) -> None:
    segment, at = filled(disk, BATCHES), positions(BATCHES)
    ends = [at[0], at[1], at[2], at[3], at[6], at[6], at[6], at[7], SIZE]
    assert [segment.after_gaps(position) for position in at] == ends
    assert segment.after_gaps(SIZE) == SIZE


@pytest.mark.parametrize("batches", [BATCHES[2:4], BATCHES[4:6], BATCHES[3:4]])
def test_a_read_has_so_many_bytes_but_no_torn_batch_first(disk: Disk, batches: Sequence[bytes]) -> None:
    segment = filled(disk, batches, base=BASE)
    data, first = b"".join(batches), len(batches[0])
    for most in range(len(data) + 2):
        cut = data[:most]
        assert segment.read(0, most, whole_first_batch=False) == (cut if most >= first else b"")
        assert segment.read(0, most, whole_first_batch=True) == (cut if most >= first else data[:first])
    for is_whole in (False, True):
        assert segment.read(first, 1000, whole_first_batch=is_whole) == data[first:]
        assert segment.read(len(data), 1000, whole_first_batch=is_whole) == b""
    # A part of a batch, as a crash leaves it; an open log has none.
    disk.files[PATH].data = bytearray(data[: first - 1])
    assert segment.read(0, 1000, whole_first_batch=False) == b""
    assert segment.read(0, 1000, whole_first_batch=True) == data[: first - 1]


def test_a_read_takes_two_steps_only_for_a_larger_batch(disk: Disk) -> None:
    segment = filled(disk, BATCHES[3:])
    size = len(BATCHES[3])
    for most, reads in ((0, [(0, 61), (0, size)]), (100, [(0, 100), (0, size)]), (size, [(0, size)])):
        assert segment.read(0, most, whole_first_batch=True) == BATCHES[3]
        assert disk.forget_reads() == reads
    for most in (60, 61, size - 1):
        assert segment.read(0, most, whole_first_batch=False) == b""
        assert disk.forget_reads() == [(0, most)]


def test_bytes_that_are_only_sealed_are_checked_when_read(disk: Disk) -> None:
    segment, at = sealed(disk, BATCHES), positions(BATCHES)
    good = disk.files[PATH].data[:]
    assert [segment.read(start, SIZE, whole_first_batch=True) for start in at] == [good[start:] for start in at]
    # The offset and the epoch, which the checksum does not cover, and a byte that it covers.
    for place in (7, 15, HEADER_BYTES - 1):
        for number in range(1, len(BATCHES)):
            disk.files[PATH].data = good[:]
            disk.flip(at[number] + place)
            for start in at[:number]:
                assert segment.read(start, SIZE, whole_first_batch=True) == good[start : at[number]]
            if place != 7:
                offset = parse_header(BATCHES[number]).base_offset
                with pytest.raises(CorruptRecordError, match=f"^{PATH.name} is damaged at offset {offset}$"):
                    segment.read(at[number], SIZE, whole_first_batch=True)


def test_only_bytes_before_the_end_of_the_seal_are_checked(disk: Disk) -> None:
    segment, at = sealed(disk, BATCHES[:7]), positions(BATCHES)
    for data in BATCHES[7:]:
        header = parse_header(data)
        segment.append(header, header.base_offset, header.partition_leader_epoch, (data,))
    whole = b"".join(BATCHES)
    # A verified response has whole batches only.
    for first, last in ((0, 4), (5, 7), (6, 8)):
        asked = at[last] - at[first] + 10
        assert segment.read(at[first], asked, whole_first_batch=True) == whole[at[first] : at[last]]
    assert segment.read(at[7], at[8] - at[7] + 10, whole_first_batch=True) == whole[at[7] : at[8] + 10]


# --- searching for times ---------------------------------------------------------------------------------------------

#: Batches of a producer, and the same after compactions or with the log's own time; timestamps go back and forth.
TIMED: dict[str, tuple[Sequence[Deltas], bool]] = {
    "as it was written": ([(0, 3), (1, 0), (2, 7), (3, 5)], False),
    "with gaps": ([(1, 4), (4, 2), (5, 6)], False),
    "stamped": ([(0, 0), (1, 0), (2, 0)], True),
    "stamped, with gaps": ([(2, 0), (3, 0)], True),
}


@pytest.mark.behaviour("Log", "A search by time finds the first record at or after it")
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("kinds", [list(TIMED), list(TIMED)[::-1]])
def test_a_search_by_time_is_that_of_all_records(disk: Disk, codec: CompressionType, kinds: list[str]) -> None:
    batches: list[bytes] = []
    records: list[tuple[int, int]] = []
    base = BASE
    for kind in kinds:
        deltas, is_stamped = TIMED[kind]
        most = BASE_MS + max(delta for _, delta in deltas) + 2 * is_stamped
        batches.append(batch_at(base, deltas, most_ms=most, codec=codec, is_stamped=is_stamped))
        records += [(base + at, most if is_stamped else BASE_MS + delta) for at, delta in deltas]
        base += deltas[-1][0] + 1
        # An empty batch has a timestamp in its header that no record has.
        batches.append(gap_at(base, 1, most_ms=BASE_MS + 90, producer=3))
        base += 2
    segment = filled(disk, batches)
    for start in range(base + 1):
        kept = [(offset, stamp) for offset, stamp in records if offset >= start]
        for asked in range(BASE_MS - 1, BASE_MS + 10):
            first = next((TimestampOffset(stamp, offset) for offset, stamp in kept if stamp >= asked), None)
            assert segment.offset_for_timestamp(asked, start) == first
        latest = max((stamp for _, stamp in kept), default=None)
        newest = next((TimestampOffset(stamp, offset) for offset, stamp in kept if stamp == latest), None)
        assert segment.max_timestamp_record(start) == newest


def test_the_newest_record_is_the_first_of_its_time(disk: Disk) -> None:
    stamps = (5, 30, 20, 30, 10)
    segment = filled(disk, [batch_at(BASE + number, [(0, stamp)]) for number, stamp in enumerate(stamps)])
    first = {-3: 1, -1: 1, 0: 1, 1: 1, 2: 3, 3: 3, 4: 4}
    found = {start: segment.max_timestamp_record(BASE + start) for start in first}
    assert found == {start: TimestampOffset(BASE_MS + stamps[at], BASE + at) for start, at in first.items()}
    assert segment.max_timestamp_record(BASE + 5) is None


@pytest.mark.parametrize("has_gaps", [False, True])
def test_a_search_compares_so_many_records_of_a_batch(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, has_gaps: bool
) -> None:
    monkeypatch.setattr(module, "SEARCHED_RECORDS", 10)
    step = 1 + has_gaps
    deltas = [(number * step, 40 if number == 29 else number % 3) for number in range(30)]
    segment = filled(disk, [batch_at(BASE, deltas)])
    # Records before the first relevant offset are skipped if their number tells their offset; other records count.
    of_gaps = ((0, 10), (1, 10), (9, 10), (10, 10), (11, 11), (25, 25), (29, 29))
    for start, stopped in of_gaps if has_gaps else ((0, 10), (7, 17), (18, 28), (25, 29)):
        found = segment.offset_for_timestamp(BASE_MS + 40, BASE + start * step)
        assert found == TimestampOffset(BASE_MS + 40, BASE + stopped * step)


def test_the_newest_claimed_time_is_answered_too_early(disk: Disk) -> None:
    segment = filled(disk, [batch_at(BASE, [(0, 40), (1, 3)]), batch_at(BASE + 2, [(0, 1)], most_ms=BASE_MS + 20)])
    for start in (BASE + 1, BASE + 2):
        assert segment.max_timestamp_record(start) == TimestampOffset(BASE_MS + 20, BASE + 2)


def test_a_cut_batch_has_the_newest_of_so_many_records(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEARCHED_RECORDS", 10)
    segment = filled(disk, [batch_at(BASE, [(number, 40 if number == 29 else number % 3) for number in range(30)])])
    for start, newest in ((1, 2), (19, 20), (20, 29)):
        stamp = BASE_MS + (40 if newest == 29 else 2)
        assert segment.max_timestamp_record(BASE + start) == TimestampOffset(stamp, BASE + newest)


def test_a_time_that_no_record_has_is_answered_too_early(disk: Disk) -> None:
    segment = filled(disk, [batch_at(BASE, [(0, 1), (1, 2)], most_ms=BASE_MS + 50)])
    for start in (0, BASE):
        assert segment.offset_for_timestamp(BASE_MS + 3, start) == TimestampOffset(BASE_MS + 50, BASE)
    assert segment.offset_for_timestamp(BASE_MS + 3, BASE + 1) is None


def test_a_search_by_time_refuses_damage_and_too_much(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = filled(disk, [batch_at(BASE, [(0, 1)], value=b"x" * 1000, codec=CompressionType.GZIP)])
    # Attributes, deltas and a null key take a byte each, the lengths two, and the number of headers one.
    size = 1000 + 5 + 2 * 2
    monkeypatch.setattr(module, "MAX_DECOMPRESSED_BYTES", size)
    assert segment.offset_for_timestamp(BASE_MS, BASE) == TimestampOffset(BASE_MS + 1, BASE)
    monkeypatch.setattr(module, "MAX_DECOMPRESSED_BYTES", size - 1)
    with pytest.raises(CorruptRecordError, match="1008"):
        segment.offset_for_timestamp(BASE_MS, BASE)
    disk.flip(HEADER_BYTES + 20)
    with pytest.raises(CorruptRecordError, match=f"^{PATH.name} is damaged at offset {BASE}$"):
        segment.offset_for_timestamp(BASE_MS, BASE)


def test_a_stamped_batch_is_searched_without_its_records(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DECOMPRESSED_BYTES", 0)
    deltas = [(0, 0), (1, 0), (2, 0)]
    segment = filled(disk, [batch_at(BASE, deltas, codec=CompressionType.GZIP, is_stamped=True)])
    found = [segment.offset_for_timestamp(BASE_MS, offset) for offset in range(BASE + 4)]
    expected = [max(offset, BASE) for offset in range(BASE + 3)]
    assert found == [*(TimestampOffset(BASE_MS, offset) for offset in expected), None]


def test_a_search_counts_records_of_which_none_is_missing(disk: Disk) -> None:
    # The second record has a wrong offset, as a producer may write it.
    segment = filled(disk, [batch_at(BASE, [(0, 0), (7, 5), (2, 1)], last=2)])
    for asked, number in ((0, 0), (1, 1), (5, 1)):
        found = segment.offset_for_timestamp(BASE_MS + asked, BASE)
        assert found is not None and found.offset == BASE + number


def test_a_search_by_time_begins_at_the_entry_of_the_index(disk: Disk) -> None:
    batches = [batch_at(BASE + number, [(0, stamp)]) for number, stamp in enumerate((5, 30, 20, 31, 10))]
    segment, at, size = filled(disk, batches), positions(batches), len(batches[0])
    for stamp, number in ((0, 0), (5, 0), (6, 1), (30, 1), (31, 3)):
        found = segment.offset_for_timestamp(BASE_MS + stamp, BASE)
        assert found is not None and found.offset == BASE + number
        assert disk.forget_reads() == [(at[number], 1 << 13), (at[number], size)]
    assert segment.offset_for_timestamp(BASE_MS + 32, BASE) is None
    assert disk.forget_reads() == []
