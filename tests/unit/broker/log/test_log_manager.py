"""All the logs of a data directory: opening, flushing, housekeeping and deletion."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.broker.cluster.topic_state import topic_settings
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.compaction import Compaction
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import LogConfig, PartitionLog
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.threads import start_thread
from tests.fakes.clock import FakeClock
from tests.fakes.compacted_log import CONFIG as COMPACTED
from tests.fakes.memory_filesystem import MemoryFileSystem
from tests.fakes.record_batches import with_header
from tests.support.cases import with_each

DIRECTORY = Path("/data/logs")
CONFIG = topic_settings({"segment.bytes": "300", "retention.ms": "1000"}, BrokerConfig()).log
A, B = TopicPartition("a-b.c_d", 0), TopicPartition("b", 12)


def manager(disk: MemoryFileSystem, clock: FakeClock | None = None) -> LogManager:
    return LogManager(DIRECTORY, disk, clock or FakeClock())


def write(logs: LogManager, partition: TopicPartition, count: int = 1) -> None:
    for _ in range(count):
        batch, header = with_header([b"x" * 100])
        log = logs.get_or_create(partition, CONFIG, lambda: True)
        assert log is not None
        log.append(batch, header, 0, 0)


def known(*partitions: TopicPartition) -> object:
    return lambda partition: CONFIG if partition in partitions else None


def test_a_log_is_made_when_it_is_written_and_found_again() -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    assert logs.get(A) is None
    write(logs, A)
    write(logs, B, 2)
    assert disk.list_directory(DIRECTORY) == ["a-b.c_d-0", "b-12"]
    again = manager(disk)
    again.open_existing(known(A, B))  # type: ignore[arg-type]
    opened = [log for log in (again.get(A), again.get(B)) if log is not None]
    assert [(log.end_offset, log.truncated_bytes) for log in opened] == [(1, 0), (2, 0)]


def test_truncated_bytes_are_counted() -> None:
    disk = MemoryFileSystem()
    write(manager(disk), A)
    disk.files[DIRECTORY / "a-b.c_d-0" / f"{0:020d}.log"].data.extend(b"torn")
    again = manager(disk)
    again.open_existing(known(A))  # type: ignore[arg-type]
    log = again.get(A)
    assert log is not None and log.truncated_bytes == 4


def test_logs_of_no_topic_are_removed_and_foreign_files_stay() -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    write(logs, A)
    write(logs, B)
    for name in ("notes.txt", "0123-delete/x", "directory/x"):
        disk.replace_file(DIRECTORY / name, b"")
    manager(disk).open_existing(known(B))  # type: ignore[arg-type]
    assert disk.list_directory(DIRECTORY) == ["b-12", "directory", "notes.txt"]


def test_a_deleted_log_is_gone_with_its_files() -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    write(logs, A, 5)
    log = logs.get(A)
    logs.delete([A, B])
    assert logs.get(A) is None
    assert disk.list_directory(DIRECTORY) == []
    assert log is not None
    logs.housekeep()
    write(logs, A)
    assert logs.get(A) is not log


def test_housekeeping_seals_and_deletes_by_age(caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = MemoryFileSystem(), FakeClock()
    logs = manager(disk, clock)
    write(logs, A, 5)
    logs.housekeep()
    log = logs.get(A)
    assert log is not None and log.start_offset == 4
    # A disk that fails for one log does not prevent the housekeeping of others.
    write(logs, B, 5)
    disk.fail_flush = True
    logs.housekeep()
    assert "housekeeping of b-12 failed" in caplog.text
    disk.fail_flush = False
    logs.housekeep()
    other = logs.get(B)
    assert other is not None and other.start_offset > 0


def test_a_log_that_is_not_wanted_any_more_is_not_made() -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    assert logs.get_or_create(A, CONFIG, lambda: False) is None
    assert disk.list_directory(DIRECTORY) == []


def test_the_housekeeping_thread_works_and_ends() -> None:
    clock = FakeClock()
    logs = manager(MemoryFileSystem(), clock)
    write(logs, A, 5)
    log = logs.get(A)
    assert log is not None
    logs.start_housekeeping("housekeeping", interval_ms=5000, flush_interval_ms=2000)
    deadline = SYSTEM_CLOCK.monotonic_ms() + 10_000
    while not log.start_offset and SYSTEM_CLOCK.monotonic_ms() < deadline:
        continue
    logs.stop_housekeeping()
    assert log.start_offset == 4
    assert set(clock.waits) == {2000}


@pytest.mark.behaviour("Log", "log.flush.interval.ms flushes what has waited")
def test_flush_due_flushes_after_the_flush_interval() -> None:
    disk, clock = MemoryFileSystem(), FakeClock()
    logs = manager(disk, clock)
    log = logs.get_or_create(A, replace(CONFIG, flush_interval_ms=3000), lambda: True)
    assert log is not None
    batch, header = with_header([b"x"])
    log.append(batch, header, 0, 0)
    (segment,) = (file for path, file in disk.files.items() if path.suffix == ".log")
    logs.flush_due(clock.monotonic_ms())
    logs.flush_due(clock.monotonic_ms() + 2999)
    assert segment.flushed == b""
    logs.flush_due(clock.monotonic_ms() + 3000)
    assert segment.flushed == bytes(segment.data)
    # Without new records, nothing is flushed again.
    steps = disk.steps
    logs.flush_due(clock.monotonic_ms() + 9000)
    logs.flush_due(clock.monotonic_ms() + 19000)
    assert disk.steps == steps


@pytest.mark.behaviour("Log", "A flush that fails ends its log, and no other")
def test_a_flush_that_fails_ends_its_log_and_no_other() -> None:
    disk, clock = MemoryFileSystem(), FakeClock()
    logs = manager(disk, clock)
    for partition in (A, B):
        log = logs.get_or_create(partition, replace(CONFIG, flush_interval_ms=0), lambda: True)
        assert log is not None
        batch, header = with_header([b"x"])
        log.append(batch, header, 0, 0)
    disk.fail_at = disk.steps + 1
    logs.flush_due(clock.monotonic_ms())
    failed, sound = logs.get(A), logs.get(B)
    assert failed is not None and sound is not None
    with pytest.raises(ApiError) as caught:
        failed.read(0, 100, whole_first_batch=True)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert sound.read(0, 100, whole_first_batch=True).records


def test_closing_seals_everything() -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    write(logs, A, 5)
    logs.close()
    disk.lose_unflushed()
    again = manager(disk)
    again.open_existing(known(A))  # type: ignore[arg-type]
    log = again.get(A)
    assert log is not None and (log.end_offset, log.truncated_bytes) == (5, 0)


def test_an_abandoned_directory_is_not_written_to_any_more() -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    write(logs, A)
    steps = disk.steps
    logs.abandon()
    assert disk.steps == steps


def test_settings_of_the_topic_reach_the_log() -> None:
    assert isinstance(CONFIG, LogConfig)
    assert (CONFIG.segment_bytes, CONFIG.retention_ms, CONFIG.index_interval_bytes) == (300, 1000, 4096)


def test_what_cannot_be_deleted_stays_and_the_others_go(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    write(logs, A)
    write(logs, B)
    disk.fail_at = disk.steps + 1
    with pytest.raises(OSError, match="Input/output error"):
        logs.delete([A, B])
    assert "cannot remove a-b.c_d-0: [Errno 5]" in caplog.text
    assert logs.get(A) is not None and logs.get(B) is None
    assert disk.list_directory(DIRECTORY) == ["a-b.c_d-0"]
    logs.delete([A])
    assert disk.list_directory(DIRECTORY) == []


def test_files_without_a_log_and_a_log_without_files_go() -> None:
    disk = MemoryFileSystem()
    write(manager(disk), A)
    logs = manager(disk)
    logs.delete([A])
    assert disk.files == {}
    write(logs, A)
    disk.files.clear()
    logs.delete([A])
    assert logs.get(A) is None
    steps = disk.steps
    logs.delete([A])
    assert disk.steps == steps


def test_directories_of_other_names_are_left_alone() -> None:
    disk = MemoryFileSystem()
    others = ["-5", "a", "a-", "a-2147483648", "a-b", "a-delete.txt"]
    for name in others:
        disk.replace_file(DIRECTORY / name / "x", b"")
    logs = manager(disk)
    write(logs, TopicPartition("a", 2**31 - 1))
    asked: list[TopicPartition] = []

    def config_of(partition: TopicPartition) -> None:
        asked.append(partition)

    manager(disk).open_existing(config_of)
    assert asked == [TopicPartition("a", 2**31 - 1)]
    assert disk.list_directory(DIRECTORY) == others


def test_two_threads_make_one_log() -> None:
    class SlowDisk(MemoryFileSystem):
        def make_directories(self, path: Path) -> None:
            if path.name == str(A) and not others:
                other = start_thread("makes it, too", lambda: found.append(logs.get_or_create(A, CONFIG, lambda: True)))
                others.append(other)
                other.join(0.05)
                assert other.is_alive()

    others: list[threading.Thread] = []
    found: list[PartitionLog | None] = []
    logs = manager(SlowDisk())
    log = logs.get_or_create(A, CONFIG, lambda: True)
    others[0].join()
    assert log is not None and found == [log] and logs.get(A) is log


class Tended(LogManager):
    """Notes its flushes and its housekeeping; *enough* is set after three times."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(DIRECTORY, MemoryFileSystem(), clock)
        self.clock = clock
        self.flushed_ms: list[int] = []
        self.tended_ms: list[int] = []
        self.enough = threading.Event()

    def flush_due(self, monotonic_ms: int) -> None:
        if not self.enough.is_set():
            self.flushed_ms.append(monotonic_ms)

    def housekeep(self) -> None:
        if not self.enough.is_set():
            self.tended_ms.append(self.clock.now_ms)
        if len(self.tended_ms) == 3:
            self.enough.set()


