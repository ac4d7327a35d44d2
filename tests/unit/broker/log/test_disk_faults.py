"""Every disk fault under a log: a crash or an error at any step, power failures, flipped bits, lost tails.

Acknowledged records (after a power failure: flushed ones) are there afterwards, in order and once; damaged data is cut
off or refused, never served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.partition_log import LogConfig, PartitionLog
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.records.reader import read_batches
from tests.fakes.log_config import NEVER, log_config
from tests.fakes.memory_filesystem import Crash, MemoryFileSystem
from tests.fakes.record_batches import with_header
from tests.support.cases import with_each

Figure = Callable[[str, object], None]
DIRECTORY = Path("/data/t-0")
CONFIG = log_config(retention_bytes=1200)
FLUSHED = replace(CONFIG, flush_interval_messages=1)
KEPT = replace(CONFIG, retention_bytes=-1)


@dataclass
class Written:
    """The values that a producer sent, the number of acknowledged ones, and the start that the log was set to."""

    attempted: list[bytes] = field(default_factory=list)
    acknowledged: int = 0
    deleted_before: int = 0


def open_log(disk: MemoryFileSystem, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog(DIRECTORY, disk, config, wall_ms=0)


def append(log: PartitionLog, written: Written, epoch: int = 0) -> None:
    """Append the next value, or the last one again if it was not acknowledged."""
    number = written.acknowledged
    if len(written.attempted) == number:
        written.attempted.append(bytes([65 + number % 60]) * 60)
    batch, header = with_header([written.attempted[number]], producer_id=9, producer_epoch=0, base_sequence=number)
    assert log.append(batch, header, epoch, 0).base_offset == number
    written.acknowledged += 1


def values(log: PartitionLog) -> dict[int, bytes | None]:
    """All readable values, by offset; the batches must follow each other and have valid checksums."""
    found: dict[int, bytes | None] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        batches = list(read_batches(log.read(offset, 1 << 20, whole_first_batch=True).records))
        assert batches, f"nothing at {offset} below the end {log.end_offset}"
        for batch in batches:
            assert batch.verify_crc()
            assert batch.base_offset == offset
            found |= {record.offset: record.value for record in batch.records()}
            offset = batch.last_offset + 1
    return found


def life(disk: MemoryFileSystem, written: Written, config: LogConfig = CONFIG) -> None:
    """Two days of a log: appends under two leaders, rolls, seals, deleted records, retention, a clean close each."""
    for day in range(2):
        log = open_log(disk, config)
        for number in range(9):
            append(log, written, epoch=day)
            if number % 3 == 2:
                log.seal_rolled_segments()
            if number in (4, 7):
                log.apply_retention(0)
            if number == 6:
                written.deleted_before = log.delete_records_before(written.acknowledged - 4)
        log.close()


def expect(log: PartitionLog, written: Written, lost: int = 0) -> dict[int, bytes | None]:
    """Require a prefix of the attempted values with all acknowledged ones but *lost*, from the log start offset on."""
    found = values(log)
    assert log.end_offset >= written.acknowledged - lost
    assert log.start_offset >= written.deleted_before
    assert found == {offset: written.attempted[offset] for offset in range(log.start_offset, log.end_offset)}
    return found


def steps_of(act: Callable[[MemoryFileSystem], None]) -> int:
    disk = MemoryFileSystem()
    act(disk)
    return disk.steps


@pytest.mark.behaviour("Faults: disk and power", "A crash at every step of a log's life loses nothing acknowledged")
@pytest.mark.behaviour(
    "Faults: disk and power", "A power failure at every step loses nothing acknowledged where every write is flushed"
)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power failure"])
def test_a_crash_at_every_step_loses_nothing_acknowledged(figure: Figure, power: bool) -> None:
    config = FLUSHED if power else CONFIG
    crashes = truncations = 0
    for step in range(1, steps_of(lambda disk: life(disk, Written(), config)) + 1):
        for torn in (0, 1, 61, 90):
            disk, written = MemoryFileSystem(), Written()
            disk.crash_at, disk.crash_bytes = step, torn
            with pytest.raises(Crash):
                life(disk, written, config)
            left = disk.clone()
            if power:
                left.lose_unflushed()
            log = open_log(left, config)
            expect(log, written)
            crashes += 1
            truncations += log.truncated_bytes > 0
            # The producer retries every batch that it does not know to be stored, and none is stored a second time.
            while written.acknowledged < len(written.attempted):
                append(log, written, epoch=1)
            append(log, written, epoch=1)
            expect(log, written)
            log.close()
            expect(open_log(left, config), written)
    figure("crashes", crashes)
    figure("of them with a torn end that was cut", truncations)


@pytest.mark.behaviour("Faults: disk and power", "A crash during recovery is recovered from")
def test_a_crash_during_recovery_is_recovered_from() -> None:
    disk, written = MemoryFileSystem(), Written()
    log = open_log(disk)
    for _ in range(20):
        append(log, written)
    # A batch in the middle is torn: recovery removes the segments after it, step by step.
    names = [path for path in sorted(disk.files) if path.suffix == ".log"]
    assert len(names) > 3
    del disk.files[names[1]].data[-3:]
    for step in range(1, 20):
        left = disk.clone()
        left.crash_at = step
        try:
            open_log(left)
        except Crash:
            found = values(open_log(left.clone()))
            assert found == {offset: written.attempted[offset] for offset in range(len(found))}
            continue
        assert step > 3
        return
    raise AssertionError("recovery never ended")


@pytest.mark.behaviour("Faults: disk and power", "A power failure takes only what was not flushed")
@pytest.mark.parametrize("interval", [1, 4, NEVER])
def test_a_power_failure_takes_what_was_not_flushed(figure: Figure, interval: int) -> None:
    lost = most = 0
    for count in range(1, 30):
        disk, written = MemoryFileSystem(), Written()
        config = replace(KEPT, flush_interval_messages=interval)
        log = open_log(disk, config)
        for _ in range(count):
            append(log, written)
        disk.lose_unflushed()
        again = open_log(disk, config)
        gone = written.acknowledged - again.end_offset
        expect(again, written, lost=gone)
        lost, most = lost + gone, max(most, gone)
        if interval != NEVER:
            assert gone < interval
    assert most if interval == NEVER else most == interval - 1
    name = "never" if interval == NEVER else f"every {interval}"
    figure(f"flushed {name}: acknowledged rows lost in 29 power failures", f"{lost} of 435, {most} at most")


@pytest.mark.behaviour("Faults: disk and power", "An error of the disk at every step costs no acknowledged record")
def test_an_error_at_every_step_costs_no_acknowledged_record(figure: Figure) -> None:
    refused = ended = steps = 0
    for step in range(1, steps_of(lambda disk: life(disk, Written(), FLUSHED)) + 1):
        disk, written = MemoryFileSystem(), Written()
        disk.fail_at = step
        steps += 1
        try:
            life(disk, written, FLUSHED)
        except ApiError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            refused += 1
        except OSError:
            # Opening, closing or housekeeping: the caller logs the error.
            ended += 1
        # The node restarts on the disk as it is, or as a power failure leaves it.
        for power in (False, True):
            left = disk.clone()
            if power:
                left.lose_unflushed()
            log, later = open_log(left, FLUSHED), replace(written)
            expect(log, later)
            while later.acknowledged < len(later.attempted):
                append(log, later, epoch=1)
            expect(log, later)
    assert refused > 5
    figure("errors, one at every step", f"{steps}, {refused} answered with KAFKA_STORAGE_ERROR, {ended} elsewhere")


@pytest.mark.behaviour("Faults: disk and power", "A full disk costs only what it refused")
def test_a_full_disk_at_every_byte_costs_only_what_it_refused() -> None:
    room = refused = 0
    while True:
        disk, written = MemoryFileSystem(), Written()
        log = open_log(disk, KEPT)
        append(log, written)
        disk.full_after_bytes = room
        failed = False
        for _ in range(3):
            try:
                append(log, written)
            except ApiError as error:
                assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                failed = True
        expect(log, written)
        disk.full_after_bytes = None
        append(log, written)
        expect(log, written)
        expect(open_log(disk.clone(), KEPT), written)
        if not failed:
            assert refused > 100
            return
        refused += 1
        room += 3


@pytest.mark.behaviour("Faults: disk and power", "A read-only disk serves what it has and refuses the rest")
def test_read_only_disk_serves_old_records_and_refuses_appends() -> None:
    disk, written = MemoryFileSystem(), Written()
    log = open_log(disk, KEPT)
    for _ in range(6):
        append(log, written)
    disk.read_only = True
    with pytest.raises(ApiError) as caught:
        append(log, written)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.read_only = False
    log.close()
    disk.read_only = True
    # A clean log opens on a read-only disk and is readable; a new log cannot be created.
    assert len(expect(open_log(disk, KEPT), written)) == 6
    with pytest.raises(OSError, match="Read-only"):
        PartitionLog(Path("/data/t-1"), disk, KEPT, wall_ms=0)


@pytest.mark.behaviour("Faults: disk and power", "A failing flush ends the log until it is opened again")
def test_a_failing_flush_ends_the_log_until_it_is_opened_again() -> None:
    disk, written = MemoryFileSystem(), Written()
    log = open_log(disk, FLUSHED)
    append(log, written)
    disk.fail_flush = True
    with pytest.raises(ApiError) as caught:
        append(log, written)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fail_flush = False
    for use in (lambda: append(log, written), lambda: log.read(0, 100, whole_first_batch=True)):
        with pytest.raises(ApiError) as caught:
            use()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close()
    again = open_log(disk, FLUSHED)
    append(again, written)
    expect(again, written)


# --- damage ----------------------------------------------------------------------------------------------------------


def written_log(*, closed: bool) -> tuple[MemoryFileSystem, Written]:
    disk, written = MemoryFileSystem(), Written()
    log = open_log(disk, KEPT)
    for number in range(7):
        append(log, written, epoch=number // 4)
    written.deleted_before = log.delete_records_before(1)
    if closed:
        log.close()
    return disk, written


def served(log: PartitionLog) -> tuple[dict[int, bytes | None], bool]:
    """The values that a reader gets that fetches every offset, and whether a fetch was refused."""
    found: dict[int, bytes | None] = {}
    refused = False
    epochs = []
    for offset in range(log.start_offset, log.end_offset):
        try:
            records = log.read(offset, 1 << 20, whole_first_batch=True).records
            for batch in read_batches(records):
                found |= {record.offset: record.value for record in batch.records()}
                epochs.append((batch.base_offset, batch.header.partition_leader_epoch))
        except ApiError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE
            refused = True
    in_order = [epoch for _, epoch in sorted(epochs)]
    assert in_order == sorted(in_order), "leader epochs never go back"
    return found, refused


@pytest.mark.behaviour("Faults: disk and power", "A flipped bit is never served")
@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("kind", [".log", ".index", ".snapshot"])
def test_a_flipped_bit_is_never_served(figure: Figure, kind: str, closed: bool) -> None:
    disk, written = written_log(closed=closed)
    paths = [path for path in disk.files if path.suffix == kind]
    if not closed and kind == ".index":
        assert paths == [], "they are written when a segment is sealed"
        return
    flips = without_loss = 0
    for path in paths:
        for position in range(len(disk.files[path].data)):
            damaged = disk.clone()
            damaged.files[path].data[position] ^= 1 << position % 8
            log = open_log(damaged, KEPT)
            found, _ = served(log)
            flips += 1
            assert all(value == written.attempted[offset] for offset, value in found.items()), (path, position)
            complete = sorted(found) == list(range(1, 7)) or sorted(found) == list(range(7))
            without_loss += complete
            # Helper files are rebuilt; in a segment, only bytes without a checksum may change without effect.
            assert complete or kind == ".log"
            if kind == ".snapshot":
                # The snapshot is rebuilt, not loaded as it is: the last batch is a duplicate, and the next one fits.
                again = replace(written, acknowledged=6)
                append(log, again)
                append(log, again)
                assert log.end_offset == 8
    assert flips
    state = "closed" if closed else "killed"
    figure(
        f"flipped bits in {kind} of a {state} log", f"{flips} of {flips} noticed or harmless, {without_loss} harmless"
    )


@pytest.mark.behaviour("Faults: disk and power", "A lost tail is cut off, or rebuilt")
@with_each("closed", [False, True])
@with_each("kind", [".log", ".index", ".snapshot"])
def test_a_lost_tail_is_cut_or_made_anew(kind: str, closed: bool) -> None:
    disk, written = written_log(closed=closed)
    for path in [path for path in disk.files if path.suffix == kind]:
        for size in range(len(disk.files[path].data)):
            damaged = disk.clone()
            del damaged.files[path].data[size:]
            found, refused = served(open_log(damaged, KEPT))
            assert not refused
            assert all(value == written.attempted[offset] for offset, value in found.items())
            if kind != ".log":
                assert set(found) >= set(range(1, 7))


def test_a_lost_tail_does_not_give_deleted_offsets_out_again() -> None:
    disk, _ = written_log(closed=True)
    log = open_log(disk, KEPT)
    log.delete_records_before(5)
    log.close()
    for path in [path for path in disk.files if path.suffix == ".log"]:
        disk.files[path].data.clear()
    again = open_log(disk, KEPT)
    assert (again.start_offset, again.end_offset) == (5, 5)
    batch, header = with_header([b"next"])
    assert again.append(batch, header, 1, 0).base_offset == 5
    assert open_log(disk, KEPT).end_offset == 6


@pytest.mark.behaviour("Faults: disk and power", "An index of a segment that is gone vouches for nothing")
def test_index_of_a_missing_segment_is_not_trusted() -> None:
    disk, written = written_log(closed=True)
    (gone,) = (path for path in disk.files if path.name == f"{6:020d}.log")
    del disk.files[gone]
    log = open_log(disk, KEPT)
    assert log.end_offset == 6
    values_of_two = [b"two", b"records in a batch that is longer than what was there before"]
    batch, header = with_header(values_of_two)
    assert log.append(batch, header, 1, 0).base_offset == 6
    again = open_log(disk.clone(), KEPT)
    assert again.end_offset == 8
    assert [value for offset, value in values(again).items() if offset >= 6] == values_of_two
    assert written.attempted[5] == values(again)[5]


@pytest.mark.behaviour("Faults: disk and power", "Damage to cluster.json is refused")
def test_damage_to_the_clusters_own_file_is_refused(figure: Figure) -> None:
    directory = Path("/data")
    disk = MemoryFileSystem()
    ClusterState(directory, disk, BrokerConfig(), [1]).create_topic("t", 2, configs={"retention.ms": "1000"})
    (path,) = (path for path in disk.files if path.name == "cluster.json")
    size = len(disk.files[path].data)
    for position in range(size):
        for damage in ("flip", "cut"):
            damaged = disk.clone()
            if damage == "flip":
                damaged.files[path].data[position] ^= 1 << position % 8
            else:
                del damaged.files[path].data[position:]
            with pytest.raises(ConfigError):
                ClusterState(directory, damaged, BrokerConfig(), [1])
    figure("flipped bits and lost tails of cluster.json", f"{2 * size} of {2 * size} refused")
