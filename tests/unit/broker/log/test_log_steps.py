"""The exact results of a log, and its operations on the disk and their times: flushes, seals, deletions, failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker.log.compaction import CompactionRules
from kafka_sink.broker.log.partition_log import AppendInfo, LogRead, PartitionLog
from kafka_sink.broker.log.producer_state import AbortedRange
from kafka_sink.broker.log.segment import segment_path
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.records.control import EndTransactionMarker
from kafka_sink.records.reader import read_batches
from tests.fakes.compacted_log import DIRECTORY, CompactedLog
from tests.fakes.log_config import NEVER, log_config
from tests.fakes.memory_filesystem import MemoryFileSystem, MemoryLogFile
from tests.fakes.record_batches import with_header
from tests.unit.broker.log.made_segments import batch_at, filled, gap_at

#: A segment has two batches of one record of 100 bytes.
CONFIG = log_config(segment_bytes=400, index_interval_bytes=0)


class Disk(MemoryFileSystem):
    """Notes the flushed segments, by their base offsets. Runs :attr:`meanwhile` before the next flush, once, and
    :attr:`afterwards` after it."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[int] = []
        self.meanwhile: Callable[[], object] | None = None
        self.afterwards: Callable[[], object] | None = None

    def open(self, path: Path) -> MemoryLogFile:
        file = super().open(path)
        really_flush = file.flush

        def flush() -> None:
            before, self.meanwhile = self.meanwhile, None
            if before is not None:
                before()
            really_flush()
            self.flushed.append(int(path.stem))
            after, self.afterwards = self.afterwards, None
            if after is not None:
                after()

        file.flush = flush  # type: ignore[method-assign]
        return file

    def forget_flushed(self) -> list[int]:
        seen, self.flushed = self.flushed, []
        return seen

    def names(self, suffix: str) -> list[int]:
        return sorted(int(path.stem) for path in self.files if path.suffix == suffix)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def open_log(disk: MemoryFileSystem, wall_ms: int = 0, **changes: Any) -> PartitionLog:
    return PartitionLog(DIRECTORY, disk, replace(CONFIG, **changes), wall_ms)


def write(log: PartitionLog, *values: bytes, wall_ms: int = 0, **options: Any) -> AppendInfo:
    batch, header = with_header(values or (b"x" * 100,), **options)
    guard = None
    if header.is_transactional:
        guard = log.begin_verification(header.producer_id, header.producer_epoch, header.base_sequence, wall_ms)
    return log.append(batch, header, 0, wall_ms, guard)


def in_transaction(log: PartitionLog, producer: int, sequence: int = 0, *values: bytes) -> AppendInfo:
    named = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    return write(log, *values, is_transactional=True, **named)


def end(log: PartitionLog, producer: int, *, commit: bool = False, wall_ms: int = 0) -> AppendInfo:
    return log.append_marker(EndTransactionMarker(producer, 0, commit, 0), 0, wall_ms)


# --- results ---------------------------------------------------------------------------------------------------------


def test_an_append_says_where_when_and_where_the_log_begins(disk: Disk) -> None:
    log = open_log(disk)
    named = {"producer_id": 7, "producer_epoch": 0, "base_timestamp": 500}
    assert write(log, b"a", b"b", wall_ms=30, **named, base_sequence=0) == AppendInfo(0, -1, 0)
    assert write(log, b"c", wall_ms=40, **named, base_sequence=2) == AppendInfo(2, -1, 0)
    log.delete_records_before(1)
    assert end(log, 8, wall_ms=60) == AppendInfo(3, 60, 1)
    log.reconfigure(replace(CONFIG, log_append_time=True))
    assert write(log, b"d", b"e", wall_ms=70, **named, base_sequence=3) == AppendInfo(4, 70, 1)
    # A duplicate returns the largest timestamp of the stored batch.
    assert write(log, b"a", b"b", wall_ms=80, **named, base_sequence=0) == AppendInfo(0, 501, 1)
    assert write(log, b"d", b"e", wall_ms=90, **named, base_sequence=3) == AppendInfo(4, 70, 1)
    assert log.end_offset == 6


