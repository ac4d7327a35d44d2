"""Transactions in a partition's log: last stable offset, aborted transactions, markers, producers that may open one."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kafka_sink.broker.log.filesystem import with_checksum
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.log.producer_state import AbortedRange, VerificationGuard
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TransactionVersion
from kafka_sink.records.control import EndTransactionMarker, read_marker
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reader import read_batches
from tests.fakes.log_config import log_config
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.fakes.record_batches import with_header
from tests.support.cases import with_each

DIRECTORY = Path("/data/t-0")
CONFIG = log_config(segment_bytes=1000, producer_expiration_ms=1000)


def open_log(disk: MemoryFileSystem, wall_ms: int = 0) -> PartitionLog:
    return PartitionLog(DIRECTORY, disk, CONFIG, wall_ms)


@pytest.fixture
def log() -> PartitionLog:
    return open_log(MemoryFileSystem())


def write(
    log: PartitionLog, producer: int, sequence: int, value: bytes = b"v", *, epoch: int = 0, transactional: bool = True
) -> int:
    batch, header = with_header(
        [value], producer_id=producer, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
    )
    guard = log.begin_verification(producer, epoch, sequence, 0) if transactional else None
    return log.append(batch, header, 0, 0, guard).base_offset


def end(
    log: PartitionLog,
    producer: int,
    *,
    committed: bool,
    epoch: int = 0,
    coordinator: int = 0,
    transaction_version: TransactionVersion = TransactionVersion.V1,
) -> int:
    marker = EndTransactionMarker(producer, epoch, committed, coordinator)
    return log.append_marker(marker, 0, 0, transaction_version=transaction_version).base_offset


def committed_values(log: PartitionLog, max_bytes: int = 1 << 20) -> list[bytes | None]:
    """The values that a read_committed consumer returns; no fetch may have an offset of an open transaction."""
    found: list[bytes | None] = []
    offset = log.start_offset
    while True:
        read = log.read(offset, max_bytes, whole_first_batch=True, committed=True)
        waiting = sorted(read.aborted, key=lambda each: each.first_offset)
        aborted: set[int] = set()
        before = offset
        for batch in read_batches(read.records):
            assert batch.last_offset < read.last_stable_offset
            while waiting and waiting[0].first_offset <= batch.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            offset = batch.last_offset + 1
            if batch.is_control:
                marker = read_marker(batch.data)
                if marker is not None and not marker.committed:
                    aborted.discard(marker.producer_id)
            elif not (batch.is_transactional and batch.header.producer_id in aborted):
                found += [record.value for record in batch.records()]
        if offset == before:
            assert offset == read.last_stable_offset
            return found


@pytest.mark.behaviour("Transactions in the log", "The bytes of a transaction marker are Kafka's")
def test_the_bytes_of_a_marker_are_kafkas(log: PartitionLog) -> None:
    log.append_marker(EndTransactionMarker(4000, 5, True, 9), leader_epoch=2, wall_ms=0x123456789A)
    (batch,) = read_batches(log.read(0, 1 << 20, whole_first_batch=True).records)
    # Written by Kafka's Java MemoryRecords.withEndTransactionMarker, except the checksum, which has its own assertion.
    assert batch.verify_crc()
    assert bytes(batch.data[:17]).hex() == "0000000000000000000000420000000202"
    assert bytes(batch.data[21:]).hex() == (
        "0030" "00000000" "000000123456789a" "000000123456789a" "0000000000000fa0" "0005" "ffffffff" "00000001"
        "20" "00" "00" "00" "08" "00000001" "0c" "000000000009" "00"
    )  # fmt: skip


def test_last_stable_offset_is_at_the_oldest_open_transaction(log: PartitionLog) -> None:
    write(log, 1, 0, transactional=False)
    write(log, 2, 0)
    write(log, 3, 0)
    write(log, 1, 1, transactional=False)
    assert (log.last_stable_offset, log.end_offset) == (1, 4)
    end(log, 3, committed=True)
    assert log.last_stable_offset == 1
    end(log, 2, committed=False)
    assert log.last_stable_offset == log.end_offset == 6


def test_committed_bytes_exclude_those_after_last_stable_offset(log: PartitionLog) -> None:
    write(log, 1, 0, transactional=False)
    seen = log.appended_bytes(committed=True)
    assert seen == log.appended_bytes()
    write(log, 2, 0)
    write(log, 1, 1, transactional=False)
    assert log.appended_bytes(committed=True) == seen < log.appended_bytes()
    end(log, 2, committed=True)
    assert log.appended_bytes(committed=True) == log.appended_bytes()


@pytest.mark.behaviour(
    "Transactions in the log", "An aborted transaction stays aborted when only its beginning is deleted"
)
@pytest.mark.parametrize("restarts", [False, True])
def test_aborted_transaction_stays_aborted_if_its_start_is_gone(restarts: bool) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    for producer in (1, 2):
        for sequence in range(2):
            write(log, producer, sequence)
        end(log, producer, committed=False)
    assert log.delete_records_before(4) == 4, "in the middle of the second one"
    if restarts:
        log.close()
        log = open_log(disk)
    assert log.read(4, 1 << 20, whole_first_batch=True, committed=True).aborted == (AbortedRange(2, 3, 5),)
    assert committed_values(log) == []


def refused(do: object, code: ErrorCode) -> None:
    assert callable(do)
    with pytest.raises(ApiError) as caught:
        do()
    assert caught.value.code is code


def test_unverified_transactional_batch_is_refused(log: PartitionLog) -> None:
    batch, header = with_header([b"v"], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    refused(lambda: log.append(batch, header, 0, 0), ErrorCode.INVALID_TXN_STATE)
    refused(lambda: log.append(batch, header, 0, 0, VerificationGuard(1, 0)), ErrorCode.INVALID_TXN_STATE)
    assert log.end_offset == 0


@pytest.mark.behaviour(
    "Transactions in the log", "A marker between the verification and the append keeps the batch out"
)
def test_marker_between_verification_and_append_refuses_batch(log: PartitionLog) -> None:
    batch, header = with_header([b"v"], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    guard = log.begin_verification(1, 0, 0, 0)
    end(log, 1, committed=False)
    refused(lambda: log.append(batch, header, 0, 0, guard), ErrorCode.INVALID_TXN_STATE)
    assert log.last_stable_offset == log.end_offset == 1


@pytest.mark.behaviour(
    "Transactions in the log",
    "The marker of a transaction does not keep out the next one of a client that bumps epochs",
)
def test_late_marker_does_not_refuse_next_epoch_of_client(log: PartitionLog) -> None:
    for written_before in (True, False):
        producer, last = 7 + written_before, 3
        if written_before:
            write(log, producer, 0, epoch=last)
        batch, header = with_header(
            [b"v"], producer_id=producer, producer_epoch=last + 1, base_sequence=0, is_transactional=True
        )
        guard = log.begin_verification(producer, last + 1, 0, 0, transaction_version=TransactionVersion.V2)
        # Decided before the verification, written after it: the coordinator confirms once this marker is everywhere.
        end(log, producer, committed=True, epoch=last + 1)
        end_offset = log.end_offset
        assert log.append(batch, header, 0, 0, guard).base_offset == end_offset
        end(log, producer, committed=True, epoch=last + 2)
        assert log.last_stable_offset == log.end_offset
    assert committed_values(log) == [b"v"] * 3


def test_own_marker_keeps_batch_out_of_the_next_transaction(log: PartitionLog) -> None:
    batch, header = with_header([b"v"], producer_id=1, producer_epoch=4, base_sequence=0, is_transactional=True)
    guard = log.begin_verification(1, 4, 0, 0, transaction_version=TransactionVersion.V2)
    end(log, 1, committed=False, epoch=5)
    refused(lambda: log.append(batch, header, 0, 0, guard), ErrorCode.INVALID_PRODUCER_EPOCH)
    # Without an epoch of its own, the next transaction's marker cannot be distinguished from the last one's.
    guard = log.begin_verification(1, 5, 0, 0)
    end(log, 1, committed=False, epoch=5)
    batch, header = with_header([b"v"], producer_id=1, producer_epoch=5, base_sequence=0, is_transactional=True)
    refused(lambda: log.append(batch, header, 0, 0, guard), ErrorCode.INVALID_TXN_STATE)


def test_repeated_marker_does_not_end_the_next_transaction(log: PartitionLog) -> None:
    write(log, 1, 0, epoch=3)
    for _ in range(2):
        end(log, 1, committed=True, epoch=4, transaction_version=TransactionVersion.V2)
    write(log, 1, 0, epoch=4)
    refused(
        lambda: end(log, 1, committed=True, epoch=4, transaction_version=TransactionVersion.V2),
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    assert log.last_stable_offset == 3
    end(log, 1, committed=False, epoch=5, transaction_version=TransactionVersion.V2)
    assert committed_values(log) == [b"v"]
    # Without an epoch for each transaction, the marker belongs to the current one.
    write(log, 1, 0, epoch=5)
    end(log, 1, committed=True, epoch=5)
    assert committed_values(log) == [b"v"] * 2


def test_verifications_of_two_requests_do_not_end_each_other(log: PartitionLog) -> None:
    first, second = (log.begin_verification(1, 0, 0, 0) for _ in range(2))
    assert first is not None
    log.end_verification(first)
    batch, header = with_header([b"v"], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    refused(lambda: log.append(batch, header, 0, 0, first), ErrorCode.INVALID_TXN_STATE)
    assert log.append(batch, header, 0, 0, second).base_offset == 0


def test_only_first_batch_of_a_transaction_needs_verification(log: PartitionLog) -> None:
    assert log.begin_verification(1, 0, 0, 0) is not None
    write(log, 1, 0)
    assert log.begin_verification(1, 0, 0, 0) is None
    end(log, 1, committed=True)
    guard = log.begin_verification(1, 0, 0, 0)
    assert guard is not None
    log.end_verification(guard)
    batch, header = with_header([b"v"], producer_id=1, producer_epoch=0, base_sequence=1, is_transactional=True)
    refused(lambda: log.append(batch, header, 0, 0, guard), ErrorCode.INVALID_TXN_STATE)


def test_a_marker_fences_older_epochs_and_begins_its_own(log: PartitionLog) -> None:
    write(log, 1, 0)
    end(log, 1, committed=True, epoch=1)
    refused(lambda: write(log, 1, 1, epoch=0), ErrorCode.INVALID_PRODUCER_EPOCH)
    refused(lambda: log.begin_verification(1, 0, 0, 0), ErrorCode.INVALID_PRODUCER_EPOCH)
    refused(lambda: write(log, 1, 1, epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert write(log, 1, 0, epoch=1) == 2


def test_markers_of_older_epochs_and_coordinators_are_refused(log: PartitionLog) -> None:
    write(log, 1, 0, epoch=3)
    refused(lambda: end(log, 1, committed=True, epoch=2), ErrorCode.INVALID_PRODUCER_EPOCH)
    end(log, 1, committed=True, epoch=3, coordinator=5)
    refused(lambda: end(log, 1, committed=True, epoch=3, coordinator=4), ErrorCode.TRANSACTION_COORDINATOR_FENCED)


def test_open_transaction_rejects_plain_writes_and_never_expires(log: PartitionLog) -> None:
    write(log, 1, 0)
    refused(lambda: write(log, 1, 1, transactional=False), ErrorCode.INVALID_TXN_STATE)
    log.apply_retention(wall_ms=10_000)
    assert log.last_stable_offset == 0
    assert log.producers()[1].transaction_first_offset == 0


@dataclass
class Written:
    """A batch or a marker, for the comparison with the log."""

    offset: int
    producer: int
    value: bytes | None
    committed: bool = False


def expected_values(written: list[Written]) -> tuple[list[bytes | None], int | None]:
    """The values for read_committed readers, and the first offset of the oldest open transaction."""
    fate: dict[int, bool] = {}
    open_at: dict[int, list[int]] = {}
    for item in written:
        if item.producer < 0:
            continue
        if item.value is not None:
            open_at.setdefault(item.producer, []).append(item.offset)
        else:
            for offset in open_at.pop(item.producer, []):
                fate[offset] = item.committed
    stable = min((offsets[0] for offsets in open_at.values()), default=None)
    shown = [item.value for item in written if item.value is not None and (item.producer < 0 or fate.get(item.offset))]
    offsets = [
        item.offset for item in written if item.value is not None and (item.producer < 0 or fate.get(item.offset))
    ]
    return [value for value, offset in zip(shown, offsets, strict=True) if stable is None or offset < stable], stable


@pytest.mark.behaviour("Transactions in the log", "Readers get what was committed over restarts, kills and truncation")
@pytest.mark.behaviour(
    "Transactions in the log", "The last stable offset is right at every step of stops, kills and cut tails"
)
@with_each("seed", range(25))
def test_committed_reads_survive_restarts_kills_and_truncation(seed: int) -> None:
    rng = random.Random(seed)
    disk = MemoryFileSystem()
    log = open_log(disk)
    written: list[Written] = []
    sequences: dict[int, int] = {}
    for number in range(250):
        dice = rng.random()
        producer = rng.randrange(4)
        if dice < 0.55:
            value = f"{number}".encode()
            sequence = sequences.get(producer, 0)
            written.append(Written(write(log, producer, sequence, value), producer, value))
            sequences[producer] = sequence + 1
        elif dice < 0.65:
            batch, header = with_header([b"plain"])
            written.append(Written(log.append(batch, header, 0, 0).base_offset, -1, b"plain"))
        elif dice < 0.93:
            committed = rng.random() < 0.5
            written.append(Written(end(log, producer, committed=committed), producer, None, committed))
        else:
            log = _reopened(rng, disk, log)
            written = [item for item in written if item.offset < log.end_offset]
            sequences = {known: state.last_sequence + 1 for known, state in log.producers().items()}
        expected, stable = expected_values(written)
        assert log.last_stable_offset == (log.end_offset if stable is None else stable), (seed, number)
    expected, _ = expected_values(written)
    assert committed_values(log, max_bytes=rng.choice([1, 300, 1 << 20])) == expected, seed


def _reopened(rng: random.Random, disk: MemoryFileSystem, log: PartitionLog) -> PartitionLog:
    how = rng.choice(["stop", "kill", "cut"])
    if how == "stop":
        log.close()
    else:
        log.abandon()
    if how == "cut":
        newest = max(path for path in disk.files if path.suffix == ".log")
        data = disk.files[newest].data
        del data[rng.randrange(len(data) + 1) :]
    return open_log(disk)


def test_last_stable_offset_is_never_below_the_log_start(log: PartitionLog) -> None:
    for sequence in range(3):
        write(log, 1, sequence)
    write(log, 2, 0, transactional=False)
    assert log.last_stable_offset == 0
    assert log.delete_records_before(2) == 2
    assert log.last_stable_offset == 2
    found = log.read(log.last_stable_offset, 1 << 20, whole_first_batch=True, committed=True)
    assert (found.records, found.last_stable_offset, found.start_offset) == (b"", 2, 2)
    end(log, 1, committed=True)
    assert log.last_stable_offset == log.end_offset == 5
    assert committed_values(log) == [b"v", b"v"]


def ask(log: PartitionLog, sequence: int, *, epoch: int = 1, wall_ms: int = 0) -> None:
    """Verify a batch, for which the coordinator answers CONCURRENT_TRANSACTIONS."""
    guard = log.begin_verification(1, epoch, sequence, wall_ms, transaction_version=TransactionVersion.V2)
    assert guard is not None
    log.end_verification(guard)


def test_no_batch_is_stored_before_the_lowest_verified_sequence(log: PartitionLog) -> None:
    ask(log, 1)
    ask(log, 0)
    refused(lambda: write(log, 1, 1, epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert [write(log, 1, sequence, epoch=1) for sequence in (0, 1, 2)] == [0, 1, 2]


def test_version_2_begins_with_sequence_0_in_a_new_partition(log: PartitionLog) -> None:
    # The first batch was refused before it was verified: its broker did not lead the partition.
    ask(log, 1)
    refused(lambda: write(log, 1, 1, epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert [write(log, 1, sequence, epoch=1) for sequence in (0, 1)] == [0, 1]


def test_lowest_sequence_counts_for_its_epoch_until_a_marker(log: PartitionLog) -> None:
    ask(log, 0)
    # The newer epoch may begin with any sequence, as the log has no state of the producer.
    assert write(log, 1, 7, epoch=2) == 0
    end(log, 1, committed=False, epoch=2)
    ask(log, 8, epoch=2)
    end(log, 1, committed=False, epoch=2)
    refused(lambda: write(log, 1, 9, epoch=2), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert write(log, 1, 8, epoch=2) == 3


def test_the_lowest_sequence_is_forgotten_with_its_producer(log: PartitionLog) -> None:
    ask(log, 0, wall_ms=1000)
    log.apply_retention(1000 + CONFIG.producer_expiration_ms)
    refused(lambda: write(log, 1, 1, epoch=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    log.apply_retention(2001 + CONFIG.producer_expiration_ms)
    assert write(log, 1, 1, epoch=1) == 0


def test_a_damaged_marker_keeps_its_log_alone_from_being_used(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    write(log, 1, 0)
    sound = bytes(disk.files[DIRECTORY / f"{0:020d}.log"].data)
    end(log, 1, committed=True)
    log.close()
    for path in [path for path in disk.files if path.suffix == ".snapshot"]:
        del disk.files[path]
    stored = disk.files[DIRECTORY / f"{0:020d}.log"].data
    for position in range(len(sound) + HEADER_BYTES, len(stored)):
        stored[position] ^= 0xFF
    again = open_log(disk)
    where = f"{DIRECTORY}/{0:020d}.log is damaged at byte {len(sound)}"
    assert f"the log cannot be used: {where}: the control batch at offset 1 does not match its checksum" in caplog.text
    for use in (
        lambda: again.read(0, 100, whole_first_batch=True),
        lambda: write(again, 2, 0),
        lambda: end(again, 1, committed=True),
        lambda: again.delete_records_before(1),
    ):
        refused(use, ErrorCode.KAFKA_STORAGE_ERROR)
    again.apply_retention(2**62)
    again.close()
    assert bytes(disk.files[DIRECTORY / f"{0:020d}.log"].data) == bytes(stored)


def aborted_of(log: PartitionLog) -> list[AbortedRange]:
    """The aborted transactions of the whole log, as read_committed fetches return them."""
    found: list[AbortedRange] = []
    offset = log.start_offset
    while offset < log.last_stable_offset:
        read = log.read(offset, 1 << 20, whole_first_batch=True, committed=True)
        assert list(read.aborted) == sorted(set(read.aborted), key=lambda each: each.first_offset)
        found += [each for each in read.aborted if each not in found]
        offset = max(batch.last_offset for batch in read_batches(read.records)) + 1
    return found


@with_each("seed", range(5))
@with_each("interval", [1, 200, 1 << 20])
def test_a_log_knows_its_producers_as_before(interval: int, seed: int) -> None:
    rng, disk = random.Random(seed), MemoryFileSystem()
    config = replace(CONFIG, index_interval_bytes=interval)
    log = PartitionLog(DIRECTORY, disk, config, wall_ms=0)
    epochs, sequences = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 0)
    for _ in range(60):
        dice, producer = rng.random(), rng.randrange(3)
        if dice < 0.6:
            write(log, producer, sequences[producer], epoch=epochs[producer])
            sequences[producer] += 1
        elif dice < 0.9:
            bumps = rng.random() < 0.5
            epochs[producer] += bumps
            sequences[producer] *= not bumps
            end(log, producer, committed=rng.random() < 0.5, epoch=epochs[producer], coordinator=len(sequences))
        else:
            before = log.producers(), aborted_of(log), log.last_stable_offset
            if rng.random() < 0.5:
                log.close()
            log = PartitionLog(DIRECTORY, disk, config, wall_ms=0)
            assert (log.producers(), aborted_of(log), log.last_stable_offset) == before


def closed_with_aborted(count: int = 30) -> tuple[MemoryFileSystem, list[int]]:
    """A closed log with an aborted transaction at 0 to 1 and *count* plain batches, and its segments' base offsets."""
    disk = MemoryFileSystem()
    log = open_log(disk)
    write(log, 1, 0)
    end(log, 1, committed=False)
    for sequence in range(count):
        write(log, 2, sequence, transactional=False)
    log.close()
    bases = [int(path.stem) for path in sorted(disk.files) if path.suffix == ".log"]
    assert len(bases) > 2
    return disk, bases


