"""Topics: their creation, deletion and partitions. Any node changes them, because nodes share the cluster's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kafka_sink.broker.cluster.topic_state import MAX_PARTITIONS_PER_REQUEST, TopicState, too_many_partitions
from kafka_sink.broker.handlers.context import (
    ApiRequest,
    BrokerContext,
    api_handler,
    once,
    storage_errors,
    stored_together,
)
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import topics as m
from kafka_sink.protocol.schema import ZERO_UUID

#: Source of a setting in the answer: topic-level.
_TOPIC_CONFIG: Final = 1
#: First versions of Produce and of Fetch with topic ids.
_FIRST_WITH_TOPIC_IDS: Final = 13


def asked_topic(request: ApiRequest[Any], name: str, topic_id: UUID) -> TopicState | ApiError:
    """The topic with *topic_id*, or in versions of Produce and Fetch without ids with *name* (KIP-516); the error if
    there is none."""
    by_id = request.version >= _FIRST_WITH_TOPIC_IDS
    cluster = request.broker.cluster
    topic = cluster.topic_by_id(topic_id) if by_id else cluster.topic(name)
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic or ApiError("there is no such topic", code)


def permitted_topic(
    request: ApiRequest[Any], operation: AclOperation, name: str, topic_id: UUID
) -> TopicState | ApiError:
    """As :func:`asked_topic`, or the error that the client may not do *operation* on it.

    An id that does not exist needs no permission.
    """
    topic = asked_topic(request, name, topic_id)
    topic_name = topic.name if isinstance(topic, TopicState) else name
    if isinstance(topic, ApiError) and topic.code is ErrorCode.UNKNOWN_TOPIC_ID:
        return topic
    if request.allows(operation, ResourceType.TOPIC, topic_name):
        return topic
    refused = request.refusal(operation, ResourceType.TOPIC, topic_name)
    return refused if topic_name == name else without_name(operation)


def without_name(operation: AclOperation) -> ApiError:
    """The error for a client that identified a topic by its id, which unlike the name is not secret."""
    return ApiError(f"{operation.name} on this topic is not allowed", ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@api_handler(ApiKey.CREATE_TOPICS, "2-7")
def create_topics(request: ApiRequest[m.CreateTopicsRequest]) -> None:
    """CreateTopics (key 19): creates topics, or only validates the request."""
    body = request.body
    times_named = Counter(topic.name for topic in body.topics)
    is_too_much = sum(_partitions(request.broker, topic) for topic in body.topics) > MAX_PARTITIONS_PER_REQUEST
    creates_any = request.allows(AclOperation.CREATE, ResourceType.CLUSTER)

    def create(topic: m.CreatableTopic) -> m.CreatableTopicResult:
        if times_named[topic.name] > 1:
            raise ApiError("the request names this topic twice", ErrorCode.INVALID_REQUEST)
        if not creates_any:
            request.require(AclOperation.CREATE, ResourceType.TOPIC, topic.name)
        if is_too_much:
            raise too_many_partitions()
        return _create(request, topic, validate_only=body.validate_only)

    def refused(topic: m.CreatableTopic, error: ApiError) -> m.CreatableTopicResult:
        return m.CreatableTopicResult(topic.name, error_code=error.code, error_message=str(error))

    topics = once(body.topics, lambda topic: topic.name)
    request.respond(m.CreateTopicsResponse(topics=stored_together(request.broker, topics, create, refused)))


def _partitions(context: BrokerContext, topic: m.CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return context.config.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def _create(
    request: ApiRequest[m.CreateTopicsRequest], topic: m.CreatableTopic, *, validate_only: bool
) -> m.CreatableTopicResult:
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    without_value = sorted({config.name for config in topic.configs} - configs.keys())
    if without_value:
        raise ApiError(f"settings without a value: {', '.join(without_value)}", ErrorCode.INVALID_CONFIG)
    assignment = _assignment(topic) if topic.assignments else None
    counts = topic.num_partitions, topic.replication_factor
    created = request.broker.cluster.create_topic(topic.name, *counts, configs, assignment, validate_only=validate_only)
    if not request.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        # The counts belong to the settings, which the client may not see.
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return m.CreatableTopicResult(topic.name, created.topic_id, ErrorCode.NONE, topic_config_error_code=hidden)
    return m.CreatableTopicResult(
        topic.name,
        created.topic_id,
        ErrorCode.NONE,
        error_message=None,
        num_partitions=len(created.partitions),
        replication_factor=len(created.partitions[0].replicas),
        configs=[m.CreatableTopicConfigs(name, value, False, _TOPIC_CONFIG, False) for name, value in configs.items()],
    )


def _assignment(topic: m.CreatableTopic) -> list[list[int]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise ApiError("the request has both counts and an assignment", ErrorCode.INVALID_REQUEST)
    by_index = {entry.partition_index: entry.broker_ids for entry in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        raise ApiError(
            "the assigned partitions are not numbered consecutively from 0", ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
    return [by_index[index] for index in range(len(by_index))]


@api_handler(ApiKey.CREATE_PARTITIONS, "0-3")
def create_partitions(request: ApiRequest[m.CreatePartitionsRequest]) -> None:
    """CreatePartitions (key 37): adds partitions to existing topics (KIP-195)."""
    body = request.body
    times_named = Counter(topic.name for topic in body.topics)

    def add(topic: m.CreatePartitionsTopic) -> m.CreatePartitionsTopicResult:
        if times_named[topic.name] > 1:
            raise ApiError("the request names this topic twice", ErrorCode.INVALID_REQUEST)
        request.require(AclOperation.ALTER, ResourceType.TOPIC, topic.name)
        assignment = None if topic.assignments is None else [entry.broker_ids for entry in topic.assignments]
        request.broker.cluster.add_partitions(topic.name, topic.count, assignment, validate_only=body.validate_only)
        return m.CreatePartitionsTopicResult(topic.name, ErrorCode.NONE, None)

    def refused(topic: m.CreatePartitionsTopic, error: ApiError) -> m.CreatePartitionsTopicResult:
        return m.CreatePartitionsTopicResult(topic.name, error.code, str(error))

    topics = once(body.topics, lambda topic: topic.name)
    request.respond(m.CreatePartitionsResponse(results=stored_together(request.broker, topics, add, refused)))


_FIRST_WITH_IDS: Final = 6


@api_handler(ApiKey.DELETE_TOPICS, "1-6")
def delete_topics(request: ApiRequest[m.DeleteTopicsRequest]) -> None:
    """DeleteTopics (key 20): deletes topics and their data; version 6 and up support topic ids."""
    body = request.body
    topics = (
        body.topics if request.version >= _FIRST_WITH_IDS else [m.DeleteTopicState(name) for name in body.topic_names]
    )
    times = Counter((topic.name, topic.topic_id) for topic in topics)
    results: list[m.DeletableTopicResult | str] = []
    for (name, topic_id), number in times.items():
        topic = m.DeleteTopicState(name, topic_id)
        try:
            if number > 1:
                raise ApiError(f"the request names the topic {number} times", ErrorCode.INVALID_REQUEST)
            results.append(_deletable(request, topic))
        except ApiError as error:
            results.append(_not_deleted(topic, error))
    outcomes = _delete(request.broker, [name for name in results if isinstance(name, str)])
    request.respond(
        m.DeleteTopicsResponse(responses=[outcomes[item] if isinstance(item, str) else item for item in results])
    )


def _not_deleted(topic: m.DeleteTopicState, error: ApiError) -> m.DeletableTopicResult:
    return m.DeletableTopicResult(topic.name, topic.topic_id, error.code, str(error))


def _deletable(request: ApiRequest[m.DeleteTopicsRequest], topic: m.DeleteTopicState) -> m.DeletableTopicResult | str:
    """The name of the topic, or the answer to a client that may not delete it."""
    name = topic.name
    if (name is None) == (topic.topic_id == ZERO_UUID):
        raise ApiError("a topic is identified either by its name or by its id", ErrorCode.INVALID_REQUEST)
    if name is None:
        state = request.broker.cluster.topic_by_id(topic.topic_id)
        if state is None:
            raise ApiError("no topic has this id", ErrorCode.UNKNOWN_TOPIC_ID)
        name = state.name
    refused = _refusal(request, name)
    if refused is not None:
        if topic.name is None and not request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            return _not_deleted(topic, without_name(AclOperation.DELETE))
        return m.DeletableTopicResult(name, topic.topic_id, refused.code, str(refused))
    return name


def delete_with_records(context: BrokerContext, names: Sequence[str]) -> Mapping[str, TopicState | ApiError]:
    """Delete topics with their records and committed offsets; returns for each name the deleted topic, or the error."""
    deleted: Mapping[str, TopicState | ApiError]
    try:
        with storage_errors("could not delete the topic"):
            deleted = context.cluster.delete_topics(names, lambda gone: context.logs.delete(gone.topic_partitions()))
    except ApiError as error:
        deleted = dict.fromkeys(names, error)
    gone = [topic for topic in deleted.values() if isinstance(topic, TopicState)]
    for partition in [partition for topic in gone for partition in topic.topic_partitions()]:
        # Complete the delayed fetches of the partition.
        context.purgatory.check(partition)
    if gone:
        context.groups.forget_topics([topic.name for topic in gone])
    return deleted


def _delete(context: BrokerContext, names: Sequence[str]) -> dict[str, m.DeletableTopicResult]:
    """Delete topics, which may be named twice, by name and by id; returns the answer for each name."""
    once = tuple(dict.fromkeys(names))
    deleted = delete_with_records(context, once)
    return {
        name: m.DeletableTopicResult(name, topic.topic_id, ErrorCode.NONE)
        if isinstance(topic, TopicState)
        else _not_deleted(m.DeleteTopicState(name), topic)
        for name, topic in deleted.items()
    }


def _refusal(request: ApiRequest[m.DeleteTopicsRequest], name: str) -> ApiError | None:
    """The error for a client that may not delete a topic.

    A client that may delete or describe the topic may also learn that it does not exist.
    """
    if request.allows(AclOperation.DELETE, ResourceType.CLUSTER) or request.allows(
        AclOperation.DELETE, ResourceType.TOPIC, name
    ):
        return None
    if request.broker.cluster.topic(name) is None and request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return None
    return request.refusal(AclOperation.DELETE, ResourceType.TOPIC, name)
