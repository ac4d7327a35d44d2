"""Requests about groups that reach the wrong node, name topics by id, or follow a deleted topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.broker.config import AUTHORIZER
from kafka_sink.broker.coordinator.group_metadata import Committer
from kafka_sink.broker.coordinator.group_offsets import CommittedOffset
from kafka_sink.common.acl import AclBinding, AclBindingFilter, AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from tests.fakes.broker_node import BrokerNode
from tests.support.messages import request_body

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


def commit_request(group: str, *partitions: int, topic: str = "t", offset: int = 5) -> Any:
    asked = [(each, offset, -1, "") for each in partitions]
    return request_body(ApiKey.OFFSET_COMMIT, group_id=group, topics=[{"name": topic, "partitions": asked}])


def joining(group: str, member_id: str, **says: Any) -> Any:
    """The first heartbeat of a member with group.protocol=consumer."""
    first: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    return request_body(ApiKey.CONSUMER_GROUP_HEARTBEAT, group, member_id, 0, **{**first, **says})


def codes(answer: Any) -> list[int]:
    """Every error code of a response, at any depth."""
    found = [answer.error_code] if hasattr(answer, "error_code") else []
    for name in ("topics", "partitions", "groups", "results", "members"):
        for child in getattr(answer, name, ()):
            found += codes(child)
    return found


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.JOIN_GROUP, 9, lambda group: (group, 30_000, 30_000, "", None, "consumer", [("range", b"")])),
        (ApiKey.SYNC_GROUP, 5, lambda group: (group, 1, "m", None, "consumer", "range")),
        (ApiKey.HEARTBEAT, 4, lambda group: (group, 1, "m")),
        (ApiKey.LEAVE_GROUP, 5, lambda group: (group,)),
        (ApiKey.OFFSET_COMMIT, 9, lambda group: (commit_request(group, 0),)),
        (ApiKey.OFFSET_FETCH, 1, lambda group: (group, [{"name": "t", "partition_indexes": [0]}])),
        (ApiKey.OFFSET_FETCH, 7, lambda group: (group, None)),
        (ApiKey.OFFSET_FETCH, 9, lambda group: ("", [], [{"group_id": group, "topics": None}])),
        (ApiKey.TXN_OFFSET_COMMIT, 5, lambda group: ("id", group, 1, 0, -1, "", None, [("t", [(0, 1)])])),
        (ApiKey.DESCRIBE_GROUPS, 6, lambda group: ([group],)),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, lambda group: (joining(group, "m"),)),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, lambda group: ([group], False)),
        (ApiKey.DELETE_GROUPS, 2, lambda group: ([group],)),
        (ApiKey.OFFSET_DELETE, 0, lambda group: (group, [])),
    ],
)
def test_only_its_coordinator_answers_for_a_group(node: BrokerNode, key: ApiKey, version: int, fields: Any) -> None:
    assert NOT_COORDINATOR in codes(node.call(key, version, *fields(group_of(node, 2))))


def test_groups_are_listed_by_their_coordinator(node: BrokerNode) -> None:
    here, there = group_of(node, 1), group_of(node, 2)
    node.call(ApiKey.OFFSET_COMMIT, 9, commit_request(here, 0))
    node.context.groups.commit(there, *_simple_commit())
    listed = node.call(ApiKey.LIST_GROUPS, 5)
    assert [each.group_id for each in listed.groups] == [here]


def _simple_commit() -> tuple[Any, Any]:
    return Committer(-1, "", None), {TopicPartition("t", 0): CommittedOffset(1, -1, "")}


def fetch_all(node: BrokerNode, group: str, *, stable: bool = False, partitions: list[int] | None = None) -> Any:
    topics = [{"name": "t", "partition_indexes": partitions}] if partitions else None
    answer = node.call(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": group, "topics": topics}], require_stable=stable)
    return {
        partition.partition_index: (partition.committed_offset, partition.error_code)
        for topic in answer.groups[0].topics
        for partition in topic.partitions
    }


def test_a_deleted_topic_is_forgotten_by_groups(node: BrokerNode) -> None:
    group = group_of(node, 1)
    node.call(ApiKey.OFFSET_COMMIT, 9, commit_request(group, 0, 1))
    assert fetch_all(node, group) == {0: (5, 0), 1: (5, 0)}
    node.call(ApiKey.DELETE_TOPICS, 5, topic_names=["t"])
    node.cluster.create_topic("t", assignment=[[1], [1]])
    assert fetch_all(node, group) == {}


@pytest.mark.parametrize(("version", "committed"), [(5, True), (5, False), (3, None)])
def test_offsets_in_a_transaction_are_unstable_until_it_ends(
    node: BrokerNode, version: int, committed: bool | None
) -> None:
    group = group_of(node, 1)
    transactional_id = group_of(node, 1)
    made = node.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=transactional_id, transaction_timeout_ms=1000)
    node.call(ApiKey.OFFSET_COMMIT, 9, commit_request(group, 0))
    asked = [(each, 9) for each in (0, 1, 2)]
    answer = node.call(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id,
        group,
        made.producer_id,
        made.producer_epoch,
        topics=[("t", asked)],
    )
    got = [partition.error_code for partition in answer.topics[0].partitions]
    if committed is None:
        # Before version 5, the group has to be added to the transaction first.
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

    def ending(read: Callable[..., Any]) -> Callable[..., Any]:
        def read_and_end(group_id: str, *member: object) -> Any:
            found = read(group_id, *member)
            node.groups.complete_transaction(7, [group_id], committed=True)
            return found

        return read_and_end

    for name in ("fetch", "pending"):
        monkeypatch.setattr(node.groups, name, ending(getattr(node.groups, name)))
    assert fetch_all(node, group, stable=True, partitions=[0])[0] in ((9, 0), (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT))


@pytest.mark.behaviour("Consumer groups", "A member is told its assignment, its epoch and when to be heard of again")
def test_a_consumer_member_is_answered_and_described(node: BrokerNode) -> None:
    group, topic_id = group_of(node, 1), node.cluster.topics["t"].topic_id
    told = node.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining(group, "m", rack_id="r", instance_id="i"))
    assert (told.error_code, told.member_id, told.member_epoch, told.heartbeat_interval_ms) == (0, "m", 2, 5000)
    assert [(each.topic_id, each.partitions) for each in told.assignment.topic_partitions] == [(topic_id, [0, 1])]
    # The same topic twice, and one that does not exist: a client may list any partitions.
    owned = [(topic_id, [0, 1]), (topic_id, [0])]
    told = node.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group, "m", 2, topic_partitions=owned)
    assert (told.error_code, told.assignment) == (0, None)

    request = request_body(ApiKey.CONSUMER_GROUP_DESCRIBE, [group, "none"], include_authorized_operations=True)
    described = node.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request)
    found = described.groups[0]
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert (found.assignor_name, found.authorized_operations != 0) == ("uniform", True)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_type) == ("m", "i", "r", 1)
    assert (member.member_epoch, member.client_host, member.subscribed_topic_names) == (2, "/127.0.0.1", ["t"])
    for assignment in (member.assignment, member.target_assignment):
        assert [(each.topic_name, each.partitions) for each in assignment.topic_partitions] == [("t", [0, 1])]
    listed = node.call(ApiKey.LIST_GROUPS, 5, [], ["Consumer"])
    assert [(each.group_id, each.group_type, each.group_state) for each in listed.groups] == [
        (group, "consumer", "Stable")
    ]

    # A partition to revoke stays with the member until it reports that it has revoked it.
    node.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining(group, "n"))
    told = node.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group, "m", 2)
    assert [each.partitions for each in told.assignment.topic_partitions] == [[0]]
    described = node.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request)
    member = described.groups[0].members[0]
    assert [each.partitions for each in member.assignment.topic_partitions] == [[0, 1]]
    assert [each.partitions for each in member.target_assignment.topic_partitions] == [[0]]

    told = node.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group, "m", -2, "i")
    assert (told.error_code, told.member_epoch, told.heartbeat_interval_ms) == (0, -2, 0)


def test_consumer_members_name_their_epoch_with_offsets(node: BrokerNode) -> None:
    group = group_of(node, 1)
    node.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining(group, "m"))

    def committed(epoch: int, version: int = 9) -> list[int]:
        request = commit_request(group, 0)
        request.member_id, request.generation_id_or_member_epoch = "m", epoch
        return codes(node.call(ApiKey.OFFSET_COMMIT, version, request))

    assert committed(2) == [0] and committed(3) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert committed(2, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    for epoch, code in ((2, 0), (1, ErrorCode.STALE_MEMBER_EPOCH)):
        asked = (group, "m", epoch, [{"name": "t", "partition_indexes": [0]}])
        answer = node.call(ApiKey.OFFSET_FETCH, 9, groups=[asked])
        assert answer.groups[0].error_code == code


def test_what_a_client_may_not_describe_hides_the_group() -> None:
    guarded = BrokerNode(authorizer_class_name=AUTHORIZER)
    guarded.cluster.create_topic("t", 1)
    user = "User:ANONYMOUS"
    for kind, name in ((ResourceType.GROUP, "g"), (ResourceType.TOPIC, "t")):
        binding = AclBinding(principal=user, operation=AclOperation.ALL, resource_type=kind, resource_name=name)
        guarded.cluster.create_acls([binding])
    guarded.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining("g", "m"))
    guarded.cluster.delete_acls(AclBindingFilter(resource_type=ResourceType.TOPIC))
    described = guarded.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ["g"], include_authorized_operations=False)
    (found,) = described.groups
    assert (found.error_code, found.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    # And a pattern matches no topic that the client may not describe.
    told = guarded.call(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining("g", "n", subscribed_topic_names=[], subscribed_topic_regex=".*")
    )
    assert (told.error_code, told.assignment.topic_partitions) == (0, [])