def damage(disk: MemoryFileSystem, base: int) -> None:
    """Damage the length of the first batch of a segment."""
    disk.files[DIRECTORY / f"{base:020d}.log"].data[8] ^= 0xFF


def lose(disk: MemoryFileSystem, base: int) -> None:
    for suffix in (".log", ".index"):
        del disk.files[DIRECTORY / f"{base:020d}{suffix}"]


def test_markers_are_not_looked_for_unless_compacted() -> None:
    disk, bases = closed_with_aborted()
    damage(disk, 0)
    log = open_log(disk.clone())
    assert log.read(bases[1], 1 << 20, whole_first_batch=True).records
    # A compaction may have removed the records; the damage makes it impossible to tell.
    disk.replace_file(DIRECTORY / f"{1:020d}.compacted", b"")
    refused(lambda: open_log(disk).read(bases[1], 100, whole_first_batch=True), ErrorCode.KAFKA_STORAGE_ERROR)


def test_markers_of_deleted_segments_are_not_looked_for() -> None:
    disk, bases = closed_with_aborted()
    disk.replace_file(DIRECTORY / f"{1:020d}.compacted", b"")
    assert aborted_of(open_log(disk.clone())) == [AbortedRange(1, 0, 1)]
    lose(disk, 0)
    damage(disk, bases[-1])
    log = open_log(disk)
    assert log.start_offset == bases[1]
    assert log.read(bases[1], 1 << 20, whole_first_batch=True).records


