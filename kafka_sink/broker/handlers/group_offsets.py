"""The committed offsets of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

from kafka_sink.broker.coordinator.group_metadata import Committer
from kafka_sink.broker.coordinator.group_offsets import NOTHING_COMMITTED, CommittedOffset
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, once
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import ProducerIdAndEpoch, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import group_offsets as m
from kafka_sink.protocol.schema import ZERO_UUID

_FIRST_WITH_EPOCHS: Final = 9
_FIRST_WITH_TOPIC_IDS: Final = 10
_NO_RETENTION: Final = -1

_Offset: TypeAlias = m.OffsetCommitRequestPartition | m.TxnOffsetCommitRequestPartition
P = TypeVar("P", bound=_Offset | m.OffsetDeleteRequestPartition)


def _outcomes(
    request: ApiRequest[Any],
    topics: Sequence[tuple[str | None, Sequence[P]]],
    act: Callable[[dict[TopicPartition, P]], Mapping[TopicPartition, ErrorCode]],
) -> list[list[m.PartitionOutcome]]:
    """The outcome of each partition, by topic: that of *act* for those that exist and that the client may read.

    *topics*: their names with their partitions; the name of a topic is None if its id is unknown.
    """
    names = {name for name, _ in topics if name is not None}
    allowed = {name for name in names if request.allows(AclOperation.READ, ResourceType.TOPIC, name)}
    existing = {
        partition: part
        for name, parts in topics
        if name in allowed and name is not None
        for part in parts
        if request.broker.has_partition(partition := TopicPartition(name, part.partition_index))
    }
    outcomes = act(existing)

    def code(name: str | None, index: int) -> ErrorCode:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if name not in allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return outcomes.get(TopicPartition(name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return [
        [m.PartitionOutcome(part.partition_index, code(name, part.partition_index)) for part in parts]
        for name, parts in topics
    ]


def _committed(parts: Mapping[TopicPartition, _Offset]) -> dict[TopicPartition, CommittedOffset]:
    return {
        partition: CommittedOffset(part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "")
        for partition, part in parts.items()
    }


def _name_of(context: BrokerContext, topic_id: UUID) -> str | None:
    topic = context.cluster.topic_by_id(topic_id)
    return topic.name if topic is not None else None


@api_handler(ApiKey.OFFSET_COMMIT, "2-10")
def offset_commit(request: ApiRequest[m.OffsetCommitRequest]) -> None:
    """OffsetCommit (key 8): commits offsets of a group. Versions 10 and up identify topics by id."""
    body = request.body
    request.require(AclOperation.READ, ResourceType.GROUP, body.group_id)
    by_id = request.version >= _FIRST_WITH_TOPIC_IDS
    offsets = [
        (_name_of(request.broker, topic.topic_id) if by_id else topic.name, topic.partitions) for topic in body.topics
    ]

    def commit(parts: Mapping[TopicPartition, _Offset]) -> Mapping[TopicPartition, ErrorCode]:
        if not parts:
            return {}
        try:
            return request.broker.groups_for(body.group_id).commit(
                body.group_id,
                Committer(body.generation_id_or_member_epoch, body.member_id, body.group_instance_id),
                _committed(parts),
                retention_ms=body.retention_time_ms if body.retention_time_ms != _NO_RETENTION else None,
                knows_epochs=request.version >= _FIRST_WITH_EPOCHS,
            )
        except ApiError as error:
            return dict.fromkeys(parts, error.code)

    topics = [
        m.OffsetCommitResponseTopic(topic.name, topic.topic_id, results)
        for topic, results in zip(body.topics, _outcomes(request, offsets, commit), strict=True)
    ]
    request.respond(m.OffsetCommitResponse(topics=topics))


@api_handler(ApiKey.TXN_OFFSET_COMMIT, "0-5")
def txn_offset_commit(request: ApiRequest[m.TxnOffsetCommitRequest]) -> None:
    """TxnOffsetCommit (key 28): offsets of a group that are committed together with a transaction."""
    body = request.body
    request.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
    request.require(AclOperation.READ, ResourceType.GROUP, body.group_id)

    def commit(parts: Mapping[TopicPartition, _Offset]) -> Mapping[TopicPartition, ErrorCode]:
        return _commit_pending(request, _committed(parts)) if parts else {}

    outcomes = _outcomes(request, [(topic.name, topic.partitions) for topic in body.topics], commit)
    topics = [m.TopicOutcome(topic.name, parts) for topic, parts in zip(body.topics, outcomes, strict=True)]
    request.respond(m.TxnOffsetCommitResponse(topics=topics))


def _commit_pending(
    request: ApiRequest[m.TxnOffsetCommitRequest], offsets: dict[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, ErrorCode]:
    body = request.body
    try:
        groups = request.broker.groups_for(body.group_id)
        if not body.group_id:
            raise ApiError("the group id must not be empty", ErrorCode.INVALID_GROUP_ID)
        committer = Committer(body.generation_id, body.member_id, body.group_instance_id)
        outcomes: dict[TopicPartition, ErrorCode] = {}
        refused = request.broker.transactions.commit_offsets(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            body.group_id,
            request.version,
            lambda: outcomes.update(groups.commit_in_transaction(body.group_id, committer, body.producer_id, offsets)),
        )
        return dict.fromkeys(offsets, refused) if refused else outcomes
    except ApiError as error:
        return dict.fromkeys(offsets, error.code)


_FIRST_WITH_GROUP_ERROR: Final = 2
_FIRST_WITH_SEVERAL_GROUPS: Final = 8


@dataclass(frozen=True, slots=True)
class _Asked:
    """Partitions of one topic; *name* is None for an unknown id."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[int]


