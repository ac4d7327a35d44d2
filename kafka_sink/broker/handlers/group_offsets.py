"""The committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from uuid import UUID

from kafka_sink.broker.coordinator.group_offsets import NOTHING_COMMITTED, CommittedOffset
from kafka_sink.broker.coordinator.group_requests import Committer
from kafka_sink.broker.handlers.authorization import is_allowed, is_refused, require
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


@api_handler(ApiKey.OFFSET_COMMIT, "2-10")
def offset_commit(context: BrokerContext, request: ApiRequest[m.OffsetCommitRequest]) -> None:
    """OffsetCommit (key 8): commits offsets of a group. Versions 10 and up identify topics by id. Commits the offsets
    of partitions that exist; unknown partitions do not affect the others.
    """
    body = request.body
    if is_refused(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id):
        return
    names = [_name(context, topic, request.version) for topic in body.topics]
    allowed = {
        name
        for name in names
        if name is not None and is_allowed(context, request, AclOperation.READ, ResourceType.TOPIC, name)
    }
    offsets = {
        TopicPartition(name, partition.partition_index): CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
        )
        for name, topic in zip(names, body.topics, strict=True)
        for partition in topic.partitions
        if name in allowed and context.has_partition(TopicPartition(name, partition.partition_index))
    }
    outcomes = _commit(context, request, offsets) if offsets else {}
    topics = []
    for name, topic in zip(names, body.topics, strict=True):
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name is None:
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        elif name not in allowed:
            missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        results = [
            m.OffsetCommitResponsePartition(
                partition.partition_index, outcomes.get(TopicPartition(name or "", partition.partition_index), missing)
            )
            for partition in topic.partitions
        ]
        topics.append(m.OffsetCommitResponseTopic(topic.name, topic.topic_id, results))
    request.respond(m.OffsetCommitResponse(topics=topics))


def _name(context: BrokerContext, topic: m.OffsetCommitRequestTopic, version: int) -> str | None:
    if version < _FIRST_WITH_TOPIC_IDS:
        return topic.name
    found = context.cluster.topic_by_id(topic.topic_id)
    return found.name if found is not None else None


def _commit(
    context: BrokerContext, request: ApiRequest[m.OffsetCommitRequest], offsets: dict[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, ErrorCode]:
    body = request.body
    try:
        return context.groups_for(body.group_id).commit(
            body.group_id,
            Committer(body.generation_id_or_member_epoch, body.member_id, body.group_instance_id),
            offsets,
            retention_ms=body.retention_time_ms if body.retention_time_ms != _NO_RETENTION else None,
            knows_epochs=request.version >= _FIRST_WITH_EPOCHS,
        )
    except ApiError as error:
        return dict.fromkeys(offsets, error.code)


@api_handler(ApiKey.TXN_OFFSET_COMMIT, "0-5")
def txn_offset_commit(context: BrokerContext, request: ApiRequest[m.TxnOffsetCommitRequest]) -> None:
    """TxnOffsetCommit (key 28): offsets of a group that are committed together with a transaction. Stores the offsets
    of existing partitions if the transaction allows it; the others get an error code each.
    """
    body = request.body
    if is_refused(
        context, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    ) or is_refused(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id):
        return
    allowed = {
        topic.name
        for topic in body.topics
        if is_allowed(context, request, AclOperation.READ, ResourceType.TOPIC, topic.name)
    }
    offsets = {
        TopicPartition(topic.name, partition.partition_index): CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
        )
        for topic in body.topics
        for partition in topic.partitions
        if topic.name in allowed and context.has_partition(TopicPartition(topic.name, partition.partition_index))
    }
    outcomes = _commit_pending(context, request, offsets) if offsets else {}
    topics = [
        m.TxnOffsetCommitResponseTopic(
            topic.name,
            [
                m.TxnOffsetCommitResponsePartition(
                    partition.partition_index,
                    outcomes.get(
                        TopicPartition(topic.name, partition.partition_index),
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        if topic.name in allowed
                        else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    ),
                )
                for partition in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    request.respond(m.TxnOffsetCommitResponse(topics=topics))


def _commit_pending(
    context: BrokerContext,
    request: ApiRequest[m.TxnOffsetCommitRequest],
    offsets: dict[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, ErrorCode]:
    body = request.body
    try:
        groups = context.groups_for(body.group_id)
        if not body.group_id:
            raise ApiError("the group id must not be empty", ErrorCode.INVALID_GROUP_ID)
        committer = Committer(body.generation_id, body.member_id, body.group_instance_id)
        outcomes: dict[TopicPartition, ErrorCode] = {}
        refused = context.transactions.commit_offsets(
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


@dataclass(frozen=True, slots=True)
class _Found:
    """The committed offset of one partition, or an error."""

    partition: int
    committed: CommittedOffset
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class _Group:
    """One group's offsets by topic, or an error."""

    group_id: str
    topics: list[tuple[_Asked, list[_Found]]]
    error: ErrorCode = ErrorCode.NONE


@api_handler(ApiKey.OFFSET_FETCH, "1-10")
def offset_fetch(context: BrokerContext, request: ApiRequest[m.OffsetFetchRequest]) -> None:
    """OffsetFetch (key 9): the committed offsets of groups.

    Versions 8 and up support several groups, versions 10 and up identify topics by id, and versions 7 and up can reject
    partitions with pending offsets of an open transaction (KIP-447). Answers for each group.
    """
    body, version = request.body, request.version
    if version >= _FIRST_WITH_SEVERAL_GROUPS:
        groups = [
            _fetch(context, request, group, _asked(context, group, version))
            # Only requests for all offsets of a group have responses that are larger than themselves.
            for group in once(body.groups, lambda group: group.group_id if group.topics is None else id(group))
        ]
        request.respond(m.OffsetFetchResponse(groups=[_group_response(group) for group in groups]))
        return
    topics = body.topics
    asked = None if topics is None else [_Asked(each.name, ZERO_UUID, each.partition_indexes) for each in topics]
    group = m.OffsetFetchRequestGroup(group_id=body.group_id, topics=[])
    request.respond(_single_response(_fetch(context, request, group, asked), version))


