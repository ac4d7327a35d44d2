"""OffsetCommit (key 8): commits offsets of a group. Versions 10 and up identify topics by id."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.coordinator.group_offsets import CommittedOffset
from kafka_sink.broker.coordinator.group_requests import Committer
from kafka_sink.broker.handlers.authorization import is_allowed, is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(2, 10)
_FIRST_WITH_EPOCHS: Final = 9
_FIRST_WITH_TOPIC_IDS: Final = 10
_NO_RETENTION: Final = -1


def handle(context: BrokerContext, request: ApiRequest[OffsetCommitRequest]) -> None:
    """Commit the offsets of partitions that exist; unknown partitions do not affect the others."""
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
            OffsetCommitResponsePartition(
                partition.partition_index, outcomes.get(TopicPartition(name or "", partition.partition_index), missing)
            )
            for partition in topic.partitions
        ]
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, results))
    request.respond(OffsetCommitResponse(topics=topics))


def _name(context: BrokerContext, topic: OffsetCommitRequestTopic, version: int) -> str | None:
    if version < _FIRST_WITH_TOPIC_IDS:
        return topic.name
    found = context.cluster.topic_by_id(topic.topic_id)
    return found.name if found is not None else None


def _commit(
    context: BrokerContext, request: ApiRequest[OffsetCommitRequest], offsets: dict[TopicPartition, CommittedOffset]
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


API: Final = ApiHandler(ApiKey.OFFSET_COMMIT, VERSIONS, handle)
