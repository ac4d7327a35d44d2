"""CreateTopics (key 19). Any node handles it, because the nodes share the cluster's state."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kafka_sink.broker.cluster.topic_state import MAX_PARTITIONS_PER_REQUEST, too_many_partitions
from kafka_sink.broker.handlers.authorization import is_allowed, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, once, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(2, 7)
#: Source of a setting in the answer: topic-level.
_TOPIC_CONFIG: Final = 1


def handle(context: BrokerContext, request: ApiRequest[CreateTopicsRequest]) -> None:
    """Create (or only validate) each topic; a failure does not affect the others."""
    body = request.body
    times_named = Counter(topic.name for topic in body.topics)
    is_too_much = sum(_partitions(context, topic) for topic in body.topics) > MAX_PARTITIONS_PER_REQUEST
    creates_any = is_allowed(context, request, AclOperation.CREATE, ResourceType.CLUSTER)

    def create(topic: CreatableTopic) -> CreatableTopicResult:
        if times_named[topic.name] > 1:
            raise ApiError("the request names this topic twice", ErrorCode.INVALID_REQUEST)
        if not creates_any:
            require(context, request, AclOperation.CREATE, ResourceType.TOPIC, topic.name)
        if is_too_much:
            raise too_many_partitions()
        return _create(context, request, topic, validate_only=body.validate_only)

    def refused(topic: CreatableTopic, error: ApiError) -> CreatableTopicResult:
        return CreatableTopicResult(topic.name, error_code=error.code, error_message=str(error))

    topics = once(body.topics, lambda topic: topic.name)
    request.respond(CreateTopicsResponse(topics=stored_together(context, topics, create, refused)))


def _partitions(context: BrokerContext, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return context.config.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def _create(
    context: BrokerContext, request: ApiRequest[CreateTopicsRequest], topic: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    without_value = sorted({config.name for config in topic.configs} - configs.keys())
    if without_value:
        raise ApiError(f"settings without a value: {', '.join(without_value)}", ErrorCode.INVALID_CONFIG)
    assignment = _assignment(topic) if topic.assignments else None
    counts = topic.num_partitions, topic.replication_factor
    created = context.cluster.create_topic(topic.name, *counts, configs, assignment, validate_only=validate_only)
    if not is_allowed(context, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        # The counts belong to the settings, which the client may not see.
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(topic.name, created.topic_id, ErrorCode.NONE, topic_config_error_code=hidden)
    return CreatableTopicResult(
        topic.name,
        created.topic_id,
        ErrorCode.NONE,
        error_message=None,
        num_partitions=len(created.partitions),
        replication_factor=len(created.partitions[0].replicas),
        configs=[CreatableTopicConfigs(name, value, False, _TOPIC_CONFIG, False) for name, value in configs.items()],
    )


def _assignment(topic: CreatableTopic) -> list[list[int]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise ApiError("the request has both counts and an assignment", ErrorCode.INVALID_REQUEST)
    by_index = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        raise ApiError(
            "the assigned partitions are not numbered consecutively from 0", ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
    return [by_index[index] for index in range(len(by_index))]


API: Final = ApiHandler(ApiKey.CREATE_TOPICS, VERSIONS, handle)