@with_each(
    ("interval_ms", "flush_interval_ms", "flushed", "tended"),
    [
        (4000, 2000, [2000, 4000, 6000, 8000, 10000, 12000], [4000, 8000, 12000]),
        (5000, 3000, [3000, 6000, 9000, 12000, 15000, 18000], [6000, 12000, 18000]),
        (1000, 7000, [1000, 2000, 3000], [1000, 2000, 3000]),
    ],
)
def test_logs_are_flushed_and_tended_in_time(
    interval_ms: int, flush_interval_ms: int, flushed: list[int], tended: list[int]
) -> None:
    logs = Tended(FakeClock(0))
    logs.start_housekeeping("housekeeping", interval_ms, flush_interval_ms)
    assert logs.enough.wait(10)
    logs.stop_housekeeping()
    assert (logs.flushed_ms, logs.tended_ms) == (flushed, tended)


def test_no_thread_waits_when_all_have_to_end() -> None:
    clock = FakeClock()
    logs = manager(MemoryFileSystem(), clock)
    logs.stop_housekeeping()
    logs.start_housekeeping("housekeeping", 1000, 1000)
    logs.start_compaction("compaction", lambda: 1000)
    logs.stop_housekeeping()
    assert clock.waits == []


def test_a_compaction_without_pause_waits_a_moment() -> None:
    clock = FakeClock()
    logs = manager(MemoryFileSystem(), clock)
    logs.start_compaction("compaction", lambda: 0)
    deadline = SYSTEM_CLOCK.monotonic_ms() + 10_000
    while not clock.waits and SYSTEM_CLOCK.monotonic_ms() < deadline:
        continue
    logs.stop_housekeeping()
    assert set(clock.waits) == {1}


