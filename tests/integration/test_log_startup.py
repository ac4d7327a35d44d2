"""Starting on many logs and on a large one, after a clean end and after an unclean one: everything is there again."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.broker.cluster.topic_state import topic_settings
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.filesystem import OsFileSystem
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.model import TopicPartition
from kafka_sink.testing import EmbeddedRegistry
from kafka_sink.testing.registry.schemas import KeptSchema
from tests.fakes.record_batches import with_header
from tests.support import amounts
from tests.support.cases import with_each

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
    logs.open_existing(lambda partition: config)
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


#: Every place in a data directory where the broker or the registry reads or writes, but what it replaces.
PLACES: Final = (
    ".lock",
    "cluster.json",
    "coordinators.sqlite",
    "coordinators.sqlite-journal",
    "coordinators.sqlite-shm",
    "coordinators.sqlite-wal",
    "schema-registry.json",
    "schema-registry.lock",
    "logs",
    "logs/other-0",
    "logs/t-0",
    "logs/t-0/00000000000000000000.index",
    "logs/t-0/00000000000000000000.log",
    "logs/t-0/00000000000000000000.log.cleaned",
    "logs/t-0/00000000000000000007.log",
    "logs/t-0/00000000000000000007.snapshot",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a topic, a record and a schema."""
    directory = tmp_path_factory.mktemp("data")
    options = {"enable.idempotence": False}
    with EmbeddedCluster(data_dir=directory) as cluster, EmbeddedRegistry(data_dir=directory) as registry:
        cluster.create_topic("t", 1)
        with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, **options}) as producer:
            producer.send(ProducerRecord("t", b"v")).result(60)
        registry.store.register("s", KeptSchema.of({"schema": '"int"'}))
    return directory


@pytest.mark.behaviour("Log", "A link or a pipe in a data directory is refused: no other file is written, nobody waits")
@with_each("place", PLACES)
@with_each("is_link", [True, False])
def test_links_and_pipes_in_a_data_directory_are_refused(data: Path, tmp_path: Path, place: str, is_link: bool) -> None:
    directory = tmp_path / f"{place.replace('/', '-')}-{is_link}"
    shutil.copytree(data, directory)
    planted, elsewhere = directory / place, directory.with_suffix(".elsewhere")
    if planted.exists():
        planted.rename(elsewhere)
    else:
        elsewhere.write_bytes(b"keep me")
    if is_link:
        planted.symlink_to(elsewhere)
    else:
        os.mkfifo(planted)
    before = content_of(elsewhere)

    def start() -> None:
        name = re.escape(str(planted))
        refusal = f"{name} is a (link|pipe or a device), where kafkalite|File exists: '{name}'"
        with (
            pytest.raises(OSError, match=refusal),
            EmbeddedCluster(data_dir=directory),
            EmbeddedRegistry(data_dir=directory),
        ):
            raise AssertionError("it has started")

    assert ended_within(60, start)
    assert content_of(elsewhere) == before


def content_of(place: Path) -> dict[Path, bytes]:
    files = [place] if place.is_file() else sorted(each for each in place.rglob("*") if each.is_file())
    return {each: each.read_bytes() for each in files}


def ended_within(seconds: float, step: Callable[[], None]) -> bool:
    """Whether *step* has returned; a broken broker would wait for ever for a pipe's other end."""
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(step() is None), daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(done)