def test_a_read_comes_with_the_state_of_the_log(disk: Disk) -> None:
    assert LogRead(b"", 1, 2, 3, 4) == LogRead(b"", 1, 2, 3, 4, (), is_closed=False)
    log = open_log(disk)
    for sequence in range(2):
        in_transaction(log, 1, sequence)
    first = log.size // 2
    write(log)
    assert log.read(1, first, whole_first_batch=True) == LogRead(
        bytes(disk.files[segment_path(DIRECTORY, 0, ".log")].data[first:]), 3, 0, log.size, 0, (), is_closed=True
    )
    assert log.read(2, 0, whole_first_batch=False) == LogRead(b"", 3, 0, log.size, 0, (), is_closed=False)
    assert log.read(0, 1000, whole_first_batch=True, committed=True) == LogRead(b"", 3, 0, 0, 0, (), is_closed=False)
    end(log, 1)
    found = log.read(1, 1000, whole_first_batch=True, committed=True)
    assert (found.aborted, found.is_closed, found.appended_bytes) == ((AbortedRange(1, 0, 3),), True, log.size)
    assert log.read(1, 1000, whole_first_batch=True).aborted == ()


def test_bytes_below_the_last_stable_offset_are_exact(disk: Disk) -> None:
    log = open_log(disk)
    assert (log.appended_bytes(), log.appended_bytes(committed=True)) == (0, 0)
    sizes = [0]

    def after(_: AppendInfo, stable: int) -> None:
        """The committed bytes are those after the first *stable* appends."""
        sizes.append(log.size)
        assert (log.appended_bytes(), log.appended_bytes(committed=True)) == (sizes[-1], sizes[stable])

    after(write(log, b"plain"), 1)
    after(in_transaction(log, 1), 1)
    after(in_transaction(log, 2), 1)
    after(write(log, b"plain", b"more"), 1)
    after(in_transaction(log, 1, 1), 1)
    after(in_transaction(log, 2, 1), 1)
    after(end(log, 1), 2)
    after(write(log, b"plain"), 2)
    after(in_transaction(log, 1, 2), 2)
    after(end(log, 2), 8)
    after(end(log, 3), 8)
    after(end(log, 1), 12)
    # A transaction that was open before keeps all later records uncommitted.
    in_transaction(log, 1, 3)
    again = open_log(disk)
    assert (again.appended_bytes(), again.appended_bytes(committed=True)) == (0, 0)
    before = again.size
    write(again)
    assert (again.appended_bytes(), again.appended_bytes(committed=True)) == (again.size - before, 0)
    end(again, 1)
    assert again.appended_bytes() == again.appended_bytes(committed=True) == again.size - before


def test_a_read_has_the_aborted_ones_that_begin_in_it(disk: Disk) -> None:
    log = open_log(disk, segment_bytes=10_000)
    for producer in (1, 2, 3):
        in_transaction(log, producer, 0, b"a", b"b")
    size = log.size // 3
    for producer in (1, 2, 3):
        end(log, producer)
    ranges = tuple(AbortedRange(producer, 2 * producer - 2, producer + 5) for producer in (1, 2, 3))
    # Whole batches, and a part of the next one; then from the middle of a batch.
    for most, count in ((size, 1), (2 * size - 1, 1), (2 * size, 2), (2 * size + 70, 2), (3 * size, 3)):
        found = log.read(0, most, whole_first_batch=True, committed=True)
        assert found.aborted == ranges[:count]
    assert log.read(5, 0, whole_first_batch=True, committed=True).aborted == ranges
    assert log.read(8, 0, whole_first_batch=True, committed=True).aborted == ranges[2:]
    # A response without a batch has no aborted transactions.
    assert log.read(5, 0, whole_first_batch=False, committed=True).aborted == ()


@pytest.mark.parametrize("compacted", [None, 1, 5])
def test_gaps_are_left_out_of_a_log_that_was_compacted(disk: Disk, compacted: int | None) -> None:
    first, second = [gap_at(0, 4), batch_at(5, value=b"x" * 200)], [batch_at(6)]
    for batches in (first, second):
        filled(disk, batches)
    if compacted is not None:
        disk.replace_file(segment_path(DIRECTORY, compacted, ".compacted"), b"")
    # The configuration at this time does not matter.
    log = open_log(disk)
    expected = b"".join(first) if compacted is None else first[1]
    assert log.read(0, 1000, whole_first_batch=True).records == expected
    rules = CompactionRules(0, 0, NEVER, 0.5, 1000)
    assert open_log(disk, compaction=rules).read(0, 1000, whole_first_batch=True).records == first[1]


# --- flushing --------------------------------------------------------------------------------------------------------