def snapshot_with(disk: MemoryFileSystem, *aborted: AbortedRange) -> None:
    """Write a snapshot for the end of the log, with these aborted transactions only."""
    content = {"format": 2, "producers": [], "aborted": aborted}
    disk.replace_file(DIRECTORY / f"{32:020d}.snapshot", with_checksum(json.dumps(content).encode()))


def test_an_aborted_transaction_without_marker_is_forgotten() -> None:
    disk, bases = closed_with_aborted()
    disk.replace_file(DIRECTORY / f"{1:020d}.compacted", b"")
    # Only the first one has its marker: the others have the same offsets, but another producer, or data.
    snapshot_with(disk, AbortedRange(1, 0, 1), AbortedRange(3, 0, 1), AbortedRange(2, 2, 3))
    assert aborted_of(open_log(disk.clone())) == [AbortedRange(1, 0, 1)]
    # The segment with its marker is lost; the segments before and after it remain.
    snapshot_with(disk, AbortedRange(1, 0, 1), AbortedRange(2, 0, bases[1]))
    lose(disk, bases[1])
    log = open_log(disk)
    assert log.read(0, 1 << 20, whole_first_batch=True, committed=True).aborted == (AbortedRange(1, 0, 1),)


def test_control_records_of_other_types_end_nothing() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    write(log, 1, 0)
    # Type 2 is a leader change.
    other, header = with_header([b"v"], keys=[bytes((0, 0, 0, 2))], is_control=True)
    log.append(other, header, 0, 0)
    again = open_log(disk.clone())
    assert (again.end_offset, again.last_stable_offset) == (2, 0)
    assert again.producers() == log.producers()
    end(again, 1, committed=True)
    assert committed_values(again) == [b"v"]
