"""Requests about groups that reach the wrong node, name topics by id, or follow a deleted topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.broker.coordinator.group_offsets import CommittedOffset
from kafka_sink.broker.coordinator.group_requests import Committer
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.delete_groups import DeleteGroupsRequest
from kafka_sink.protocol.messages.delete_topics import DeleteTopicsRequest
from kafka_sink.protocol.messages.describe_groups import DescribeGroupsRequest
from kafka_sink.protocol.messages.heartbeat import HeartbeatRequest
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_sink.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_sink.protocol.messages.leave_group import LeaveGroupRequest
from kafka_sink.protocol.messages.list_groups import ListGroupsRequest
from kafka_sink.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_sink.protocol.messages.offset_delete import OffsetDeleteRequest
from kafka_sink.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kafka_sink.protocol.messages.sync_group import SyncGroupRequest
from kafka_sink.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafka_sink.protocol.schema import Struct
from tests.fakes.broker_node import BrokerNode

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


def group_of(node: BrokerNode, node_id: int) -> str:
    """A group that *node_id* coordinates."""
    return next(name for name in map("g{}".format, range(100)) if node.cluster.coordinator_for(name) == node_id)


@pytest.fixture
def node() -> BrokerNode:
    """Node 1 of two, with a topic t of two partitions."""
    made = BrokerNode(nodes=2)
    made.cluster.create_topic("t", assignment=[[1], [1]])
    return made


def commit_request(group: str, *partitions: int, topic: str = "t", offset: int = 5) -> OffsetCommitRequest:
    asked = [OffsetCommitRequestPartition(each, offset, -1, "") for each in partitions]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=asked)])


def codes(answer: Any) -> list[int]:
    """Every error code of an answer, wherever it stands."""
    found = [answer.error_code] if hasattr(answer, "error_code") else []
    for name in ("topics", "partitions", "groups", "results", "members"):
        for child in getattr(answer, name, ()):
            found += codes(child)
    return found


@pytest.mark.parametrize(
    ("key", "version", "make"),
    [
        (
            ApiKey.JOIN_GROUP,
            9,
            lambda group: JoinGroupRequest(
                group, 30_000, 30_000, protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"")]
            ),
        ),
        (ApiKey.SYNC_GROUP, 5, lambda group: SyncGroupRequest(group, 1, "m", None, "consumer", "range")),
        (ApiKey.HEARTBEAT, 4, lambda group: HeartbeatRequest(group, 1, "m")),
        (ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest),
        (ApiKey.OFFSET_COMMIT, 9, lambda group: commit_request(group, 0)),
        (
            ApiKey.OFFSET_FETCH,
            1,
            lambda group: OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic("t", [0])]),
        ),
        (ApiKey.OFFSET_FETCH, 7, lambda group: OffsetFetchRequest(group_id=group, topics=None)),
        (
            ApiKey.OFFSET_FETCH,
            9,
            lambda group: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]),
        ),
        (
            ApiKey.TXN_OFFSET_COMMIT,
            5,
            lambda group: TxnOffsetCommitRequest(
                "id", group, 1, 0, topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 1)])]
            ),
        ),
        (ApiKey.DESCRIBE_GROUPS, 6, lambda group: DescribeGroupsRequest([group])),
        (ApiKey.DELETE_GROUPS, 2, lambda group: DeleteGroupsRequest([group])),
        (ApiKey.OFFSET_DELETE, 0, lambda group: OffsetDeleteRequest(group, [])),
    ],
)
def test_only_its_coordinator_answers_for_a_group(node: BrokerNode, key: ApiKey, version: int, make: Any) -> None:
    body: Struct = make(group_of(node, 2))
    assert NOT_COORDINATOR in codes(node.call(key, version, body))


def test_groups_are_listed_by_their_coordinator(node: BrokerNode) -> None:
    here, there = group_of(node, 1), group_of(node, 2)
    node.call(ApiKey.OFFSET_COMMIT, 9, commit_request(here, 0))
    node.context.groups.commit(there, *_simple_commit())
    listed: Any = node.call(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
    assert [each.group_id for each in listed.groups] == [here]


def _simple_commit() -> tuple[Any, Any]:
    return Committer(-1, "", None), {TopicPartition("t", 0): CommittedOffset(1, -1, "")}


def fetch_all(node: BrokerNode, group: str, *, stable: bool = False, partitions: list[int] | None = None) -> Any:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=partitions)] if partitions else None
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable)
    answer: Any = node.call(ApiKey.OFFSET_FETCH, 9, body)
    return {
        partition.partition_index: (partition.committed_offset, partition.error_code)
        for topic in answer.groups[0].topics
        for partition in topic.partitions
    }


def test_a_deleted_topic_is_forgotten_by_groups(node: BrokerNode) -> None:
    group = group_of(node, 1)
    node.call(ApiKey.OFFSET_COMMIT, 9, commit_request(group, 0, 1))
    assert fetch_all(node, group) == {0: (5, 0), 1: (5, 0)}
    node.call(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=["t"]))
    node.cluster.create_topic("t", assignment=[[1], [1]])
    assert fetch_all(node, group) == {}


@pytest.mark.parametrize(("version", "committed"), [(5, True), (5, False), (3, None)])
def test_offsets_in_a_transaction_are_unstable_until_it_ends(
    node: BrokerNode, version: int, committed: bool | None
) -> None:
    group = group_of(node, 1)
    transactional_id = group_of(node, 1)
    made: Any = node.call(
        ApiKey.INIT_PRODUCER_ID,
        4,
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000),
    )
    node.call(ApiKey.OFFSET_COMMIT, 9, commit_request(group, 0))
    asked = [TxnOffsetCommitRequestPartition(each, 9) for each in (0, 1, 2)]
    answer: Any = node.call(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        TxnOffsetCommitRequest(
            transactional_id,
            group,
            made.producer_id,
            made.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic("t", asked)],
        ),
    )
    got = [partition.error_code for partition in answer.topics[0].partitions]
    if committed is None:
        # Before version 5 the group has to be added to the transaction first.
        assert got == [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, 3]
        return
    assert got == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    unstable = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetch_all(node, group, stable=True, partitions=[0, 1]) == {0: unstable, 1: unstable}
    assert fetch_all(node, group, partitions=[0, 1]) == {0: (5, 0), 1: (-1, 0)}
    node.groups.complete_transaction(made.producer_id, [group], committed)
    after = {0: (9, 0), 1: (9, 0)} if committed else {0: (5, 0), 1: (-1, 0)}
    assert fetch_all(node, group, stable=True, partitions=[0, 1]) == after


@pytest.mark.behaviour("Group offsets", "A fetch while a transaction ends finds its offsets, or is told to ask again")
def test_fetch_while_a_transaction_ends_is_new_or_unstable(node: BrokerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(node, 1)
    offsets = {TopicPartition("t", 0): CommittedOffset(9, -1, "")}
    node.groups.commit_in_transaction(group, Committer(-1, "", None), 7, offsets)

    def ending(read: Callable[[str], Any]) -> Callable[[str], Any]:
        def read_and_end(group_id: str) -> Any:
            found = read(group_id)
            node.groups.complete_transaction(7, [group_id], committed=True)
            return found

        return read_and_end

    for name in ("fetch", "pending"):
        monkeypatch.setattr(node.groups, name, ending(getattr(node.groups, name)))
    assert fetch_all(node, group, stable=True, partitions=[0])[0] in ((9, 0), (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT))