def test_a_flush_by_count_takes_all_segments_that_may_need_it(disk: Disk) -> None:
    log = open_log(disk, flush_interval_messages=5)
    for _ in range(4):
        write(log)
    assert disk.forget_flushed() == []
    write(log, b"a", b"b")
    assert disk.forget_flushed() == [0, 2, 4]
    # The count starts at 0 again; sealed segments are flushed already.
    log.seal_rolled_segments()
    disk.forget_flushed()
    for _ in range(2):
        write(log, b"c", b"d")
    assert disk.forget_flushed() == []
    end(log, 1)
    assert disk.forget_flushed() == [4]


def test_a_flush_by_age_counts_from_when_it_was_asked(disk: Disk) -> None:
    log = open_log(disk, flush_interval_ms=100)

    def flushed_at(*times: int) -> list[int]:
        """The times at which something was flushed."""
        found = []
        for now in times:
            log.flush_if_older(now)
            if disk.forget_flushed():
                found.append(now)
        return found

    assert flushed_at(0, 1, 1000) == []
    write(log)
    assert flushed_at(1000, 1099, 1100, 1101, 2000, 3000) == [1100]
    write(log)
    write(log)
    # Both segments, once.
    log.flush_if_older(3000)
    log.flush_if_older(3100)
    assert disk.forget_flushed() == [0, 2]
    assert flushed_at(3101, 3300) == []
    # A record that was written at time 0 is flushed after 100 ms, together with a later one.
    write(log)
    assert flushed_at(0, 50) == []
    write(log)
    assert flushed_at(99, 100, 101, 250) == [100]


def test_what_is_written_during_a_flush_waits_for_the_next(disk: Disk) -> None:
    log = open_log(disk, flush_interval_ms=100, flush_interval_messages=4)
    write(log)
    write(log)
    log.flush_if_older(0)
    disk.meanwhile = lambda: write(log)
    log.flush_if_older(100)
    disk.forget_flushed()
    # The record of the last write is not flushed, and counts for the flush by age and by count.
    log.flush_if_older(200)
    log.flush_if_older(300)
    assert disk.forget_flushed() != []
    log.flush_if_older(400)
    log.flush_if_older(500)
    assert disk.forget_flushed() == []
    write(log, b"a", b"b")
    log.flush_if_older(600)
    disk.meanwhile = lambda: write(log, b"c")
    log.flush_if_older(700)
    disk.forget_flushed()
    write(log, b"d", b"e")
    assert disk.forget_flushed() == []
    # A flush by count in the middle of another one also flushes the data of that one.
    disk.meanwhile = lambda: write(log, b"f")
    log.flush_if_older(800)
    log.flush_if_older(900)
    disk.forget_flushed()
    write(log, b"g", b"h", b"i")
    log.flush_if_older(1000)
    assert disk.forget_flushed() == []
    write(log, b"j")
    assert disk.forget_flushed() != []


