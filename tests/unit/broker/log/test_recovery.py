"""Opening a log after a crash in the middle of an operation: acknowledged records are there, nothing else is served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.broker.log.partition_log import LogConfig, PartitionLog
from kafka_sink.broker.log.producer_state import ProducerStateManager
from kafka_sink.broker.log.recovery import write_snapshot
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.records.reader import read_batches
from tests.fakes.log_config import log_config
from tests.fakes.memory_filesystem import Crash, MemoryFileSystem
from tests.fakes.record_batches import with_header
from tests.support.cases import with_each

DIRECTORY = Path("/data/t-0")
CONFIG = log_config()
LARGE = replace(CONFIG, segment_bytes=1 << 30)


def open_log(disk: MemoryFileSystem, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog(DIRECTORY, disk, config, wall_ms=0)


def append(log: PartitionLog, value: bytes, sequence: int = -1) -> int:
    producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    batch, header = with_header([value], **producer)
    return log.append(batch, header, 0, 0).base_offset


def values(log: PartitionLog) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.start_offset
    while offset < log.end_offset:
        before = len(found)
        for batch in read_batches(log.read(offset, 1 << 20, whole_first_batch=True).records):
            batch.verify_crc()
            assert batch.base_offset == offset
            found += [record.value for record in batch.records()]
            offset = batch.last_offset + 1
        assert len(found) > before
    return found


def segment(disk: MemoryFileSystem, base: int = 0, suffix: str = ".log") -> bytearray:
    return disk.files[DIRECTORY / f"{base:020d}{suffix}"].data


def test_a_torn_tail_is_cut_at_every_byte_of_the_last_batch() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, LARGE)
    append(log, b"a")
    append(log, b"b" * 20)
    whole = bytes(segment(disk))
    append(log, b"c" * 30)
    torn = bytes(segment(disk))
    for end in range(len(whole), len(torn)):
        crashed = disk.clone()
        segment(crashed)[:] = torn[:end]
        again = open_log(crashed, LARGE)
        assert again.truncated_bytes == end - len(whole)
        assert bytes(segment(crashed)) == whole
        assert append(again, b"d") == 2
        assert values(again) == [b"a", b"b" * 20, b"d"]
    # A whole batch is not a torn one.
    assert values(open_log(disk.clone(), LARGE)) == [b"a", b"b" * 20, b"c" * 30]


def test_flipped_bit_in_unsealed_segment_is_never_served() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, LARGE)
    appended = [b"a", b"b", b"c"]
    for value in appended:
        append(log, value)
    size = len(segment(disk))
    for position in range(size):
        damaged = disk.clone()
        segment(damaged)[position] ^= 0x10
        found = values(open_log(damaged, LARGE))
        # The checksum covers neither leader epoch nor base offset; offsets must be consecutive, epochs need not be.
        assert found == appended[: len(found)]
        untouched = position * 3 // size
        assert len(found) >= untouched


def test_garbage_behind_the_log_is_cut() -> None:
    disk = MemoryFileSystem()
    append(open_log(disk), b"a")
    for garbage in (b"\0" * 200, b"\xff" * 200, bytes(segment(disk))):
        damaged = disk.clone()
        segment(damaged).extend(garbage)
        again = open_log(damaged)
        assert again.truncated_bytes == len(garbage)
        assert values(again) == [b"a"]


def test_segments_behind_a_cut_go_too() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for number in range(20):
        append(log, bytes([number]) * 50)
    names = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
    assert len(names) > 3
    del segment(disk, int(names[1][:20]))[-3:]
    again = open_log(disk)
    assert [name for name in disk.list_directory(DIRECTORY) if name.endswith(".log")] == names[:2]
    assert values(again) == [bytes([number]) * 50 for number in range(again.end_offset)]
    assert append(again, b"next") == again.end_offset - 1


def test_a_clean_restart_takes_the_index_files_as_they_are() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for number in range(20):
        append(log, bytes([number]) * 50, sequence=number)
    log.close()
    before = {path: bytes(file.data) for path, file in disk.files.items()}
    steps = disk.steps
    again = open_log(disk)
    assert disk.steps == steps, "opening a sealed log writes nothing"
    assert values(again) == [bytes([number]) * 50 for number in range(20)]
    again.close()
    assert {path: bytes(file.data) for path, file in disk.files.items()} == before


@pytest.mark.parametrize("suffix", [".index", ".snapshot"])
def test_a_damaged_or_missing_helper_file_is_rebuilt(suffix: str) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for number in range(20):
        append(log, bytes([number]) * 50, sequence=number)
    log.close()
    helpers = [path for path in disk.files if path.name.endswith(suffix)]
    assert helpers
    for damage in ("cut", "missing"):
        damaged = disk.clone()
        for path in helpers:
            if damage == "cut":
                del damaged.files[path].data[5:]
            else:
                del damaged.files[path]
        again = open_log(damaged)
        assert again.truncated_bytes == 0
        assert values(again) == [bytes([number]) * 50 for number in range(20)]
        assert append(again, bytes([19]) * 50, sequence=19) == 19, "known as a duplicate"
        assert append(again, b"new", sequence=20) == 20


def test_producers_are_remembered_over_a_kill() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for number in range(20):
        append(log, bytes([number]) * 50, sequence=number)
    again = open_log(disk.clone())
    for number in range(15, 20):
        assert append(again, bytes([number]) * 50, sequence=number) == number
    with pytest.raises(ApiError) as caught:
        append(again, b"gap", sequence=21)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(again, b"next", sequence=20) == 20


def test_producer_snapshot_beyond_recovered_end_is_ignored() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, LARGE)
    append(log, b"a", sequence=0)
    append(log, b"b", sequence=1)
    log.close()
    del segment(disk)[-1:]
    again = open_log(disk, LARGE)
    assert again.end_offset == 1
    assert append(again, b"b", sequence=1) == 1, "not a duplicate of what is lost"
    assert values(again) == [b"a", b"b"]


def test_power_failure_keeps_what_was_flushed() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, replace(CONFIG, flush_interval_messages=1))
    for number in range(20):
        append(log, bytes([number]) * 50)
    disk.lose_unflushed()
    assert values(open_log(disk)) == [bytes([number]) * 50 for number in range(20)]


def test_a_seal_vouches_only_for_what_survives_a_power_failure() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for number in range(20):
        append(log, bytes([number]) * 50)
        if number == 10:
            log.seal_rolled_segments()
    disk.lose_unflushed()
    found = values(open_log(disk))
    assert found == [bytes([number]) * 50 for number in range(len(found))]
    assert len(found) >= 8


def life(disk: MemoryFileSystem, acknowledged: list[bytes], attempted: list[bytes]) -> None:
    """Two days of a log: appends, rolls, seals, retention that deletes nothing, and a close."""
    for day in range(2):
        log = open_log(disk)
        for number in range(8):
            value = bytes([65 + len(attempted)]) * 60
            attempted.append(value)
            append(log, value, sequence=len(attempted) - 1)
            acknowledged.append(value)
            if number % 3 == 2:
                log.seal_rolled_segments()
        if day == 0:
            log.close()


def count_steps() -> int:
    disk = MemoryFileSystem()
    life(disk, [], [])
    return disk.steps


@with_each("torn", [0, 1, 40, 61, 100])
def test_a_crash_at_every_step_keeps_the_acknowledged_prefix(torn: int) -> None:
    for step in range(1, count_steps() + 1):
        disk = MemoryFileSystem()
        disk.crash_at, disk.crash_bytes = step, torn
        acknowledged: list[bytes] = []
        attempted: list[bytes] = []
        with pytest.raises(Crash):
            life(disk, acknowledged, attempted)
        log = open_log(disk.clone())
        found = values(log)
        assert found[: len(acknowledged)] == acknowledged, f"step {step}"
        assert found == attempted[: len(found)], f"step {step}"
        # The producer retries the batches that were not acknowledged, and none is stored a second time.
        for sequence, value in list(enumerate(attempted))[len(acknowledged) :]:
            assert append(log, value, sequence=sequence) == sequence
        assert values(log) == attempted, f"step {step}"


def names(disk: MemoryFileSystem, suffix: str) -> list[int]:
    """The offsets in the names of the files with *suffix*."""
    return [int(name.removesuffix(suffix)) for name in disk.list_directory(DIRECTORY) if name.endswith(suffix)]


def filled(disk: MemoryFileSystem, count: int = 20, config: LogConfig = CONFIG) -> PartitionLog:
    """A log of *count* records of one producer, in segments of three."""
    log = open_log(disk, config)
    for number in range(count):
        append(log, bytes([number]) * 50, sequence=number)
    return log


def test_what_a_compaction_left_unfinished_is_removed() -> None:
    disk = MemoryFileSystem()
    filled(disk)
    before = {path: bytes(file.data) for path, file in disk.files.items()}
    disk.replace_file(DIRECTORY / f"{3:020d}.cleaned", b"half of it")
    open_log(disk)
    assert {path: bytes(file.data) for path, file in disk.files.items()} == before


def test_what_is_cut_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFileSystem()
    filled(disk)
    bases = names(disk, ".log")
    assert bases == [0, 3, 6, 9, 12, 15, 18]
    open_log(disk.clone())
    assert not caplog.messages
    # A whole batch remains before the torn one, and segments follow it.
    torn = len(segment(disk, 12)) // 3 - 5
    del segment(disk, 12)[-5 - len(segment(disk, 12)) // 3 :]
    lost = torn + len(segment(disk, 15)) + len(segment(disk, 18))
    again = open_log(disk)
    assert again.truncated_bytes == lost
    assert caplog.messages == [
        f"[log t-0] truncated {lost} bytes that were not complete, valid batches; the log ends at offset 13"
    ]
    assert (names(disk, ".log"), len(segment(disk, 12)), again.end_offset) == (bases[:5], len(segment(disk)) // 3, 13)


@with_each("count", [1, 2, 6])
def test_a_segment_without_a_batch_goes_but_for_the_last(count: int) -> None:
    disk = MemoryFileSystem()
    filled(disk)
    bases = names(disk, ".log")[:count]
    for path in list(disk.files):
        if int(path.stem) > bases[-1]:
            del disk.files[path]
    segment(disk, bases[-1]).clear()
    again = open_log(disk)
    assert names(disk, ".log") == (bases[:-1] or bases)
    assert again.end_offset == bases[-1]


def test_an_empty_segment_alone_says_where_the_log_goes_on() -> None:
    disk = MemoryFileSystem()
    disk.open(DIRECTORY / f"{5:020d}.log")
    log = open_log(disk)
    assert (log.start_offset, log.end_offset, append(log, b"a")) == (5, 5, 5)


def test_a_log_whose_records_are_all_deleted_keeps_its_end() -> None:
    disk = MemoryFileSystem()
    log = filled(disk)
    assert log.delete_records_before(-1) == 20
    before = {path: bytes(file.data) for path, file in disk.files.items()}
    again = open_log(disk)
    assert {path: bytes(file.data) for path, file in disk.files.items()} == before
    assert (again.start_offset, again.end_offset, again.size) == (20, 20, log.size)
    assert log.size > 0


def test_two_snapshots_of_producers_are_kept() -> None:
    disk = MemoryFileSystem()
    log = filled(disk, 4)
    assert names(disk, ".snapshot") == [3]
    for number in range(4, 20):
        append(log, bytes([number]) * 50, sequence=number)
    assert names(disk, ".snapshot") == names(disk, ".log")[-2:] == [15, 18]
    log.close()
    assert names(disk, ".snapshot") == [18, 20]
    # The snapshot that was just written stays, whatever its offset is.
    for offset, expected in ((18, [18, 20]), (20, [20]), (30, [20, 30]), (25, [25, 30])):
        write_snapshot(DIRECTORY, disk, offset, ProducerStateManager(1000))
        assert names(disk, ".snapshot") == expected


@with_each("interval", [1, 100, 250, 400, 1 << 20])
def test_producers_are_known_from_the_middle_of_a_segment(interval: int) -> None:
    disk, config = MemoryFileSystem(), replace(LARGE, index_interval_bytes=interval)
    filled(disk, 7, config).close()
    log = open_log(disk, config)
    for number in range(7, 9):
        append(log, bytes([number]) * 50, sequence=number)
    again = open_log(disk.clone(), config)
    assert again.producers() == log.producers()
    assert [batch.base_offset for batch in again.producers()[9].batches] == [4, 5, 6, 7, 8]
    for number in range(4, 9):
        assert append(again, bytes([number]) * 50, sequence=number) == number


def test_producers_are_known_beside_damage_that_is_sealed() -> None:
    disk = MemoryFileSystem()
    filled(disk, 7, LARGE).close()
    append(open_log(disk, LARGE), b"new", sequence=7)
    # The length of the first batch, which is not checked again before a read.
    segment(disk)[8] ^= 0xFF
    again = open_log(disk, LARGE)
    assert append(again, b"new", sequence=7) == 7, "known as a duplicate"
    assert append(again, b"next", sequence=8) == 8


def test_producers_of_deleted_records_are_known_by_snapshot() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, b"first", sequence=0)
    for _ in range(20):
        append(log, b"x" * 50)
    assert log.delete_records_before(15) == 15
    again = open_log(disk.clone())
    assert again.producers() == log.producers()
    assert append(again, b"first", sequence=0) == 0
