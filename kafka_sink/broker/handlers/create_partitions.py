"""CreatePartitions (key 37): adds partitions to existing topics (KIP-195)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, once, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 3)


def handle(context: BrokerContext, request: ApiRequest[CreatePartitionsRequest]) -> None:
    """Add partitions to each topic (or only validate the request); a failure does not affect the others."""
    body = request.body
    times_named = Counter(topic.name for topic in body.topics)

    def add(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        if times_named[topic.name] > 1:
            raise ApiError("the request names this topic twice", ErrorCode.INVALID_REQUEST)
        require(context, request, AclOperation.ALTER, ResourceType.TOPIC, topic.name)
        context.cluster.add_partitions(topic.name, topic.count, _assignment(topic), validate_only=body.validate_only)
        return CreatePartitionsTopicResult(topic.name, ErrorCode.NONE, None)

    def refused(topic: CreatePartitionsTopic, error: ApiError) -> CreatePartitionsTopicResult:
        return CreatePartitionsTopicResult(topic.name, error.code, str(error))

    topics = once(body.topics, lambda topic: topic.name)
    request.respond(CreatePartitionsResponse(results=stored_together(context, topics, add, refused)))


def _assignment(topic: CreatePartitionsTopic) -> list[list[int]] | None:
    return None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]


API: Final = ApiHandler(ApiKey.CREATE_PARTITIONS, VERSIONS, handle)
