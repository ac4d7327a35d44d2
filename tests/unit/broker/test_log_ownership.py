"""Logs follow what the cluster says; of two processes that share the data one has a log open at a time."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.log_ownership import METADATA_FILE, LogOwnership
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.file_lock import FileLock
from kafka_sink.broker.log.filesystem import OsFileSystem
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from kafka_sink.broker.timer import Timer
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from tests.fakes.clock import FakeClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Process:
    """What one process of a cluster has: its view of the cluster, and its logs."""

    def __init__(self, directory: Path, node_id: int, *, shared: bool = True) -> None:
        clock = FakeClock()
        self.purgatory = DelayedOperationPurgatory(Timer(clock))
        self.state = ClusterState(directory, OsFileSystem(), BrokerConfig(), [node_id], shared=shared)
        self.logs = LogManager(directory / "logs", OsFileSystem(), clock, shared=shared)
        self.ownership = LogOwnership(
            self.state, self.logs, directory / "logs", [node_id], self.purgatory, shared=shared
        )
        self.state.subscribe(self.ownership.sync)
        self.state.nodes_up({node_id: {"PLAINTEXT": EndPoint("PLAINTEXT", "127.0.0.1", 9000 + node_id)}})

    def has(self) -> list[TopicPartition]:
        return [partition for partition in (T0, T1) if self.logs.get(partition) is not None]


@pytest.fixture
def two(tmp_path: Path) -> tuple[Process, Process]:
    first, second = Process(tmp_path, 1), Process(tmp_path, 2)
    first.state.refresh()
    return first, second


def test_each_process_opens_the_logs_of_partitions_it_leads(two: tuple[Process, Process]) -> None:
    first, second = two
    first.state.create_topic("t", assignment=[[1, 2], [2, 1]])
    assert (first.has(), second.has()) == ([T0], [])
    assert first.logs.serves(T0) and not first.logs.serves(T1)
    second.state.refresh()
    assert second.has() == [T1]


@pytest.mark.behaviour("Nodes in several processes", "A new leader waits until the old one closes the log")
def test_a_new_leader_waits_until_the_old_one_lets_go(two: tuple[Process, Process]) -> None:
    first, second = two
    first.state.create_topic("t", assignment=[[1, 2]])
    old = first.logs.get(T0)
    assert old is not None
    second.state.move_leader(T0, 2)
    assert second.has() == [] and second.ownership.pending
    second.ownership.sync()
    assert second.has() == []
    first.state.refresh()
    assert first.has() == []
    with pytest.raises(ApiError) as told:
        old.read(0, 1, whole_first_batch=True)
    assert told.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    second.ownership.sync()
    assert second.has() == [T0] and not second.ownership.pending


@pytest.mark.behaviour("Nodes in several processes", "A topic that was created again has nothing of its predecessor")
def test_log_of_an_earlier_topic_of_that_name_is_not_opened(two: tuple[Process, Process], tmp_path: Path) -> None:
    first, _ = two
    left = tmp_path / "logs" / "t-0"
    left.mkdir(parents=True)
    (left / METADATA_FILE).write_text(f"version: 0\ntopic_id: {uuid4()}\n")
    (left / "00000000000000000007.log").write_bytes(b"")
    topic = first.state.create_topic("t", assignment=[[1]])
    first.ownership.sync()
    assert first.has() == [T0]
    assert str(topic.topic_id) in (left / METADATA_FILE).read_text()
    assert not (left / "00000000000000000007.log").exists()


def test_deleted_logs_are_removed_by_their_owner_or_by_anybody(two: tuple[Process, Process], tmp_path: Path) -> None:
    first, second = two
    first.state.create_topic("t", assignment=[[1], [2]])
    second.state.refresh()
    first.state.delete_topic("t", lambda topic: None)
    assert (tmp_path / "logs" / "t-1").exists() and not (tmp_path / "logs" / "t-0").exists()
    second.state.refresh()
    assert list((tmp_path / "logs").iterdir()) == []
    # Nobody runs that holds it.
    first.state.create_topic("t", assignment=[[1], [2]])
    second.state.refresh()
    second.ownership.release()
    first.state.delete_topic("t", lambda topic: None)
    assert list((tmp_path / "logs").iterdir()) == []


def test_locked_log_directory_is_tried_again(two: tuple[Process, Process], tmp_path: Path) -> None:
    first, _ = two
    path = tmp_path / "logs" / "t-0"
    path.mkdir(parents=True)
    with FileLock(path):
        first.state.create_topic("t", assignment=[[1]])
        assert first.ownership.pending and not first.logs.serves(T0)
        with pytest.raises(ApiError) as caught:
            first.logs.get_or_create(T0, first.state.topics["t"].settings.log, lambda: True)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    first.ownership.sync()
    assert first.has() == [T0]


@pytest.mark.parametrize("shared", [True, False])
def test_new_settings_and_leaders_reach_logs_and_waiting_fetches(
    tmp_path: Path, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(tmp_path, 1, shared=shared)
    topic = process.state.create_topic("t", assignment=[[1]])
    log = process.logs.get_or_create(T0, topic.settings.log, lambda: True)
    assert log is not None
    given: list[LogConfig] = []
    monkeypatch.setattr(log, "reconfigure", given.append)
    process.state.alter_topic_configs("t", lambda _: {"segment.bytes": "4096"})
    assert [config.segment_bytes for config in given] == [4096]
    answered: list[bool] = []

    def moved() -> bool:
        return process.state.topics["t"].partitions[0].leader != 1

    process.purgatory.watch(DelayedOperation(moved, lambda: answered.append(True)), [T0], 2**60)
    process.state.node_down(1)
    assert answered == [True]
