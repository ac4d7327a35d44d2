"""CreateTopics (key 19). Any node handles it, because the nodes share the cluster's state."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kafka_sink.broker.handlers.authorization import is_allowed, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, storage_errors
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
    creates_any = is_allowed(context, request, AclOperation.CREATE, ResourceType.CLUSTER)
    results = []
    for topic in {topic.name: topic for topic in body.topics}.values():
        try:
            if times_named[topic.name] > 1:
                raise ApiError("the request names this topic twice", ErrorCode.INVALID_REQUEST)
            if not creates_any:
                require(context, request, AclOperation.CREATE, ResourceType.TOPIC, topic.name)
            results.append(_create(context, request, topic, validate_only=body.validate_only))
        except ApiError as error:
            results.append(CreatableTopicResult(topic.name, error_code=error.code, error_message=str(error)))
    request.respond(CreateTopicsResponse(topics=results))


def _create(
    context: BrokerContext, request: ApiRequest[CreateTopicsRequest], topic: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    configs = {config.name: config.value or "" for config in topic.configs}
    assignment = _assignment(topic) if topic.assignments else None
    counts = topic.num_partitions, topic.replication_factor
    with storage_errors("could not store the topic"):
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
