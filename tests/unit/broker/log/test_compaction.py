"""Conditions and effects of a log's compaction on single batches; see also tests/property/test_compaction.py."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.broker.log.cleaner import compact
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.producer_state import AbortedRange
from kafka_sink.broker.log.segment import LOG_SUFFIX, segment_path
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import NO_TIMESTAMP, TopicPartition
from kafka_sink.records.batch import parse_header
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.reader import RecordBatchView, read_batches
from tests.fakes.clock import FakeClock
from tests.fakes.compacted_log import CONFIG, DIRECTORY, HOUR_MS, CompactedLog
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each

assert CONFIG.compaction is not None
RULES = CONFIG.compaction


def made(**rules: Any) -> CompactedLog:
    """A log with one segment for each batch of more than 100 bytes."""
    return CompactedLog(1, replace(CONFIG, segment_bytes=110, compaction=replace(RULES, **rules)))


def wide(world: CompactedLog, *keys: bytes) -> None:
    """Append a batch for each key, each too large to share a segment with another one."""
    for key in keys:
        world.write((key, world.random.randbytes(100)))


def kept(world: CompactedLog) -> list[int]:
    return [record.offset for record in world.read().records]


def headers(world: CompactedLog) -> list[tuple[int, int, int]]:
    """First and last offset of each batch, and its number of records."""
    return [(b.base_offset, b.last_offset, b.header.record_count) for b in world.read().batches]


def compacted(world: CompactedLog) -> list[int]:
    """The offset up to which the log is compacted, as its directory stores it."""
    return [int(path.stem) for path in world.disk.files if path.suffix == ".compacted"]


def stored(world: CompactedLog, base: int = 0) -> list[RecordBatchView]:
    """The batches of a segment as stored on disk, including gaps."""
    return list(read_batches(world.disk.read_file(segment_path(DIRECTORY, base, LOG_SUFFIX)) or b""))


@pytest.mark.behaviour("Compaction", "The active segment and open transactions are left alone")
def test_only_closed_segments_before_open_transactions_count() -> None:
    world = made()
    wide(world, b"a", b"a", b"a")
    assert world.compact()
    # The second segment is closed as well, and the third one is active.
    assert kept(world) == [1, 2]
    world.write((b"b", b"x" * 100), producer=2, in_transaction=True)
    wide(world, b"a", b"a", b"a")
    assert world.compact()
    assert kept(world) == [2, 3, 4, 5, 6]
    assert not world.compact()
    world.end(2, commit=False)
    assert world.compact()
    assert kept(world) == [6]
    world.check()


@pytest.mark.behaviour("Compaction", "A log is compacted when enough of it is new, and when a record is too old")
def test_a_log_is_due_when_enough_is_new_or_something_is_old() -> None:
    world = made(min_dirty_ratio=0.5, max_lag_ms=10 * HOUR_MS)
    wide(world, b"a", b"b", b"c", b"d", b"e")
    assert world.compact() and kept(world) == [0, 1, 2, 3, 4]
    wide(world, b"a", b"b", b"c")
    # Three of seven closed segments are dirty.
    assert not world.compact()
    wide(world, b"d")
    assert not world.compact()
    wide(world, b"e")
    assert world.compact() and kept(world) == [4, 5, 6, 7, 8, 9]
    wide(world, b"a")
    assert not world.compact()
    world.sleep(11 * HOUR_MS)
    assert world.compact() and kept(world) == [5, 6, 7, 8, 9, 10]


def test_young_records_wait_for_their_lag() -> None:
    world = made(min_lag_ms=HOUR_MS, min_dirty_ratio=0)
    wide(world, b"a", b"a")
    world.sleep(HOUR_MS // 2)
    wide(world, b"a", b"a")
    assert not world.compact()
    world.sleep(HOUR_MS // 2 + 1)
    assert world.compact() and kept(world) == [1, 2, 3]


@pytest.mark.behaviour("Compaction", "Tombstones stay for delete.retention.ms after their first compaction")
def test_a_tombstone_stays_for_its_time_from_its_compaction() -> None:
    world = made(min_dirty_ratio=0)
    wide(world, b"a")
    world.write((b"a", None), (b"b", b"x" * 100))
    wide(world, b"c")
    world.sleep(5 * HOUR_MS)
    assert world.compact() and kept(world) == [1, 2, 3]
    (dated,) = (each for each in world.read().batches if each.header.delete_horizon_ms is not None)
    assert dated.header.delete_horizon_ms == world.now_ms + HOUR_MS
    # The timestamps are unchanged, although they are relative to another base timestamp.
    assert [each.timestamp for each in dated.records()] == [1_000_000, 1_000_001]
    world.sleep(HOUR_MS - 1)
    wide(world, b"d")
    assert world.compact() and kept(world) == [1, 2, 3, 4]
    world.sleep(1)
    wide(world, b"e")
    assert world.compact() and kept(world) == [2, 3, 4, 5]


@pytest.mark.behaviour(
    "Compaction", "A marker stays until its transaction is gone, and then for the time of a tombstone"
)
def test_a_marker_stays_for_its_time_after_its_transaction() -> None:
    world = made(min_dirty_ratio=0)
    world.write((b"a", b"x" * 100), producer=2, in_transaction=True)
    world.end(2, commit=False)
    world.write((b"b", b"x" * 100), producer=2)
    wide(world, b"c")
    assert world.compact()
    # The transaction is removed, but not its marker, which has no delete horizon yet.
    assert headers(world)[:2] == [(1, 1, 1), (2, 2, 1)]
    wide(world, b"d")
    assert world.compact()
    marker = world.read().batches[0]
    assert marker.is_control and marker.header.delete_horizon_ms == world.now_ms + HOUR_MS
    wide(world, b"e")
    world.sleep(HOUR_MS - 1)
    assert world.compact() and world.read().batches[0].is_control
    wide(world, b"f")
    world.sleep(1)
    assert world.compact()
    assert not [batch for batch in world.read().batches if batch.is_control]
    world.check()


@pytest.mark.behaviour("Compaction", "The epoch of a producer survives in its last marker")
def test_the_last_marker_of_a_producer_stays() -> None:
    world = made(min_dirty_ratio=0, delete_retention_ms=0)
    world.end(9, commit=True)
    for key in (b"a", b"b", b"c", b"d"):
        wide(world, key)
        world.compact()
    assert world.read().batches[0].is_control
    world.disk.files = {path: file for path, file in world.disk.files.items() if path.suffix != ".snapshot"}
    world.reopen()
    assert 9 in world.log.producers()


def stop_before_the_last_segment(world: CompactedLog) -> None:
    """Compact all segments but the last one, and stop before the progress is stored."""
    batches: list[None] = []
    world.on(world.disk.clone()).compact(lambda: batches.append(None))
    rest = iter(batches[1:])
    assert not compact(world.log, world.now_ms, lambda: next(rest, 0) == 0)


@pytest.mark.behaviour("Compaction", "Committed records are seen behind an aborted transaction that is gone")
@pytest.mark.parametrize("reopened", [False, True])
def test_an_aborted_transaction_without_marker_hides_nothing(reopened: bool) -> None:
    world = made(min_dirty_ratio=0, delete_retention_ms=0)
    world.write((b"a", b"x" * 100), producer=2, in_transaction=True)
    world.end(2, commit=False)
    world.write((b"b", b"x" * 100), producer=2)
    wide(world, b"c", b"d", b"e")
    for _ in range(3):
        stop_before_the_last_segment(world)
    assert not [batch for batch in world.read().batches if batch.is_control]
    if reopened:
        world.reopen()
    world.write((b"f", b"seen"), producer=2, in_transaction=True)
    world.end(2, commit=True)
    assert world.read(0, committed=True).records[-1].value == b"seen"


def test_the_newest_record_is_one_that_is_there() -> None:
    world = made()
    world.write((b"a", b"x" * 100), producer=2)
    world.sleep(-HOUR_MS)
    wide(world, b"a")
    world.sleep(1)
    wide(world, b"b")
    assert world.compact()
    # The first batch is kept for the state of its producer, with its timestamp.
    assert headers(world)[0] == (0, 0, 0)
    assert max(batch.header.max_timestamp for batch in world.read().batches) > world.now_ms
    newest = world.log.max_timestamp_record()
    assert newest is not None and (newest.offset, newest.timestamp) == (2, world.now_ms)


def test_a_tombstone_that_does_not_fit_into_memory_stays() -> None:
    world = CompactedLog(
        1, replace(CONFIG, compaction=replace(RULES, map_bytes=600, min_dirty_ratio=0, delete_retention_ms=0))
    )
    for key in (b"gone", b"a", b"b", b"c", b"d", b"e", b"f"):
        world.write((key, b"x"))
    world.write((b"gone", None))
    wide(world, *(b"%d" % number for number in range(10)))
    while world.compact():
        pass
    world.check_compacted()
    assert 0 not in kept(world)


@with_each("codec", CompressionType)
@with_each("stamped", [False, True])
def test_a_batch_keeps_its_codec_its_times_and_its_sequences(codec: CompressionType, stamped: bool) -> None:
    world = CompactedLog(1, replace(CONFIG, segment_bytes=110, log_append_time=stamped))
    batch = memoryview(
        make_batch(
            [b"1" * 50, b"2" * 50, b"3" * 50],
            keys=[b"a", b"b", b"c"],
            base_timestamp=5,
            compression=codec,
            producer_id=7,
            producer_epoch=3,
            base_sequence=11,
        )
    )
    world.log.append(batch, parse_header(batch), 4, 9)
    wide(world, b"a", b"c", b"d")
    assert compact(world.log, 100)
    found = world.read().batches[0]
    assert (found.header.compression, found.header.base_sequence, found.header.last_sequence) == (codec, 11, 13)
    assert (found.base_offset, found.last_offset, found.header.record_count) == (0, 2, 1)
    assert found.header.partition_leader_epoch == 4
    assert [(each.offset, each.timestamp, each.value) for each in found.records()] == [
        (1, 9 if stamped else 6, b"2" * 50)
    ]
    assert found.header.max_timestamp == (9 if stamped else 6)
    newest = world.log.offset_for_timestamp(6)
    assert newest is not None and newest.offset == 1


@pytest.mark.behaviour("Compaction", "Small segments become one, and readers are given no batch without records")
def test_compacted_segments_are_put_together() -> None:
    world = made()
    wide(world, *[b"a"] * 10, b"b", *[b"a"] * 5, b"c")
    files = len(world.disk.files)
    world.log.reconfigure(replace(world.config, segment_bytes=5000))
    assert world.compact()
    assert headers(world) == [(10, 10, 1), (15, 15, 1), (16, 16, 1)]
    assert [(each.base_offset, each.last_offset) for each in stored(world)] == [(0, 9), (10, 10), (11, 14), (15, 15)]
    assert len(world.disk.files) < files - 10
    # A reader that starts within a gap gets the next record.
    for offset in range(10):
        assert world.read(offset).records[0].offset == 10
    epochs = CompactedLog(1, world.config)
    for epoch in (0, 0, 1, 1, 2):
        batch = memoryview(make_batch([b"x" * 100], keys=[b"a"]))
        epochs.log.append(batch, parse_header(batch), epoch, 0)
    before = [epochs.log.end_of_epoch(epoch) for epoch in range(3)]
    epochs.log.reconfigure(replace(world.config, segment_bytes=5000))
    assert epochs.log.begin_compaction(0) is not None and compact(epochs.log, 0)
    assert [epochs.log.end_of_epoch(epoch) for epoch in range(3)] == before


@pytest.mark.behaviour("Compaction", "With more keys than fit into memory, a log is compacted piece by piece")
def test_more_keys_than_memory_holds_take_several_compactions() -> None:
    world = made(map_bytes=600, min_dirty_ratio=0)
    wide(world, *(b"%d" % key for key in range(8)), *(b"%d" % key for key in range(8)), b"last")
    times = 0
    while world.compact():
        times += 1
        world.check()
    assert times > 3
    assert kept(world) == [*range(8, 17)]


@pytest.mark.behaviour("Compaction", "A batch with more keys than memory holds is an error that names the option")
def test_a_batch_with_more_keys_than_memory_holds_is_an_error() -> None:
    world = made(map_bytes=600)
    world.write(*((b"%d" % number, b"x") for number in range(4)))
    wide(world, b"a", b"a")
    with pytest.raises(OSError, match=r"more keys than log\.cleaner\.dedupe\.buffer\.size"):
        world.compact()
    world.log.reconfigure(replace(world.config, compaction=RULES))
    assert world.compact()


def deleted(world: CompactedLog, **changes: Any) -> int:
    world.log.reconfigure(replace(world.config, retention_ms=HOUR_MS, **changes))
    return world.log.apply_retention(world.now_ms)


@pytest.mark.behaviour("Compaction", "Retention deletes by age only what the policy says")
def test_retention_of_compacted_logs_is_that_of_the_policy() -> None:
    world = made()
    wide(world, b"a", b"a")
    world.sleep(HOUR_MS * 2)
    wide(world, b"a")
    assert world.compact()
    # The oldest segment holds only a gap, which keeps its timestamp.
    assert headers(world) == [(1, 1, 1), (2, 2, 1)]
    assert deleted(world) == 0
    assert deleted(world, deletes=True) == 2
    assert (world.log.start_offset, kept(world)) == (2, [2])


@pytest.mark.behaviour("Compaction", "A damaged log is not compacted, and what it has stays as it is")
def test_a_damaged_log_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFileSystem()
    logs = LogManager(DIRECTORY.parent, disk, FakeClock())
    config = replace(CONFIG, segment_bytes=110)
    for partition in (TopicPartition("t", 0), TopicPartition("t", 1)):
        log = logs.get_or_create(partition, config, lambda: True)
        assert log is not None
        for _ in range(4):
            batch = memoryview(make_batch([b"x" * 100], keys=[b"a"]))
            log.append(batch, parse_header(batch), 0, 0)
    damaged = disk.files[DIRECTORY / f"{1:020d}.log"].data
    damaged[-1] ^= 1
    before = bytes(damaged)
    with caplog.at_level(logging.ERROR):
        logs.compact()
        logs.compact()
    assert [text for text in caplog.messages if "t-0 is not compacted any more" in text]
    assert len(caplog.messages) == 1
    assert bytes(damaged) == before
    whole = logs.get(TopicPartition("t", 1))
    assert whole is not None and whole.size < 4 * 150


def test_a_record_whose_key_goes_beyond_it_is_damage() -> None:
    batch = make_batch([b"v"], keys=[b"abc"])
    world = made()
    # The length of the key, after the record's length, attributes and deltas.
    batch[61 + 4] = 2 * 100
    wrong = memoryview(batch)
    world.log.append(wrong, parse_header(wrong), 0, 0)
    wide(world, b"a", b"b")
    with pytest.raises(CorruptRecordError):
        world.compact()


@pytest.mark.parametrize("after", [1, 4, 7])
def test_a_stopped_compaction_leaves_nothing(after: int) -> None:
    world = made()
    wide(world, *[b"a"] * 6)
    calls = iter([False] * after)
    assert not compact(world.log, world.now_ms, lambda: next(calls, True))
    assert not [path for path in world.disk.files if path.suffix == ".cleaned"]
    assert kept(world)[-2:] == [4, 5]


@pytest.mark.behaviour("Compaction", "A log that is deleted while it is compacted stays deleted")
@pytest.mark.parametrize("at", [1, 5, 9])
def test_what_is_deleted_meanwhile_stays_deleted(at: int) -> None:
    world = made()
    wide(world, *[b"a"] * 6)
    calls: list[None] = []

    def delete() -> None:
        calls.append(None)
        if len(calls) == at:
            world.log.delete_records_before(3)

    with contextlib.suppress(OSError):
        world.compact(delete)
    assert len(calls) >= at
    assert world.log.start_offset == 3
    assert not [path for path in world.disk.files if path.suffix == ".log" and path.stem < f"{3:020d}"]
    assert [record.offset for record in world.read().records][-1] == 5
    world.reopen()
    assert world.log.start_offset == 3


def test_the_thread_compacts_and_ends() -> None:
    clock = FakeClock()
    logs = LogManager(DIRECTORY.parent, MemoryFileSystem(), clock)
    log = logs.get_or_create(TopicPartition("t", 0), replace(CONFIG, segment_bytes=110), lambda: True)
    assert log is not None
    for _ in range(4):
        batch = memoryview(make_batch([b"x" * 100], keys=[b"a"]))
        log.append(batch, parse_header(batch), 0, 0)
    size = log.size
    logs.start_compaction("compaction", lambda: 4000)
    deadline = SYSTEM_CLOCK.monotonic_ms() + 10_000
    while log.size == size and SYSTEM_CLOCK.monotonic_ms() < deadline:
        continue
    logs.stop_housekeeping()
    assert log.size < size
    assert set(clock.waits) == {4000}


def cut(world: CompactedLog, *bases: int) -> None:
    """Remove all bytes of these segments, and open the log again."""
    for base in bases:
        world.disk.files[segment_path(DIRECTORY, base, LOG_SUFFIX)].data.clear()
    world.reopen()


def test_what_is_compacted_is_known_when_opened_again() -> None:
    world = made(min_dirty_ratio=0)
    wide(world, b"a", b"b", b"c")
    assert world.compact() and compacted(world) == [2]
    world.reopen()
    assert not world.compact()
    # All remaining records are compacted.
    cut(world, 2)
    assert world.log.end_offset == 2 and not world.compact()
    # Other records take the offset of a compacted one.
    cut(world, 1)
    wide(world, b"b", b"a")
    assert world.log.end_offset == 3 and world.compact()
    assert (compacted(world), kept(world)) == ([2], [0, 1, 2])


def test_segments_that_were_put_together_are_gone_for_good() -> None:
    world = made(min_dirty_ratio=0)
    wide(world, b"a", b"b", b"c", b"a", b"d")
    world.log.reconfigure(replace(world.config, segment_bytes=5000))
    before = dict(world.disk.files)
    assert world.compact()
    after = {path.name: bytes(file.data) for path, file in world.disk.files.items() if path.suffix == LOG_SUFFIX}
    # The process was killed before the files were removed.
    world.disk.files = before | world.disk.files
    world.reopen()
    assert world.log.truncated_bytes == 0
    found = {path.name: bytes(file.data) for path, file in world.disk.files.items() if path.suffix == LOG_SUFFIX}
    assert found == after and sorted(after) == [f"{base:020d}.log" for base in (0, 4)]
    assert kept(world) == [1, 2, 3, 4]


@pytest.mark.parametrize("map_bytes", [599, 600])
def test_memory_has_room_for_a_key_in_200_bytes(map_bytes: int) -> None:
    world = made(map_bytes=map_bytes)
    world.write(*((b"%d" % number, b"x" * 50) for number in range(3)))
    wide(world, b"a", b"b")
    if map_bytes < 600:
        with pytest.raises(OSError, match="more keys than"):
            world.compact()
        assert compacted(world) == [0]
    else:
        assert world.compact() and compacted(world) == [3]


def test_a_compaction_goes_on_where_memory_ended() -> None:
    rules = replace(RULES, map_bytes=600, min_dirty_ratio=0)
    world = CompactedLog(1, replace(CONFIG, segment_bytes=600, compaction=rules))
    for keys in (b"abc", b"def", b"dxy", b"azy"):
        # The key d has a null value, in two batches.
        world.write(*((bytes([key]), None if key in b"d" else b"x") for key in keys))
    wide(world, b"1", b"2", b"3", b"4", b"5")
    untouched = [bytes(batch.data) for batch in stored(world)]
    ends = []
    while world.compact():
        ends += compacted(world)
        world.check()
        if len(ends) == 1:
            # All three keys of the first batch are known, and no batch has changed: no tombstone has a delete horizon.
            assert [bytes(batch.data) for batch in stored(world)] == untouched
        if ends == [3, 6]:
            horizons = [batch.header.delete_horizon_ms for batch in stored(world)[:4]]
            assert horizons == [None, world.now_ms + HOUR_MS, None, None]
    assert ends[:4] == [3, 6, 9, 12]
    assert kept(world)[:9] == [1, 2, 4, 5, 6, 7, 9, 10, 11]


def test_an_empty_transaction_leaves_a_marker_for_its_time() -> None:
    for commit in (True, False):
        world = made(min_dirty_ratio=0)
        # Batches outside of transactions do not belong to one.
        world.write((b"p", b"x" * 100), producer=2)
        world.end(2, commit=commit)
        world.write((b"q", b"x" * 100), producer=2, in_transaction=True)
        world.end(2, commit=True)
        world.end(2, commit=commit)
        world.write((b"r", b"x" * 100), producer=2)
        wide(world, b"a")
        assert world.compact()
        # A marker after records that remain has no delete horizon.
        markers = {
            batch.base_offset: batch.header.delete_horizon_ms for batch in world.read().batches if batch.is_control
        }
        assert markers == {1: world.now_ms + HOUR_MS, 3: None, 4: world.now_ms + HOUR_MS}
        world.sleep(HOUR_MS)
        wide(world, b"b")
        assert world.compact()
        assert [batch.base_offset for batch in world.read().batches] == [0, 2, 3, 5, 6, 7]
        world.check()


def test_an_aborted_transaction_is_known_while_its_marker_is() -> None:
    world = made(min_dirty_ratio=0)
    world.write((b"a", b"x" * 100), producer=2, in_transaction=True)
    world.end(2, commit=False)
    world.write((b"b", b"x" * 100), producer=2)
    known = []
    for key in (b"c", b"d"):
        wide(world, key)
        assert world.compact()
        known.append(world.log.read(0, 500, whole_first_batch=True, committed=True).aborted)
    # After the second compaction only the marker remains, which cannot be taken for that of another transaction.
    assert known == [(AbortedRange(2, 0, 1),), ()]
    assert world.read().batches[0].is_control
    # Only the snapshot, which was stored before, still lists the transaction.
    world.reopen()
    assert world.log.read(0, 500, whole_first_batch=True, committed=True).aborted == known[0]


def test_records_of_aborted_transactions_replace_none() -> None:
    world = made(min_dirty_ratio=0)
    wide(world, b"a", b"b")
    world.write((b"a", b"aborted" * 20), producer=2, in_transaction=True)
    world.end(2, commit=False)
    world.write((b"b", b"committed" * 20), producer=2, in_transaction=True)
    world.end(2, commit=True)
    wide(world, b"c")
    assert world.compact()
    assert kept(world) == [0, 4, 6]
    world.check()
    # The batch remains without records, because it holds the state of its producer.
    world.write((b"d", b"aborted" * 20), producer=3, in_transaction=True)
    world.end(3, commit=False)
    wide(world, b"e")
    assert world.compact()
    assert headers(world)[-3:] == [(7, 7, 0), (8, 8, 1), (9, 9, 1)]
    world.check()
    world.check_producers()


def test_control_records_of_other_types_stay() -> None:
    world = made(min_dirty_ratio=0, delete_retention_ms=0)
    # Type 2 is a leader change; two batches have the same key.
    for _ in range(2):
        batch = memoryview(make_batch([b"v" * 100], keys=[bytes((0, 0, 0, 2))], is_control=True))
        world.log.append(batch, parse_header(batch), 0, world.now_ms)
    before = [bytes(stored(world, base)[0].data) for base in (0, 1)]
    for key in (b"a", b"b", b"c"):
        wide(world, key)
        assert world.compact()
    assert [bytes(stored(world, base)[0].data) for base in (0, 1)] == before


def test_what_was_deleted_meanwhile_was_not_compacted() -> None:
    world = made()
    wide(world, *[b"a"] * 6)
    calls: list[None] = []

    def delete() -> None:
        calls.append(None)
        # At this call the keys are known, and the last batch of the first segment is read.
        if len(calls) == 6:
            world.log.delete_records_before(3)

    assert not world.compact(delete)
    assert len(calls) == 6
    assert compacted(world) == [0]
    assert not [path for path in world.disk.files if path.suffix == ".cleaned"]
    assert kept(world) == [3, 4, 5]


def test_a_gap_has_a_time_only_where_no_record_is() -> None:
    world = made()
    began_ms = world.now_ms
    for key in (b"a", b"b", b"b", b"c", b"c", b"b", b"d"):
        wide(world, key)
        world.sleep(HOUR_MS // 10)
    # Each compacted segment holds two of the old ones: 0 and 1, 2 and 3, 4 and 5.
    world.log.reconfigure(
        replace(world.config, segment_bytes=2 * max(len(stored(world, base)[0].data) for base in range(7)))
    )
    assert world.compact()
    times = [
        (each.base_offset, each.last_offset, each.header.max_timestamp)
        for base in (0, 2, 4)
        for each in stored(world, base)
    ]
    hour = [began_ms + number * HOUR_MS // 10 for number in range(7)]
    assert times == [
        (0, 0, hour[0]),
        (1, 1, NO_TIMESTAMP),
        (2, 3, hour[3]),
        (4, 4, hour[4]),
        (5, 5, hour[5]),
    ]


@with_each("seed", range(2))
def test_readers_see_what_they_may_whenever_it_is_compacted(seed: int) -> None:
    world = CompactedLog(seed, replace(CONFIG, compaction=replace(RULES, min_dirty_ratio=0, map_bytes=1400)))
    for number in range(60):
        world.write_at_random()
        world.sleep(HOUR_MS // 20)
        if number % 10 == 9:
            world.compact()
            world.check()
            world.check_producers()
        if number % 20 == 19:
            world.reopen()
            world.check()
    for producer in (2, 3):
        world.end(producer, commit=False)
    wide(world, *(b"%d" % number for number in range(10)))
    while world.compact():
        world.check()
    world.check_compacted()


def test_records_without_a_key_go() -> None:
    world = made(min_dirty_ratio=0)
    world.write((b"a", b"x" * 100), (None, b"y"), (b"b", b"z"))
    world.write((None, b"x" * 100))
    wide(world, b"c")
    assert world.compact()
    assert (headers(world)[0], kept(world)) == ((0, 2, 2), [0, 2, 4])
    world.check()
