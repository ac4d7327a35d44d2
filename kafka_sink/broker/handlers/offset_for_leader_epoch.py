"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, with which clients detect the truncation of a log
(KIP-320)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import is_allowed, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(2, 4)
_UNDEFINED: Final = (-1, -1)


def handle(context: BrokerContext, request: ApiRequest[OffsetForLeaderEpochRequest]) -> None:
    """Answer for each partition."""
    topics = [
        OffsetForLeaderTopicResult(
            topic.topic, [_look_up(context, request, topic.topic, asked) for asked in topic.partitions]
        )
        for topic in request.body.topics
    ]
    request.respond(OffsetForLeaderEpochResponse(topics=topics))


def _look_up(
    context: BrokerContext,
    request: ApiRequest[OffsetForLeaderEpochRequest],
    name: str,
    asked: OffsetForLeaderPartition,
) -> EpochEndOffset:
    try:
        # Followers ask as well, with the permission of brokers.
        if not is_allowed(context, request, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            require(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        topic = context.cluster.topic(name)
        if topic is None:
            raise ApiError("this topic does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = context.led_partition(topic, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = _end_of(
            context, TopicPartition(name, asked.partition), asked.leader_epoch, state.leader_epoch
        )
    except ApiError as error:
        return EpochEndOffset(error.code, asked.partition)
    return EpochEndOffset(ErrorCode.NONE, asked.partition, epoch, end_offset)


def _end_of(context: BrokerContext, partition: TopicPartition, epoch: int, present: int) -> tuple[int, int]:
    if not 0 <= epoch <= present:
        return _UNDEFINED
    log = context.logs.get(partition)
    if log is None:
        return epoch, 0
    return (epoch, log.end_offset) if epoch == present else log.end_of_epoch(epoch)


API: Final = ApiHandler(ApiKey.OFFSET_FOR_LEADER_EPOCH, VERSIONS, handle)
