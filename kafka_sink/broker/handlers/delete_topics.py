"""DeleteTopics (key 20): deletes topics and their data; version 6 and up support topic ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.handlers.authorization import is_allowed, refusal
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, storage_errors
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.purgatory import DelayedOperationPurgatory
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kafka_sink.protocol.schema import ZERO_UUID, VersionRange

VERSIONS: Final = VersionRange(1, 6)
_FIRST_WITH_IDS: Final = 6


def handle(context: BrokerContext, request: ApiRequest[DeleteTopicsRequest]) -> None:
    """Delete each topic; a failure does not affect the others."""
    body = request.body
    asked = body.topics if request.version >= _FIRST_WITH_IDS else [DeleteTopicState(name) for name in body.topic_names]
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    results: list[DeletableTopicResult | str] = []
    for (name, topic_id), number in times.items():
        topic = DeleteTopicState(name, topic_id)
        try:
            if number > 1:
                raise ApiError(f"the request names the topic {number} times", ErrorCode.INVALID_REQUEST)
            results.append(_deletable(context, request, topic))
        except ApiError as error:
            results.append(_not_deleted(topic, error))
    outcomes = _delete(context, [name for name in results if isinstance(name, str)])
    request.respond(
        DeleteTopicsResponse(responses=[outcomes[each] if isinstance(each, str) else each for each in results])
    )


def _not_deleted(topic: DeleteTopicState, error: ApiError) -> DeletableTopicResult:
    return DeletableTopicResult(topic.name, topic.topic_id, error.code, str(error))


def _deletable(
    context: BrokerContext, request: ApiRequest[DeleteTopicsRequest], asked: DeleteTopicState
) -> DeletableTopicResult | str:
    """The name of the topic, or the answer to a client that may not delete it."""
    if not context.config.delete_topic_enable:
        raise ApiError("delete.topic.enable is false", ErrorCode.TOPIC_DELETION_DISABLED)
    name = asked.name
    if (name is None) == (asked.topic_id == ZERO_UUID):
        raise ApiError("a topic is identified either by its name or by its id", ErrorCode.INVALID_REQUEST)
    if name is None:
        found = context.cluster.topic_by_id(asked.topic_id)
        if found is None:
            raise ApiError("no topic has this id", ErrorCode.UNKNOWN_TOPIC_ID)
        name = found.name
    refused = _refusal(context, request, name)
    if refused is not None:
        can_describe = is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        return DeletableTopicResult(name if can_describe else asked.name, asked.topic_id, refused.code, str(refused))
    return name


def delete_topics(
    cluster: ClusterState,
    logs: LogManager,
    purgatory: DelayedOperationPurgatory,
    groups: GroupCoordinator,
    names: Sequence[str],
) -> Mapping[str, TopicState | ApiError]:
    """Delete topics with their records and committed offsets; of each name the topic that was, or why it still is."""
    deleted: Mapping[str, TopicState | ApiError]
    try:
        with storage_errors("could not delete the topic"):
            deleted = cluster.delete_topics(names, lambda gone: logs.delete(gone.topic_partitions()))
    except ApiError as error:
        deleted = dict.fromkeys(names, error)
    gone = [topic for topic in deleted.values() if isinstance(topic, TopicState)]
    for partition in [partition for topic in gone for partition in topic.topic_partitions()]:
        # Complete the delayed fetches of the partition.
        purgatory.check(partition)
    if gone:
        groups.forget_topics([topic.name for topic in gone])
    return deleted


def _delete(context: BrokerContext, names: Sequence[str]) -> dict[str, DeletableTopicResult]:
    """Delete topics, which are named by name or by id and so perhaps twice; the answer for each name."""
    once = tuple(dict.fromkeys(names))
    deleted = delete_topics(context.cluster, context.logs, context.purgatory, context.groups, once)
    return {
        name: DeletableTopicResult(name, topic.topic_id, ErrorCode.NONE)
        if isinstance(topic, TopicState)
        else _not_deleted(DeleteTopicState(name), topic)
        for name, topic in deleted.items()
    }


def _refusal(context: BrokerContext, request: ApiRequest[DeleteTopicsRequest], name: str) -> ApiError | None:
    """The error for a client that may not delete a topic.

    Whoever may delete anything may also find out that it does not exist, and a client that may only describe it, too.
    """
    if is_allowed(context, request, AclOperation.DELETE, ResourceType.CLUSTER) or is_allowed(
        context, request, AclOperation.DELETE, ResourceType.TOPIC, name
    ):
        return None
    if context.cluster.topic(name) is None and is_allowed(
        context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name
    ):
        return None
    return refusal(request, AclOperation.DELETE, ResourceType.TOPIC, name)


API: Final = ApiHandler(ApiKey.DELETE_TOPICS, VERSIONS, handle)
