"""The coordinator with logs, time and a disk of the test: delayed markers, timeouts, restarts, pattern searches."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.broker.coordinator.transaction_coordinator import MARKER_RETRY_MS
from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata, TransactionState
from kafka_sink.broker.log.producer_state import VerificationGuard
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import ProducerIdAndEpoch, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from tests.fakes.broker_node import BrokerNode
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each
from tests.support.living import living

ID = "orders"
PARTITION = TopicPartition("t", 0)


@pytest.fixture
def node() -> BrokerNode:
    """Node 1 of two: it leads "t", only node 2 can lead "lost"."""
    made = BrokerNode(nodes=2)
    made.cluster.create_topic("t", assignment=[[1], [1]])
    made.cluster.create_topic("lost", assignment=[[2]])
    made.transactions.start()
    return made


def state(node: BrokerNode, transactional_id: str = ID) -> TransactionMetadata:
    found = node.transactions.find(transactional_id)
    assert found is not None
    return found


def begin(node: BrokerNode, *partitions: TopicPartition, timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
    producer = node.transactions.init_producer_id(ID, timeout_ms, None)
    node.transactions.add_partitions(ID, producer, frozenset(partitions), 2)
    return producer


def end(node: BrokerNode, producer: ProducerIdAndEpoch, *, committed: bool = True) -> ProducerIdAndEpoch:
    after = node.transactions.end_transaction(ID, producer, 2, committed=committed)
    node.transactions.write_markers(ID)
    return after


def pass_time(node: BrokerNode, ms: int) -> None:
    node.clock.advance(ms)
    node.timer.run_due(node.clock.monotonic_ms())


def write(node: BrokerNode, producer: ProducerIdAndEpoch, sequence: int = 0) -> Any:
    answer = node.call(
        ApiKey.PRODUCE, 12, ID, -1, 1000, [{"name": "t", "partition_data": [(0, _batch(node, producer, sequence))]}]
    )
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.behaviour("Transaction coordinator", "Markers wait for a partition without a leader")
def test_a_participant_without_leader_is_waited_for(node: BrokerNode) -> None:
    lost = TopicPartition("lost", 0)
    producer = begin(node, PARTITION, lost)
    node.cluster.node_down(2)
    after = end(node, producer)
    assert state(node).state is TransactionState.PREPARE_COMMIT
    # Decided, and its markers are written to all available partitions; the timeout has no effect any more.
    assert state(node).partitions == {lost}
    log = node.logs.get(PARTITION)
    assert log is not None and log.end_offset == 1
    for _ in range(3):
        pass_time(node, 60_000)
        with pytest.raises(ApiError) as caught:
            end(node, producer)
        assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert log.end_offset == 1
    node.cluster.nodes_up({2: node.cluster.nodes[1]})
    pass_time(node, MARKER_RETRY_MS)
    assert state(node).state is TransactionState.COMPLETE_COMMIT
    assert end(node, producer) == after


def test_transaction_may_begin_while_last_markers_are_written(
    node: BrokerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begin(node)
    assert write(node, producer) == 0
    after = node.transactions.end_transaction(ID, producer, 2, committed=True)
    admit = node.transactions.admit_produce

    def admit_after_markers(*question: object) -> None:
        # The producer received the outcome of its transaction, and its next request arrives before the marker.
        node.transactions.write_markers(ID)
        admit(*question)  # type: ignore[arg-type]

    monkeypatch.setattr(node.transactions, "admit_produce", admit_after_markers)
    assert write(node, after) == 0
    assert state(node).state is TransactionState.ONGOING
    end(node, after)
    log = node.logs.get(PARTITION)
    assert log is not None and log.last_stable_offset == log.end_offset == 4


@pytest.mark.parametrize("committed", [True, False])
def test_abort_waits_for_markers_of_the_previous_transaction(node: BrokerNode, committed: bool) -> None:
    lost = TopicPartition("lost", 0)
    producer = begin(node, lost)
    node.cluster.node_down(2)
    after = end(node, producer, committed=committed)
    # The batches of the producer's next transaction were refused, and it fails them.
    assert write(node, after) == ErrorCode.CONCURRENT_TRANSACTIONS
    with pytest.raises(ApiError) as caught:
        end(node, after, committed=False)
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    node.cluster.nodes_up({2: node.cluster.nodes[1]})
    pass_time(node, MARKER_RETRY_MS)
    third = end(node, after, committed=False)
    assert third == after._replace(epoch=after.epoch + 1)
    assert write(node, third) == 0


def test_verification_guard_is_removed_after_every_request(node: BrokerNode) -> None:
    before = living(VerificationGuard)
    producer = begin(node)
    assert write(node, producer) == 0
    assert living(VerificationGuard) == before
    stranger = ProducerIdAndEpoch(producer.producer_id + 1, 0)
    assert write(node, stranger) != 0
    assert living(VerificationGuard) == before


def test_deleted_participant_is_no_longer_waited_for(node: BrokerNode) -> None:
    producer = begin(node, TopicPartition("lost", 0))
    node.cluster.node_down(2)
    end(node, producer)
    node.cluster.delete_topics(["lost"], lambda topic: None)
    pass_time(node, MARKER_RETRY_MS)
    assert state(node).state is TransactionState.COMPLETE_COMMIT


def test_participant_is_gone_if_its_topic_is_smaller_now(node: BrokerNode) -> None:
    producer = begin(node, TopicPartition("t", 1), PARTITION)
    # A test deletes its topic while a transaction is open, and the next test creates it again with fewer partitions.
    node.cluster.delete_topics(["t"], lambda topic: None)
    node.cluster.create_topic("t", assignment=[[1]])
    after = end(node, producer)
    assert state(node).state is TransactionState.COMPLETE_COMMIT
    assert write(node, after) == 0


def test_many_stuck_transactions_do_not_delay_one_that_can_end(node: BrokerNode) -> None:
    node.cluster.node_down(2)
    for number in range(120):
        name = f"stuck-{number}"
        producer = node.transactions.init_producer_id(name, 60_000, None)
        node.transactions.add_partitions(name, producer, frozenset({TopicPartition("lost", 0)}), 2)
        node.transactions.end_transaction(name, producer, 2, committed=True)
        node.transactions.write_markers(name)
    producer = begin(node, PARTITION)
    # The process ended right after the response, before the markers were written.
    node.transactions.end_transaction(ID, producer, 2, committed=True)
    for _ in range(4):
        pass_time(node, MARKER_RETRY_MS)
    assert state(node).state is TransactionState.COMPLETE_COMMIT
    assert state(node, "stuck-7").state is TransactionState.PREPARE_COMMIT


@pytest.mark.behaviour("Transaction coordinator", "Transactions that are older than their time-out are aborted")
def test_old_transactions_are_aborted_at_the_next_look(node: BrokerNode) -> None:
    producer = begin(node, PARTITION, timeout_ms=3000)
    assert write(node, producer) == 0
    pass_time(node, 2000)
    node.transactions.add_partitions(ID, producer, frozenset({TopicPartition("t", 1)}), 2)
    pass_time(node, 7999)
    assert state(node).state is TransactionState.ONGOING
    pass_time(node, 1)
    assert state(node).state is TransactionState.COMPLETE_ABORT
    assert state(node).producer_epoch == producer.epoch + 1
    assert write(node, producer, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(ApiError) as caught:
        end(node, producer)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE
    end(node, producer, committed=False)


def test_more_old_transactions_than_one_step_may_take(node: BrokerNode) -> None:
    for number in range(130):
        producer = node.transactions.init_producer_id(f"id-{number}", 1, None)
        node.transactions.add_partitions(f"id-{number}", producer, frozenset({PARTITION}), 2)
    pass_time(node, 10_000)
    assert {each.state for each in node.transactions.all()} == {TransactionState.COMPLETE_ABORT}


def test_unused_ids_expire_but_open_transactions_do_not(node: BrokerNode) -> None:
    node.transactions.init_producer_id("unused", 60_000, None)
    week_ms = 7 * 24 * 3600 * 1000
    pass_time(node, week_ms)
    begin(node, PARTITION)
    pass_time(node, 3_600_000)
    assert node.transactions.find("unused") is None
    with pytest.raises(ApiError) as caught:
        node.transactions.add_partitions("unused", ProducerIdAndEpoch(0, 0), frozenset({PARTITION}), 2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert state(node)


def test_committed_fetch_waits_for_the_end_of_the_transaction(node: BrokerNode) -> None:
    producer = begin(node, PARTITION)
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": "t", "partitions": parts}]
    node.send(ApiKey.FETCH, 12, max_wait_ms=30_000, min_bytes=1, isolation_level=1, topics=topics)
    for sequence in range(3):
        assert write(node, producer, sequence) == ErrorCode.NONE
    end(node, producer)
    answer = node.answer(ApiKey.FETCH, 12)
    (part,) = answer.responses[0].partitions
    assert (part.last_stable_offset, part.high_watermark, part.aborted_transactions) == (4, 4, [])


@with_each(
    ("pattern", "found"),
    [
        ("a+", ["aaa"]),
        ("a", []),
        ("a|b.*", ["b-1"]),
        ("(?i)AAA", ["aaa"]),
        ("", ["aaa", "b-1"]),
        # A backtracking matcher would take longer than the age of the universe.
        ("(a*)*(a*)*(a*)*(a*)*(a*)*c" * 20, []),
        ("a)|(b", ErrorCode.INVALID_REGULAR_EXPRESSION),
        ("(", ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_ids_are_listed_by_pattern(pattern: str, found: list[str] | ErrorCode) -> None:
    node = BrokerNode()
    for name in ("aaa", "b-1"):
        node.transactions.init_producer_id(name, 60_000, None)
    answer = node.call(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern)
    if isinstance(found, ErrorCode):
        assert answer.error_code == found
    else:
        assert sorted(each.transactional_id for each in answer.transaction_states) == found


def _batch(node: BrokerNode, producer: ProducerIdAndEpoch, sequence: int) -> bytearray:
    return make_batch(
        [b"v"],
        base_timestamp=node.clock.wall_ms(),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