def test_a_flush_by_age_that_fails_ends_the_log_and_is_told(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(disk, flush_interval_ms=100)
    write(log)
    log.flush_if_older(0)
    disk.fail_flush = True
    log.flush_if_older(100)
    assert caplog.text.count("flush failed: [Errno 5] Input/output error") == 1
    disk.fail_flush = False
    for _ in range(2):
        with pytest.raises(ApiError, match=r"^flush failed: ") as caught:
            write(log)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.flush_if_older(200)
    log.flush_if_older(300)
    log.seal_rolled_segments()
    log.close()
    assert (disk.flushed, disk.names(".index"), disk.names(".snapshot")) == ([], [], [])


def test_a_log_that_ends_during_its_flush_is_not_told_twice(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(disk, flush_interval_ms=100)
    write(log)
    log.flush_if_older(0)
    disk.meanwhile = log.abandon
    log.flush_if_older(100)
    assert caplog.text == ""
    with pytest.raises(ApiError, match=r"^the log was removed$"):
        write(log)


def test_rolled_segments_are_sealed_one_by_one(disk: Disk) -> None:
    log = open_log(disk)
    for _ in range(7):
        write(log)
    assert disk.names(".index") == []
    log.seal_rolled_segments()
    assert disk.names(".index") == [0, 2, 4]
    steps = disk.steps
    log.seal_rolled_segments()
    assert disk.steps == steps
    # A segment that is deleted during its flush gets no index file; the others do.
    for _ in range(4):
        write(log)
    disk.meanwhile = lambda: log.delete_records_before(8)
    log.seal_rolled_segments()
    assert (disk.names(".log"), disk.names(".index")) == ([8, 10], [8])


def test_a_failed_seal_is_an_error_while_its_segment_is_there(disk: Disk) -> None:
    log = open_log(disk)
    for _ in range(5):
        write(log)
    disk.fail_flush = True
    with pytest.raises(OSError, match="Input/output error"):
        log.seal_rolled_segments()
    disk.fail_flush = False
    # For a log that was removed during the flush, nothing is written.
    disk.meanwhile = log.abandon
    log.seal_rolled_segments()
    assert disk.names(".index") == []


def test_nothing_is_sealed_of_a_log_that_ends_meanwhile(disk: Disk) -> None:
    log = open_log(disk)
    for _ in range(5):
        write(log)
    disk.afterwards = log.abandon
    log.seal_rolled_segments()
    assert (disk.flushed, disk.names(".index")) == ([0], [])


# --- deleting, compacting, closing -----------------------------------------------------------------------------------


def test_records_are_deleted_up_to_any_offset_of_the_log(disk: Disk) -> None:
    log = open_log(disk)
    for producer in (1, 2):
        in_transaction(log, producer, 0, b"a")
        end(log, producer)
    assert log.delete_records_before(0) == 0
    for wrong in (-2, 5, 2**62):
        with pytest.raises(ApiError, match=f"^offset {wrong} is not between 0 and 4$") as caught:
            log.delete_records_before(wrong)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(2) == 2
    found = log.read(2, 1000, whole_first_batch=True, committed=True)
    assert found.aborted == (AbortedRange(2, 2, 3),)
    assert log.delete_records_before(1) == 2
    assert log.delete_records_before(4) == 4
    assert log.delete_records_before(-1) == 4
    for wrong in (3, 5):
        with pytest.raises(ApiError, match=f"^offset {wrong} is out of range: the log has offsets 4 to 4$"):
            log.read(wrong, 1000, whole_first_batch=True)


def test_retention_counts_what_it_deletes(disk: Disk) -> None:
    log = open_log(disk, retention_ms=100, producer_expiration_ms=1000)
    named = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    write(log, base_timestamp=10, wall_ms=10, **named)
    for _ in range(6):
        write(log, base_timestamp=10)
    log.reconfigure(replace(CONFIG, retention_ms=100, deletes=False, producer_expiration_ms=1000))
    assert (log.apply_retention(10_000), log.start_offset, log.producers()) == (0, 0, {})
    log.reconfigure(replace(CONFIG, retention_ms=100))
    assert (log.apply_retention(10_000), log.start_offset, log.end_offset) == (3, 6, 7)
    assert log.apply_retention(10_000) == 0
    for _ in range(4):
        write(log, base_timestamp=10)
    names = disk.names(".log")
    log.abandon()
    assert (log.apply_retention(10_000), disk.names(".log")) == (0, names)


@pytest.mark.parametrize(("count", "rolls"), [(2, False), (3, True)])
def test_offsets_of_a_segment_are_as_many_as_kafkas(disk: Disk, count: int, rolls: bool) -> None:
    filled(disk, [gap_at(0, 2**31 - 3)])
    log = open_log(disk, segment_bytes=10_000)
    assert write(log, *[b"x"] * count).base_offset == 2**31 - 2
    assert disk.names(".log") == ([0, 2**31 - 2] if rolls else [0])


def test_a_failed_append_leaves_the_log_as_it_was(disk: Disk) -> None:
    log = open_log(disk)
    write(log)
    write(log)
    size = log.size
    # The next append writes a snapshot, removes an old index, creates a file, and writes its bytes.
    for steps in (1, 2, 3, 4):
        disk.fail_at = disk.steps + steps
        with pytest.raises(ApiError, match=r"^append failed: \[Errno 5\] Input/output error$") as caught:
            write(log)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (log.end_offset, log.size, log.appended_bytes()) == (2, size, size)
        if steps == 4:
            assert disk.names(".log") == [0, 2]
    assert write(log).base_offset == 2
    again = open_log(disk)
    assert (again.end_offset, again.truncated_bytes) == (3, 0)


def test_a_compaction_begins_when_it_may(disk: Disk) -> None:
    rules = CompactionRules(0, 0, NEVER, 0.4, 1000)
    log = open_log(disk, compaction=rules, segment_bytes=400)
    assert log.begin_compaction(0) is None
    named = {"producer_id": 7, "producer_epoch": 0}
    for sequence in range(3):
        write(log, base_sequence=sequence, **named)
    end(log, 8)
    in_transaction(log, 9)
    end(log, 9)
    log.reconfigure(CONFIG)
    assert log.begin_compaction(5) is None
    log.reconfigure(replace(CONFIG, compaction=rules))
    due = log.begin_compaction(5)
    assert due is not None
    assert [segment.base_offset for segment in due.segments] == [0, 2]
    assert (due.first_dirty, due.rules, due.segment_bytes, due.wall_ms) == (0, rules, 400, 5)
    assert due.last_batches == {7: (2, 0), 8: (-1, 0), 9: (4, 0)}
    assert due.aborted == (AbortedRange(9, 4, 5),)
    # Compacted or deleted records are not dirty.
    log.note_compacted(2)
    due = log.begin_compaction(5)
    assert due is not None and due.first_dirty == 2
    log.delete_records_before(3)
    due = log.begin_compaction(5)
    assert due is not None and due.first_dirty == 3
    log.refuse_compaction()
    assert log.begin_compaction(5) is None


def test_no_compaction_of_a_log_that_has_failed(disk: Disk) -> None:
    log = open_log(disk, compaction=CompactionRules(0, 0, NEVER, 0.4, 1000))
    for _ in range(3):
        write(log)
    due = log.begin_compaction(0)
    assert due is not None
    log.abandon()
    assert log.begin_compaction(0) is None
    log.note_compacted(2)
    assert disk.names(".compacted") == []
    assert not log.replace(due.segments, due.segments[0].successor(), ())


def test_where_it_was_compacted_is_stored_when_it_changes(disk: Disk) -> None:
    log = open_log(disk)
    for _ in range(3):
        write(log)
    log.note_compacted(2)
    steps = disk.steps
    log.note_compacted(2)
    assert (disk.names(".compacted"), disk.steps) == ([2], steps)
    log.note_compacted(3)
    assert disk.names(".compacted") == [3]


def test_a_compacted_segment_replaces_the_others_on_disk() -> None:
    world = CompactedLog()
    world.log.reconfigure(replace(world.config, segment_bytes=150))
    for _ in range(4):
        world.write((b"key", world.random.randbytes(100)))
    segments = world.log.begin_compaction(world.now_ms)
    assert segments is not None
    first, *others = segments.segments
    cleaned = first.successor()
    (last,) = others[-1].batches()
    cleaned.append(last.header, last.base_offset, 0, (last.data,))
    assert not world.log.replace([first, others[-1]], cleaned, ())
    assert world.log.replace(segments.segments, cleaned, ())
    names = sorted(path.name for path in world.disk.files if path.suffix != ".snapshot")
    assert names == [segment_path(DIRECTORY, 0, ".index").name, *(f"{offset:020d}.log" for offset in (0, 3))]
    assert world.disk.read_file(segment_path(DIRECTORY, 0, ".index")) == b""
    assert not world.log.replace(segments.segments, cleaned, ())


def test_closing_seals_once_what_is_not_sealed(disk: Disk) -> None:
    log = open_log(disk)
    steps = disk.steps
    log.close()
    assert disk.steps == steps, "nothing was written"
    log = open_log(disk)
    for _ in range(5):
        write(log)
    log.seal_rolled_segments()
    log.close()
    assert (disk.names(".index"), disk.names(".snapshot")[-1]) == ([0, 2, 4], 5)
    steps = disk.steps
    log.close()
    again = open_log(disk)
    again.close()
    assert disk.steps == steps
    for closed in (log, again):
        with pytest.raises(ApiError, match=r"^the log was closed$") as caught:
            closed.read(0, 1, whole_first_batch=True)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_log_that_was_opened_counts_from_nothing(disk: Disk) -> None:
    log = open_log(disk, flush_interval_messages=2)
    write(log, b"a")
    assert disk.forget_flushed() == []
    again = open_log(disk, flush_interval_messages=2)
    assert (again.appended_bytes(), again.truncated_bytes, again.end_offset) == (0, 0, 1)
    write(again, b"a")
    assert disk.forget_flushed() == []
    write(again, b"a")
    assert disk.forget_flushed() == [0]
    assert len(list(read_batches(again.read(0, 1000, whole_first_batch=True).records))) == 3
