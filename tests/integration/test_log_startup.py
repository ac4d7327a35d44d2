"""Starting on many logs and on a large one, after a clean end and after an unclean one: everything is there again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink.broker.cluster.topic_config import topic_settings
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.filesystem import OsFileSystem
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.model import TopicPartition
from tests.fakes.record_batches import with_header
from tests.support import amounts

PARTITIONS = amounts.LOG_PARTITIONS
MEBIBYTES = amounts.LOG_MIB


def log_config(segment_bytes: int) -> LogConfig:
    return topic_settings({"segment.bytes": str(segment_bytes)}, BrokerConfig()).log


def filled(directory: Path, config: LogConfig, partitions: int, batches: int, values: int) -> LogManager:
    """Logs of *batches* batches each, of *values* records of 1000 bytes."""
    logs = LogManager(directory, OsFileSystem(), SYSTEM_CLOCK)
    batch, header = with_header([b"v" * 1000] * values)
    for number in range(partitions):
        log = logs.get_or_create(TopicPartition("t", number), config, lambda: True)
        assert log is not None
        for _ in range(batches):
            log.append(batch, header, 0, SYSTEM_CLOCK.wall_ms())
    return logs


def started(directory: Path, config: LogConfig) -> tuple[LogManager, float]:
    logs = LogManager(directory, OsFileSystem(), SYSTEM_CLOCK)
    begun = time.monotonic()
    assert logs.open_existing(lambda partition: config) == 0
    return logs, time.monotonic() - begun


@pytest.mark.behaviour("Log", "A start opens many logs, after a clean and an unclean stop")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_many_logs(tmp_path: Path, clean: bool, figure: Callable[[str, object], None]) -> None:
    config = log_config(1 << 30)
    logs = filled(tmp_path, config, PARTITIONS, 1, 1)
    begun = time.monotonic()
    logs.close() if clean else logs.abandon()
    stopped_s = time.monotonic() - begun
    again, seconds = started(tmp_path, config)
    found = [again.get(TopicPartition("t", number)) for number in range(PARTITIONS)]
    assert all(log is not None and log.end_offset == 1 for log in found)
    again.abandon()
    text = f"{seconds:.2f} s, stopped in {stopped_s:.2f} s"
    figure(f"start on {PARTITIONS} logs after {'a clean' if clean else 'an unclean'} stop", text)


@pytest.mark.behaviour("Log", "A start opens a large log, after a clean and an unclean stop")
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_a_large_log(tmp_path: Path, clean: bool, figure: Callable[[str, object], None]) -> None:
    config = log_config(1 << 30)
    logs = filled(tmp_path, config, 1, MEBIBYTES, 1000)
    logs.close() if clean else logs.abandon()
    again, seconds = started(tmp_path, config)
    log = again.get(TopicPartition("t", 0))
    assert log is not None and log.end_offset == MEBIBYTES * 1000
    again.abandon()
    text = f"{seconds:.2f} s"
    figure(f"start on a log of {MEBIBYTES} MB after {'a clean' if clean else 'an unclean'} stop", text)
