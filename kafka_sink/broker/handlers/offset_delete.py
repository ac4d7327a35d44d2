"""OffsetDelete (key 47): deletes offsets of topics to which a group is no longer subscribed (KIP-496)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import is_allowed, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 0)


def handle(context: BrokerContext, request: ApiRequest[OffsetDeleteRequest]) -> None:
    """Delete the offsets where this is allowed; each partition has its own error code."""
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
        request.respond(OffsetDeleteResponse(error_code=error.code))
        return
    topics = [
        OffsetDeleteResponseTopic(
            topic.name,
            [
                OffsetDeleteResponsePartition(
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
    request.respond(OffsetDeleteResponse(topics=topics))


API: Final = ApiHandler(ApiKey.OFFSET_DELETE, VERSIONS, handle)