@api_handler(ApiKey.OFFSET_FETCH, "1-10")
def offset_fetch(request: ApiRequest[m.OffsetFetchRequest]) -> None:
    """OffsetFetch (key 9): the committed offsets of groups.

    Versions 8 and up support several groups, versions 10 and up identify topics by id, and versions 7 and up can reject
    partitions with pending offsets of an open transaction (KIP-447). Answers for each group.
    """
    body, version = request.body, request.version
    if version >= _FIRST_WITH_SEVERAL_GROUPS:
        # Only requests for all offsets of a group have responses that are larger than themselves.
        asked = once(body.groups, lambda group: group.group_id if group.topics is None else id(group))
        groups = [_fetch(request, group) for group in asked]
        for group in groups:
            group.topics = [] if group.error_code else group.topics
        request.respond(m.OffsetFetchResponse(groups=groups))
        return
    group = _fetch(request, m.OffsetFetchRequestGroup(group_id=body.group_id, topics=body.topics))
    if group.error_code and version >= _FIRST_WITH_GROUP_ERROR:
        request.respond(m.OffsetFetchResponse(error_code=group.error_code))
    else:
        request.respond(m.OffsetFetchResponse(topics=group.topics))


def _asked(context: BrokerContext, group: m.OffsetFetchRequestGroup, version: int) -> list[_Asked] | None:
    """The requested partitions; None selects all."""
    if group.topics is None:
        return None
    by_id = version >= _FIRST_WITH_TOPIC_IDS
    return [
        _Asked(_name_of(context, topic.topic_id) if by_id else topic.name, topic.topic_id, topic.partition_indexes)
        for topic in group.topics
    ]


def _fetch(request: ApiRequest[m.OffsetFetchRequest], group: m.OffsetFetchRequestGroup) -> m.OffsetFetchResponseGroup:
    """The offsets of one group; after an error all its partitions have that error."""
    group_id, topics = group.group_id, _asked(request.broker, group, request.version)
    try:
        groups = request.permitted_groups(AclOperation.DESCRIBE, group_id)
        # In this order: a transaction that ends in between would be found neither pending nor committed in the other.
        unstable = groups.pending(group_id) if request.body.require_stable else frozenset()
        committed = groups.fetch(group_id, group.member_id, group.member_epoch)
    except ApiError as error:
        code = error.code
        return m.OffsetFetchResponseGroup(group_id, _topics(topics or [], lambda topic, index: code), code)

    def may_describe(name: str) -> bool:
        return request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)

    def find(topic: _Asked, index: int) -> CommittedOffset | ErrorCode:
        if topic.name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not may_describe(topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition = TopicPartition(topic.name, index)
        if partition in unstable:
            return ErrorCode.UNSTABLE_OFFSET_COMMIT
        return committed.get(partition, NOTHING_COMMITTED)

    if topics is None:
        topics = _everything(request.broker, [partition for partition in committed if may_describe(partition.topic)])
    return m.OffsetFetchResponseGroup(group_id, _topics(topics, find))


def _topics(
    topics: Iterable[_Asked], find: Callable[[_Asked, int], CommittedOffset | ErrorCode]
) -> list[m.OffsetFetchResponseTopic]:
    def partition(topic: _Asked, index: int) -> m.OffsetFetchResponsePartition:
        outcome = find(topic, index)
        of, code = (NOTHING_COMMITTED, outcome) if isinstance(outcome, ErrorCode) else (outcome, ErrorCode.NONE)
        return m.OffsetFetchResponsePartition(index, of.offset, of.leader_epoch, of.metadata, code)

    return [
        m.OffsetFetchResponseTopic(
            topic.name or "", topic.topic_id, [partition(topic, index) for index in topic.partitions]
        )
        for topic in topics
    ]


def _everything(context: BrokerContext, committed: Iterable[TopicPartition]) -> list[_Asked]:
    everything = []
    for name, partitions in groupby(committed, key=lambda partition: partition.topic):
        topic = context.cluster.topic(name)
        topic_id = topic.topic_id if topic is not None else ZERO_UUID
        everything.append(_Asked(name, topic_id, [partition.partition for partition in partitions]))
    return everything


@api_handler(ApiKey.OFFSET_DELETE, "0")
def offset_delete(request: ApiRequest[m.OffsetDeleteRequest]) -> None:
    """OffsetDelete (key 47): deletes offsets of topics to which a group is no longer subscribed (KIP-496)."""
    body = request.body

    def delete(parts: Mapping[TopicPartition, m.OffsetDeleteRequestPartition]) -> Mapping[TopicPartition, ErrorCode]:
        return request.permitted_groups(AclOperation.DELETE, body.group_id).delete_offsets(body.group_id, parts)

    try:
        outcomes = _outcomes(request, [(topic.name, topic.partitions) for topic in body.topics], delete)
    except ApiError as error:
        request.respond(m.OffsetDeleteResponse(error_code=error.code))
        return
    topics = [m.TopicOutcome(topic.name, parts) for topic, parts in zip(body.topics, outcomes, strict=True)]
    request.respond(m.OffsetDeleteResponse(topics=topics))