def _asked(context: BrokerContext, group: m.OffsetFetchRequestGroup, version: int) -> list[_Asked] | None:
    """The requested partitions; None selects all."""
    if group.topics is None:
        return None
    asked = []
    for topic in group.topics:
        name: str | None = topic.name
        if version >= _FIRST_WITH_TOPIC_IDS:
            known = context.cluster.topic_by_id(topic.topic_id)
            name = known.name if known is not None else None
        asked.append(_Asked(name, topic.topic_id, topic.partition_indexes))
    return asked


def _fetch(
    context: BrokerContext,
    request: ApiRequest[m.OffsetFetchRequest],
    group: m.OffsetFetchRequestGroup,
    asked: list[_Asked] | None,
) -> _Group:
    group_id = group.group_id
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        groups = context.groups_for(group_id)
        # In this order: a transaction that ends in between would be found neither pending nor committed in the other.
        unstable = groups.pending(group_id) if request.body.require_stable else frozenset()
        committed = groups.fetch(group_id, group.member_id, group.member_epoch)
    except ApiError as error:
        refused = [
            (topic, [_Found(each, NOTHING_COMMITTED, error.code) for each in topic.partitions]) for topic in asked or ()
        ]
        return _Group(group_id, refused, error.code)

    def may_describe(name: str) -> bool:
        return is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)

    def find(topic: _Asked, index: int) -> _Found:
        if topic.name is None:
            return _Found(index, NOTHING_COMMITTED, ErrorCode.UNKNOWN_TOPIC_ID)
        if not may_describe(topic.name):
            return _Found(index, NOTHING_COMMITTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = TopicPartition(topic.name, index)
        if partition in unstable:
            return _Found(index, NOTHING_COMMITTED, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return _Found(index, committed.get(partition, NOTHING_COMMITTED))

    if asked is None:
        asked = _everything(context, [each for each in committed if may_describe(each.topic)])
    return _Group(group_id, [(topic, [find(topic, index) for index in topic.partitions]) for topic in asked])


def _everything(context: BrokerContext, committed: Iterable[TopicPartition]) -> list[_Asked]:
    everything = []
    for name, partitions in groupby(committed, key=lambda partition: partition.topic):
        topic = context.cluster.topic(name)
        topic_id = topic.topic_id if topic is not None else ZERO_UUID
        everything.append(_Asked(name, topic_id, [each.partition for each in partitions]))
    return everything


def _group_response(group: _Group) -> m.OffsetFetchResponseGroup:
    if group.error:
        return m.OffsetFetchResponseGroup(group_id=group.group_id, error_code=group.error)
    return m.OffsetFetchResponseGroup(
        group.group_id,
        [
            m.OffsetFetchResponseTopics(
                asked.name or "",
                asked.topic_id,
                [
                    m.OffsetFetchResponsePartitions(
                        each.partition,
                        each.committed.offset,
                        each.committed.leader_epoch,
                        each.committed.metadata,
                        each.error,
                    )
                    for each in found
                ],
            )
            for asked, found in group.topics
        ],
    )


def _single_response(group: _Group, version: int) -> m.OffsetFetchResponse:
    if group.error and version >= _FIRST_WITH_GROUP_ERROR:
        return m.OffsetFetchResponse(error_code=group.error)
    return m.OffsetFetchResponse(
        topics=[
            m.OffsetFetchResponseTopic(
                asked.name or "",
                [
                    m.OffsetFetchResponsePartition(
                        each.partition,
                        each.committed.offset,
                        each.committed.leader_epoch,
                        each.committed.metadata,
                        each.error,
                    )
                    for each in found
                ],
            )
            for asked, found in group.topics
        ]
    )


@api_handler(ApiKey.OFFSET_DELETE, "0")
def offset_delete(context: BrokerContext, request: ApiRequest[m.OffsetDeleteRequest]) -> None:
    """OffsetDelete (key 47): deletes offsets of topics to which a group is no longer subscribed (KIP-496). Deletes the
    offsets where this is allowed; each partition has its own error code.
    """
    body = request.body
    asked = [
        TopicPartition(topic.name, partition.partition_index) for topic in body.topics for partition in topic.partitions
    ]
    allowed = {
        topic.name
        for topic in body.topics
        if is_allowed(context, request, AclOperation.READ, ResourceType.TOPIC, topic.name)
    }
    known = [partition for partition in asked if partition.topic in allowed and context.has_partition(partition)]
    try:
        require(context, request, AclOperation.DELETE, ResourceType.GROUP, body.group_id)
        outcomes = context.groups_for(body.group_id).delete_offsets(body.group_id, known)
    except ApiError as error:
        request.respond(m.OffsetDeleteResponse(error_code=error.code))
        return
    topics = [
        m.OffsetDeleteResponseTopic(
            topic.name,
            [
                m.OffsetDeleteResponsePartition(
                    partition.partition_index,
                    outcomes.get(
                        TopicPartition(topic.name, partition.partition_index),
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        if topic.name in allowed
                        else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    ),
                )
                for partition in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    request.respond(m.OffsetDeleteResponse(topics=topics))
