"""Housekeeping without a lock during deletions: on a real disk, with the deletion in the middle of a flush."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.broker.cluster.topic_state import topic_settings
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.filesystem import LogFile, OsFileSystem
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.common.errors import ApiError
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.threads import start_thread
from tests.fakes.clock import FakeClock
from tests.fakes.record_batches import with_header

CONFIG = replace(topic_settings({"segment.bytes": "200"}, BrokerConfig()).log, flush_interval_ms=100)
T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


class SlowDisk(OsFileSystem):
    """Runs :attr:`meanwhile`, once, in the middle of a flush."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None
        self.flushed: list[str] = []

    def open(self, path: Path) -> LogFile:
        file = super().open(path)
        really_flush = file.flush

        def flush() -> None:
            act, self.meanwhile = self.meanwhile, None
            really_flush()
            self.flushed.append(f"{path.parent.name}/{path.name}")
            if act is not None:
                act()

        file.flush = flush  # type: ignore[method-assign]
        return file


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def logs(disk: SlowDisk, tmp_path: Path) -> LogManager:
    return LogManager(tmp_path / "logs", disk, FakeClock())


def written(logs: LogManager, partition: TopicPartition, count: int = 5, size: int = 100) -> PartitionLog:
    log = logs.get_or_create(partition, CONFIG, lambda: True)
    assert log is not None
    for _ in range(count):
        batch, header = with_header([b"x" * size])
        log.append(batch, header, 0, 0)
    return log


def names(tmp_path: Path, partition: TopicPartition, suffix: str) -> list[int]:
    return sorted(int(path.stem) for path in (tmp_path / "logs" / str(partition)).glob(f"*{suffix}"))


def flush_after_a_while(logs: LogManager) -> None:
    logs.flush_due(0)
    logs.flush_due(100)


@pytest.mark.behaviour("Log", "A flush survives segments that are deleted meanwhile")
def test_a_flush_outlives_segments_that_are_deleted_meanwhile(logs: LogManager, disk: SlowDisk) -> None:
    log = written(logs, T0)
    written(logs, U0)
    disk.meanwhile = lambda: log.delete_records_before(-1)
    flush_after_a_while(logs)
    assert f"u-0/{4:020d}.log" in disk.flushed
    written(logs, T0)
    assert log.end_offset == 10
    assert log.read(9, 1 << 20, whole_first_batch=True).records


def test_a_flush_outlives_a_topic_that_is_deleted_meanwhile(logs: LogManager, disk: SlowDisk) -> None:
    written(logs, T0)
    written(logs, U0)
    disk.meanwhile = lambda: logs.delete([T0])
    flush_after_a_while(logs)
    assert f"u-0/{4:020d}.log" in disk.flushed
    assert written(logs, T0, 1).end_offset == 1


def test_no_index_is_left_of_a_segment_that_is_deleted_meanwhile(
    logs: LogManager, disk: SlowDisk, tmp_path: Path
) -> None:
    log = written(logs, T0)
    disk.meanwhile = lambda: log.delete_records_before(3)
    logs.housekeep()
    assert names(tmp_path, T0, ".log") == [*names(tmp_path, T0, ".index"), 4] == [3, 4]


@pytest.mark.behaviour("Log", "No index of a deleted topic reaches the next one of its name")
def test_index_of_deleted_topic_does_not_reach_recreated_topic(
    logs: LogManager, disk: SlowDisk, tmp_path: Path
) -> None:
    # Two batches in the first segment, and one in the first segment of the new topic.
    written(logs, T0, size=10)

    def create_anew() -> None:
        logs.delete([T0])
        written(logs, T0, 2)

    disk.meanwhile = create_anew
    logs.housekeep()
    assert names(tmp_path, T0, ".log") == [0, 1]
    # As after a kill: an index of other batches would truncate the log.
    again = LogManager(tmp_path / "logs", OsFileSystem(), FakeClock())
    again.open_existing(lambda partition: CONFIG)
    found = again.get(T0)
    assert found is not None and (found.end_offset, found.truncated_bytes) == (2, 0)


def test_failure_in_one_log_does_not_stop_housekeeping_of_others(
    logs: LogManager, disk: SlowDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for tend in (flush_after_a_while, LogManager.housekeep):
        written(logs, T0)
        written(logs, U0)
        disk.flushed.clear()
        disk.meanwhile = lambda: 1 // 0
        tend(logs)
        assert any(name.startswith("u-0") for name in disk.flushed)
        assert "ZeroDivisionError" in caplog.text


def test_deleted_log_is_locked_until_it_is_marked_removed(
    logs: LogManager, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, found = written(logs, T0), []
    really_rename = disk.rename

    def rename(source: Path, target: Path) -> None:
        really_rename(source, target)
        looking = start_thread("looks at the log", lambda: found.append(log.end_offset))
        looking.join(0.05)
        assert looking.is_alive() and found == []

    monkeypatch.setattr(disk, "rename", rename)
    logs.delete([T0])
    with pytest.raises(ApiError, match="the log was removed"):
        log.read(0, 1, whole_first_batch=True)
