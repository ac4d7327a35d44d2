"""OffsetFetch (key 9): the committed offsets of groups.

Versions 8 and up support several groups, versions 10 and up identify topics by id, and versions 7 and up can reject
partitions with pending offsets of an open transaction (KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from uuid import UUID

from kafka_sink.broker.coordinator.group_offsets import NOTHING_COMMITTED, CommittedOffset
from kafka_sink.broker.handlers.authorization import is_allowed, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, once
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafka_sink.protocol.schema import ZERO_UUID, VersionRange

VERSIONS: Final = VersionRange(1, 10)
_FIRST_WITH_GROUP_ERROR: Final = 2
_FIRST_WITH_SEVERAL_GROUPS: Final = 8
_FIRST_WITH_TOPIC_IDS: Final = 10


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


def handle(context: BrokerContext, request: ApiRequest[OffsetFetchRequest]) -> None:
    """Answer for each group."""
    body, version = request.body, request.version
    if version >= _FIRST_WITH_SEVERAL_GROUPS:
        groups = [
            _fetch(context, request, group, _asked(context, group, version))
            # Only requests for all offsets of a group have responses that are larger than themselves.
            for group in once(body.groups, lambda group: group.group_id if group.topics is None else id(group))
        ]
        request.respond(OffsetFetchResponse(groups=[_group_response(group) for group in groups]))
        return
    topics = body.topics
    asked = None if topics is None else [_Asked(each.name, ZERO_UUID, each.partition_indexes) for each in topics]
    group = OffsetFetchRequestGroup(group_id=body.group_id, topics=[])
    request.respond(_single_response(_fetch(context, request, group, asked), version))


def _asked(context: BrokerContext, group: OffsetFetchRequestGroup, version: int) -> list[_Asked] | None:
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
    request: ApiRequest[OffsetFetchRequest],
    group: OffsetFetchRequestGroup,
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


def _group_response(group: _Group) -> OffsetFetchResponseGroup:
    if group.error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=group.error)
    return OffsetFetchResponseGroup(
        group.group_id,
        [
            OffsetFetchResponseTopics(
                asked.name or "",
                asked.topic_id,
                [
                    OffsetFetchResponsePartitions(
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


def _single_response(group: _Group, version: int) -> OffsetFetchResponse:
    if group.error and version >= _FIRST_WITH_GROUP_ERROR:
        return OffsetFetchResponse(error_code=group.error)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                asked.name or "",
                [
                    OffsetFetchResponsePartition(
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


API: Final = ApiHandler(ApiKey.OFFSET_FETCH, VERSIONS, handle)