def test_deleted_segments_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    logs = manager(MemoryFileSystem())
    write(logs, A, 5)
    write(logs, B)
    with caplog.at_level(logging.INFO):
        logs.housekeep()
    assert [text.partition("] ")[2] for text in caplog.messages] == ["retention deleted 4 segments of a-b.c_d-0"]


def compacting(logs: LogManager) -> None:
    """Give the log of A a compaction that is due."""
    log = logs.get_or_create(A, replace(COMPACTED, segment_bytes=110), lambda: True)
    assert log is not None
    for _ in range(4):
        batch, header = with_header([b"x" * 100], keys=[b"a"])
        log.append(batch, header, 0, 0)


def test_no_compaction_begins_when_all_have_to_end() -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    compacting(logs)
    logs.stop_housekeeping()
    steps = disk.steps
    logs.compact()
    assert disk.steps == steps


def test_a_compaction_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryFileSystem()
    logs = manager(disk)
    compacting(logs)
    log = logs.get(A)
    assert log is not None
    size = log.size
    disk.fail_at = disk.steps + 1
    with caplog.at_level(logging.INFO):
        logs.compact()
        assert log.size == size
        logs.compact()
    assert log.size < size
    assert [text.partition("] ")[2] for text in caplog.messages] == [
        "a-b.c_d-0 was not compacted, which will be tried again: [Errno 5] Input/output error",
        "compacted a-b.c_d-0",
    ]


def test_a_deleted_log_is_no_failed_compaction(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = manager(MemoryFileSystem())
    compacting(logs)
    log = logs.get(A)
    assert log is not None
    begin = log.begin_compaction

    def delete_then(wall_ms: int) -> Compaction | None:
        begun = begin(wall_ms)
        logs.delete([A])
        return begun

    monkeypatch.setattr(log, "begin_compaction", delete_then)
    with caplog.at_level(logging.INFO):
        logs.compact()
    assert logs.get(A) is None and caplog.messages == []
