"""Appending to a log, reading it back, rolling, retention and failing disks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.broker.log import segment
from kafka_sink.broker.log.filesystem import FileSystem, OsFileSystem
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.log.segment import TimestampOffset
from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.records.batch import parse_header
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.reader import Record, read_batches
from tests.fakes.log_config import log_config
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.fakes.record_batches import with_header
from tests.hostile.batches import BASE_MS, batch_of, record_of

DIRECTORY = Path("/data/t-0")
CONFIG = log_config(segment_bytes=1 << 30, index_interval_bytes=4096)


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    """The fake disk and the real one must behave alike."""
    return (MemoryFileSystem(), DIRECTORY) if request.param == "memory" else (OsFileSystem(), tmp_path / "t-0")


def open_log(place: tuple[FileSystem, Path], **changes: object) -> PartitionLog:
    return PartitionLog(place[1], place[0], replace(CONFIG, **changes), wall_ms=0)  # type: ignore[arg-type]


def append(log: PartitionLog, *values: bytes, wall_ms: int = 0, epoch: int = 0, **options: int) -> int:
    batch, header = with_header(values or (b"v",), **options)
    return log.append(batch, header, epoch, wall_ms).base_offset


def read_all(log: PartitionLog, start: int | None = None) -> list[Record]:
    records: list[Record] = []
    offset = log.start_offset if start is None else start
    while offset < log.end_offset:
        data = log.read(offset, 1 << 20, whole_first_batch=True).records
        for batch in read_batches(data):
            batch.verify_crc()
            records += [record for record in batch.records() if record.offset >= offset]
        assert records, "a read below the end has to make progress"
        offset = records[-1].offset + 1
    return records


def test_what_is_appended_is_read_back_with_offsets_in_order(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place)
    assert append(log, b"a", b"b", b"c") == 0
    assert append(log, b"d") == 3
    records = read_all(log)
    assert [(record.offset, record.value) for record in records] == list(enumerate([b"a", b"b", b"c", b"d"]))
    assert (log.start_offset, log.end_offset) == (0, 4)


def test_only_offset_and_leader_epoch_differ_from_what_was_sent(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place)
    append(log, b"first")
    batch, header = with_header([b"second", b"third"], compression=CompressionType.LZ4)
    sent = bytes(batch)
    log.append(batch, header, 7, 0)
    assert bytes(batch) == sent, "the request's own bytes stay as they are"
    (stored,) = read_batches(log.read(1, 1 << 20, whole_first_batch=True).records)
    assert stored.header.base_offset == 1
    assert stored.header.partition_leader_epoch == 7
    assert bytes(stored.data)[16:] == sent[16:]


@pytest.mark.behaviour("Log", "Every offset of a long log is found")
def test_every_offset_of_a_long_log_is_found(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place, segment_bytes=3000, index_interval_bytes=200)
    for number in range(60):
        append(log, *[b"x" * (number % 40)] * (1 + number % 4))
    end = log.end_offset
    for offset in range(end):
        data = log.read(offset, 100_000, whole_first_batch=True).records
        first = next(read_batches(data))
        assert first.base_offset <= offset <= first.last_offset
    assert [record.offset for record in read_all(log)] == list(range(end))


def test_read_at_log_end_is_empty_and_beyond_it_is_an_error(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place)
    append(log, b"a")
    assert log.read(1, 1000, whole_first_batch=True).records == b""
    for offset in (-1, 2, 2**62):
        with pytest.raises(ApiError) as caught:
            log.read(offset, 1000, whole_first_batch=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_limits_of_a_read(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place)
    append(log, b"x" * 1000)
    append(log, b"y" * 1000)
    size = log.size // 2
    assert log.read(0, 100, whole_first_batch=False).records == b""
    assert len(log.read(0, 100, whole_first_batch=True).records) == size
    assert len(log.read(0, 0, whole_first_batch=True).records) == size
    assert log.read(0, 0, whole_first_batch=False).records == b""
    assert len(log.read(0, size + 50, whole_first_batch=True).records) == size + 50
    assert len(log.read(0, 1 << 20, whole_first_batch=True).records) == 2 * size


def test_segments_are_rolled_by_size(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place, segment_bytes=500)
    for number in range(10):
        append(log, bytes([number]) * 100)
    names = [name for name in place[0].list_directory(log.directory) if name.endswith(".log")]
    assert len(names) == 5
    assert names[1] == "00000000000000000002.log"
    assert [record.value[0] for record in read_all(log) if record.value] == list(range(10))


@pytest.mark.parametrize("is_reopened", [False, True])
def test_segments_are_rolled_by_the_age_of_their_batches(place: tuple[FileSystem, Path], is_reopened: bool) -> None:
    log = open_log(place, segment_ms=100)
    # A batch without a timestamp, or with an earlier one, rolls no segment.
    for timestamp in (1000, 1100, 900, -1, 1101, 1150):
        append(log, b"v", base_timestamp=timestamp)
        if is_reopened:
            log.close()
            log = open_log(place, segment_ms=100)
    names = [name for name in place[0].list_directory(log.directory) if name.endswith(".log")]
    assert names == ["00000000000000000000.log", "00000000000000000004.log"]
    assert len(read_all(log)) == 6


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place, segment_bytes=200)
    for _ in range(3):
        append(log, b"z" * 1000)
    assert [record.offset for record in read_all(log)] == [0, 1, 2]


def test_duplicate_gets_its_old_offset_and_is_not_written(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place)
    append(log, b"before")
    options = {"producer_id": 5, "producer_epoch": 0}
    assert append(log, b"a", b"b", base_sequence=0, **options) == 1
    size = log.size
    batch, header = with_header([b"a", b"b"], base_sequence=0, **options)
    assert log.append(batch, header, 0, 0).base_offset == 1
    assert log.size == size
    with pytest.raises(ApiError) as caught:
        append(log, b"c", base_sequence=3, **options)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, b"c", base_sequence=2, **options) == 3


@pytest.mark.behaviour("Log", "Timestamps are the producer's, or those of the log (LogAppendTime)")
def test_timestamps_are_the_producers_unless_the_log_stamps(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place, log_append_time=True)
    batch, header = with_header([b"a", b"b"], base_timestamp=5)
    info = log.append(batch, header, 0, 777)
    assert info.log_append_time_ms == 777
    assert [record.timestamp for record in read_all(log)] == [777, 777]
    assert header.max_timestamp == 6


@pytest.mark.behaviour("Log", "A search by time finds the first record at or after it")
@pytest.mark.parametrize("compression", list(CompressionType))
def test_the_first_record_at_or_after_a_time(place: tuple[FileSystem, Path], compression: CompressionType) -> None:
    log = open_log(place, segment_bytes=400, index_interval_bytes=0)
    # Timestamps go back and forth between batches, as those of many producers do.
    starts = [100, 50, 300, 200, 400, 350]
    for start in starts:
        append(log, b"v" * 30, b"w" * 30, base_timestamp=start, compression=compression)
    stamps = [stamp for start in starts for stamp in (start, start + 1)]
    for asked in range(40, 410):
        expected = next((offset for offset, stamp in enumerate(stamps) if stamp >= asked), None)
        found = log.offset_for_timestamp(asked)
        assert (found.offset if found else None) == expected
        assert found is None or found.timestamp == stamps[found.offset]
    latest = log.max_timestamp_record()
    assert latest is not None and (latest.timestamp, latest.offset) == (401, 9)


@pytest.mark.behaviour("Log", "A search by time compares a bounded number of records, and never answers too late")
def test_a_search_by_time_is_bounded(place: tuple[FileSystem, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SEARCHED_RECORDS", 10)
    log = open_log(place)
    # The only late record is the last of its batch; the header of the next batch states a timestamp that no record has.
    slow = batch_of([*map(record_of, range(29)), record_of(29, timestamp=encode_varint(50))], most_ms=BASE_MS + 50)
    lying = batch_of([*map(record_of, range(5))], most_ms=BASE_MS + 900)
    for data in (slow, lying, batch_of([record_of(0)], most_ms=BASE_MS)):
        log.append(memoryview(bytearray(data)), parse_header(data), 0, 0)
    assert log.offset_for_timestamp(BASE_MS + 50) == TimestampOffset(BASE_MS + 50, 10)
    assert log.offset_for_timestamp(BASE_MS + 51) == TimestampOffset(BASE_MS + 900, 30)
    monkeypatch.setattr(segment, "SEARCHED_RECORDS", 30)
    assert log.offset_for_timestamp(BASE_MS + 50) == TimestampOffset(BASE_MS + 50, 29)


def test_an_empty_log(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place)
    assert (log.start_offset, log.end_offset, log.size) == (0, 0, 0)
    assert log.read(0, 100, whole_first_batch=True).records == b""
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_record() is None


@pytest.mark.behaviour(
    "Retention and DeleteRecords", "Retention by size keeps what is asked for, and the active segment"
)
def test_retention_by_size_keeps_limit_and_active_segment(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place, segment_bytes=300, retention_bytes=700)
    for _ in range(20):
        append(log, b"x" * 100)
    log.seal_rolled_segments()
    assert log.apply_retention(0) > 0
    assert 700 <= log.size < 700 + 400
    start = log.start_offset
    assert start > 0
    assert [record.offset for record in read_all(log)] == list(range(start, 20))
    with pytest.raises(ApiError) as caught:
        log.read(start - 1, 100, whole_first_batch=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.apply_retention(0) == 0


@pytest.mark.behaviour("Retention and DeleteRecords", "Retention by time deletes old segments")
def test_retention_by_time(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place, segment_bytes=100, retention_ms=1000)
    for start in (1000, 5000, -1):
        append(log, b"x" * 50, base_timestamp=start)
    append(log, b"active", base_timestamp=0)
    assert log.apply_retention(2000) == 0
    assert log.apply_retention(2001) == 1
    assert log.apply_retention(6000) == 0
    # Records without a timestamp are kept, because their age is unknown.
    assert log.apply_retention(10**9) == 1
    assert log.start_offset == 2


HOUR_MS = 3_600_000


@pytest.mark.behaviour(
    "Retention and DeleteRecords",
    "A clock that jumps moves retention no further than it jumped, and offsets and searches stay right",
)
@pytest.mark.behaviour("Faults: the embedded broker", "A clock that jumps moves retention no further than the jump")
def test_clock_jump_moves_retention_no_further_than_the_jump(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place, segment_bytes=100, retention_ms=4 * HOUR_MS)
    start = 10 * HOUR_MS
    for hour in range(4):
        append(log, b"x" * 50, base_timestamp=start + hour * HOUR_MS)
    now = start + 4 * HOUR_MS
    assert log.apply_retention(now) == 0
    assert log.apply_retention(now - HOUR_MS) == 0, "back: everything is younger, nothing goes"
    assert log.apply_retention(now + HOUR_MS) == 1, "on: what is older than retention.ms by that clock goes, no more"
    assert log.apply_retention(now) == 0
    assert log.start_offset == 1
    assert log.apply_retention(2**62) == 2, "never the active segment"
    assert [record.offset for record in read_all(log)] == [3]


@pytest.mark.behaviour(
    "Retention and DeleteRecords",
    "A clock that jumps moves retention no further than it jumped, and offsets and searches stay right",
)
@pytest.mark.behaviour(
    "Faults: the embedded broker", "A clock that jumps leaves offsets, timestamps and searches right"
)
def test_clock_jump_keeps_offsets_timestamps_and_searches_right(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place, log_append_time=True, index_interval_bytes=0)
    clock = [20 * HOUR_MS, 21 * HOUR_MS, 19 * HOUR_MS, 20 * HOUR_MS]
    for now in clock:
        append(log, b"x", wall_ms=now)
    assert [record.timestamp for record in read_all(log)] == clock
    again = open_log(place, log_append_time=True, index_interval_bytes=0)
    for reader in (log, again):
        found = {asked: reader.offset_for_timestamp(asked * HOUR_MS) for asked in (19, 20, 21, 22)}
        assert {asked: each.offset if each else None for asked, each in found.items()} == {
            19: 0,
            20: 0,
            21: 1,
            22: None,
        }
        newest = reader.max_timestamp_record()
        assert newest is not None and newest.offset == 1


@pytest.mark.behaviour("Retention and DeleteRecords", "Deleted records stay deleted")
@pytest.mark.parametrize("crash", [False, True])
def test_deleted_records_stay_deleted(place: tuple[FileSystem, Path], crash: bool) -> None:
    log = open_log(place, segment_bytes=300, index_interval_bytes=0)
    for number in range(10):
        append(log, b"x" * 50, b"y" * 50, base_timestamp=number * 10)
    assert log.delete_records_before(7) == 7
    assert log.delete_records_before(3) == 7
    if not crash:
        log.close()
    again = open_log(place, segment_bytes=300, index_interval_bytes=0)
    for reader in (log, again) if crash else (again,):
        assert (reader.start_offset, reader.end_offset) == (7, 20)
        with pytest.raises(ApiError) as caught:
            reader.read(6, 100, whole_first_batch=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert [record.offset for record in read_all(reader)] == list(range(7, 20))
        assert reader.offset_for_timestamp(0) == TimestampOffset(31, 7)
    names = [name for name in place[0].list_directory(again.directory) if name.endswith((".log", ".start"))]
    assert names[0] >= f"{6:020d}.log" and [name for name in names if name.endswith(".start")] == [f"{7:020d}.start"]
    assert again.delete_records_before(-1) == 20
    assert again.max_timestamp_record() is None
    assert append(again, b"z") == 20
    assert [record.offset for record in read_all(again)] == [20]
    for offset in (22, -2):
        with pytest.raises(ApiError) as caught:
            again.delete_records_before(offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.behaviour("Log", "Leader epochs are known again after a restart")
@pytest.mark.parametrize("crash", [False, True])
def test_leader_epochs_are_known_again_after_a_restart(place: tuple[FileSystem, Path], crash: bool) -> None:
    log = open_log(place, segment_bytes=300)
    for epoch in (0, 0, 2, 2, 2, 5, 5):
        append(log, b"x" * 100, epoch=epoch)
    # An append with an older epoch.
    assert append(log, b"late", epoch=2) == 7
    ends = {0: (0, 2), 1: (0, 2), 2: (2, 5), 4: (2, 5), 5: (5, 8), 6: (5, 8)}
    assert {epoch: log.end_of_epoch(epoch) for epoch in ends} == ends
    if not crash:
        log.close()
    again = open_log(place, segment_bytes=300)
    assert {epoch: again.end_of_epoch(epoch) for epoch in ends} == ends
    # An epoch without remaining records ends at the log start offset.
    again.delete_records_before(6)
    assert again.end_of_epoch(0) == (0, 6)
    assert again.end_of_epoch(5) == (5, 8)


@pytest.mark.behaviour("Log", "log.flush.interval.messages flushes before the answer")
def test_flush_interval_flushes_before_the_answer() -> None:
    disk = MemoryFileSystem()
    log = open_log((disk, DIRECTORY), flush_interval_messages=3)
    segment = disk.files[DIRECTORY / "00000000000000000000.log"]
    append(log, b"a", b"b")
    assert segment.flushed == b""
    append(log, b"c")
    assert segment.flushed == bytes(segment.data)


def test_a_full_disk_costs_the_batch_and_nothing_else() -> None:
    disk = MemoryFileSystem()
    log = open_log((disk, DIRECTORY))
    append(log, b"a" * 100)
    for room in (0, 1, 60, 100):
        disk.full_after_bytes = room
        with pytest.raises(ApiError, match="No space left") as caught:
            append(log, b"b" * 100)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.end_offset == 1
    disk.full_after_bytes = None
    assert append(log, b"c" * 100) == 1
    assert [record.value for record in read_all(log)] == [b"a" * 100, b"c" * 100]


def test_a_full_disk_when_a_segment_is_rolled() -> None:
    disk = MemoryFileSystem()
    log = open_log((disk, DIRECTORY), segment_bytes=200)
    append(log, b"a" * 100)
    disk.full_after_bytes = 0
    with pytest.raises(ApiError) as caught:
        append(log, b"b" * 100)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.full_after_bytes = None
    assert append(log, b"b" * 100) == 1
    assert len(read_all(log)) == 2


def test_a_torn_write_that_cannot_be_undone_ends_the_log() -> None:
    disk = MemoryFileSystem()
    log = open_log((disk, DIRECTORY))
    append(log, b"a")
    disk.full_after_bytes, disk.fail_truncate = 10, True
    with pytest.raises(ApiError):
        append(log, b"b")
    disk.full_after_bytes, disk.fail_truncate = None, False
    for use in (lambda: append(log, b"c"), lambda: log.read(0, 100, whole_first_batch=True)):
        with pytest.raises(ApiError) as caught:
            use()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    # Acknowledged records are there after the next start.
    again = open_log((disk, DIRECTORY))
    assert again.truncated_bytes == 10
    assert [record.value for record in read_all(again)] == [b"a"]


def test_a_failed_flush_ends_the_log() -> None:
    disk = MemoryFileSystem()
    log = open_log((disk, DIRECTORY), flush_interval_messages=1)
    disk.fail_flush = True
    with pytest.raises(ApiError, match="flush failed"):
        append(log, b"a")
    disk.fail_flush = False
    with pytest.raises(ApiError) as caught:
        append(log, b"b")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_removed_log_answers_that_there_is_none(place: tuple[FileSystem, Path]) -> None:
    log = open_log(place)
    append(log, b"a")
    log.abandon()
    for use in (lambda: append(log, b"b"), lambda: log.read(0, 10, whole_first_batch=True)):
        with pytest.raises(ApiError) as caught:
            use()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The housekeeping may still hold the log, which has no effect.
    log.seal_rolled_segments()
    assert log.apply_retention(0) == 0
    log.close()
