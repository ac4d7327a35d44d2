"""Coordinators of several processes over one file: what one decides the others carry out once, and in time."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.log_ownership import LogOwnership
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.coordinator.group_offsets import CommittedOffset
from kafka_sink.broker.coordinator.group_requests import Committer
from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.broker.coordinator.transaction_coordinator import MARKER_RETRY_MS, TransactionCoordinator
from kafka_sink.broker.coordinator.transaction_markers import TransactionMarkers
from kafka_sink.broker.coordinator.transaction_metadata import TransactionMetadata, TransactionState
from kafka_sink.broker.coordinator.transaction_store import TransactionStore
from kafka_sink.broker.log.filesystem import OsFileSystem
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.purgatory import DelayedOperationPurgatory
from kafka_sink.broker.timer import Timer
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import ProducerIdAndEpoch, TopicPartition
from tests.fakes.broker_node import BrokerNode
from tests.fakes.clock import FakeClock

#: Of nodes 1 and 2 the first one coordinates this group.
ID, GROUP = "orders", "readers-0"
PARTITION = TopicPartition("t", 0)
ANYBODY = Committer(-1, "", None)


class Process:
    """One process of a cluster: its view of it, its logs, its coordinators."""

    def __init__(self, directory: Path, node_id: int) -> None:
        self.clock = FakeClock()
        self.timer = Timer(self.clock)
        purgatory = DelayedOperationPurgatory(self.timer)
        config = BrokerConfig()
        self.cluster = ClusterState(directory, OsFileSystem(), config, [node_id], shared=True)
        self.logs = LogManager(directory / "logs", OsFileSystem(), self.clock, shared=True)
        ownership = LogOwnership(self.cluster, self.logs, directory / "logs", [node_id], purgatory, shared=True)
        self.cluster.subscribe(ownership.sync)
        self.store = CoordinatorStore(directory, flush_writes=False, shared=True)
        self.groups = GroupCoordinator(config, self.store, self.clock, self.timer, self.cluster, [node_id])
        self.markers = TransactionMarkers(self.cluster, self.logs, self.groups, self.clock, purgatory.check)
        self.transactions = TransactionCoordinator(
            config,
            TransactionStore(self.store),
            self.markers,
            self.cluster.allocate_producer_id,
            self.clock,
            self.timer,
        )
        self.cluster.nodes_up({node_id: {"PLAINTEXT": EndPoint("PLAINTEXT", "127.0.0.1", 9000 + node_id)}})

    def state(self) -> TransactionState:
        found = self.transactions.find(ID)
        assert found is not None
        return found.state

    def commit_offset(self, producer: ProducerIdAndEpoch, offset: int) -> ErrorCode:
        def store() -> None:
            offsets = {PARTITION: CommittedOffset(offset, -1, "")}
            self.groups.commit_in_transaction(GROUP, ANYBODY, producer.producer_id, offsets)

        return self.transactions.commit_offsets(ID, producer, GROUP, 5, store)

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.run_due(self.clock.monotonic_ms())


@pytest.fixture
def two(tmp_path: Path) -> tuple[Process, Process]:
    first, second = Process(tmp_path, 1), Process(tmp_path, 2)
    first.cluster.refresh()
    return first, second


@pytest.mark.behaviour(
    "Coordinators of several processes", "A topic that a process has not heard of yet is not taken for a deleted one"
)
def test_topic_unknown_to_a_process_is_not_taken_for_deleted(two: tuple[Process, Process]) -> None:
    first, second = two
    first.cluster.create_topic("t", assignment=[[1]])
    producer = first.transactions.init_producer_id(ID, 60_000, None)
    first.transactions.add_partitions(ID, producer, frozenset({PARTITION}), 2)
    first.transactions.end_transaction(ID, producer, 2, committed=True)
    assert second.cluster.topic("t") is None
    second.transactions.follow()
    assert second.state() is TransactionState.PREPARE_COMMIT
    first.transactions.write_markers(ID)
    log = first.logs.get(PARTITION)
    assert log is not None and log.end_offset == 1
    assert second.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.behaviour(
    "Coordinators of several processes",
    "A process that hears late of an end does not end the offsets of the next transaction",
)
def test_late_process_ends_no_offsets_of_the_next_transaction(
    two: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two
    producer = first.transactions.init_producer_id(ID, 60_000, None)
    assert first.commit_offset(producer, 1) is ErrorCode.NONE
    after = first.transactions.end_transaction(ID, producer, 2, committed=True)

    def write_while_the_other_is_quicker(metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        first.transactions.write_markers(ID)
        assert first.commit_offset(after, 2) is ErrorCode.NONE
        return frozenset()

    monkeypatch.setattr(second.markers, "write", write_while_the_other_is_quicker)
    second.transactions.write_markers(ID)
    assert first.state() is TransactionState.ONGOING
    assert first.groups.pending(GROUP) == {PARTITION}
    assert first.groups.fetch(GROUP)[PARTITION].offset == 1
    first.transactions.end_transaction(ID, after, 2, committed=False)
    first.transactions.write_markers(ID)
    assert first.groups.pending(GROUP) == frozenset()
    assert first.groups.fetch(GROUP)[PARTITION].offset == 1


@pytest.mark.behaviour(
    "Coordinators of several processes", "No transaction ends between its check and the commit of its offsets"
)
def test_transaction_cannot_end_between_check_and_offset_commit(two: tuple[Process, Process]) -> None:
    first, second = two
    producer = first.transactions.init_producer_id(ID, 60_000, None)
    assert first.commit_offset(producer, 1) is ErrorCode.NONE

    def fence() -> None:
        with pytest.raises(ApiError):
            second.transactions.init_producer_id(ID, 60_000, None)

    other = threading.Thread(target=fence)

    def store() -> None:
        other.start()
        # As long as it takes if nothing keeps it from it.
        other.join(0.2)
        offsets = {PARTITION: CommittedOffset(2, -1, "")}
        first.groups.commit_in_transaction(GROUP, ANYBODY, producer.producer_id, offsets)

    assert first.transactions.commit_offsets(ID, producer, GROUP, 5, store) is ErrorCode.NONE
    other.join()
    assert first.state() is TransactionState.COMPLETE_ABORT
    assert first.groups.pending(GROUP) == frozenset()


def test_unreadable_file_only_delays_the_end_of_a_transaction(
    two: tuple[Process, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = two
    first.cluster.create_topic("t", assignment=[[1]])
    producer = first.transactions.init_producer_id(ID, 60_000, None)
    first.transactions.add_partitions(ID, producer, frozenset({PARTITION}), 2)
    first.transactions.end_transaction(ID, producer, 2, committed=True)
    write = first.markers.write

    def unreadable() -> int:
        raise ApiError("database is locked", ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def write_and_lose_the_file(metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        told = write(metadata)
        monkeypatch.setattr(first.store, "version", unreadable)
        return told

    with monkeypatch.context() as patched:
        patched.setattr(first.markers, "write", write_and_lose_the_file)
        first.transactions.write_markers(ID)
    monkeypatch.undo()
    first.pass_time(MARKER_RETRY_MS)
    assert first.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.behaviour(
    "Coordinators of several processes", "A process that was held up looks who coordinates before it answers"
)
def test_delayed_process_checks_coordinator_before_it_answers(tmp_path: Path) -> None:
    first = Process(tmp_path, 2)
    context = replace(BrokerNode().context, node_id=2, cluster=first.cluster, groups=first.groups)
    context.check_coordinates(GROUP)
    second = Process(tmp_path, 1)
    with pytest.raises(ApiError) as refused:
        context.groups_for(GROUP)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    second.cluster.node_down(1)
    assert context.groups_for(GROUP) is first.groups
