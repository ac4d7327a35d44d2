"""Metadata (key 3): nodes, topics and leaders; unknown topics are created if both client and broker allow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from kafka_sink.broker.cluster.topic_state import (
    MAX_PARTITIONS_PER_REQUEST,
    NO_LEADER,
    PartitionState,
    TopicState,
    too_many_partitions,
    validate_topic_name,
)
from kafka_sink.broker.handlers.authorization import cluster_operations, is_allowed, operations, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, once, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import (
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_sink.protocol.schema import ZERO_UUID, VersionRange

VERSIONS: Final = VersionRange(0, 13)
_FIRST_WITH_LOOKUP_BY_ID: Final = 12


def handle(context: BrokerContext, request: ApiRequest[MetadataRequest]) -> None:
    """Answer with the cluster's metadata and the addresses of the client's listener."""
    body = request.body
    # Version 0 has no null; its empty list selects all topics.
    everything = body.topics is None or (request.version == 0 and not body.topics)
    if everything:
        topics = [
            _describe(context, topic)
            for name, topic in context.cluster.topics.items()
            if is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    else:
        create = body.allow_auto_topic_creation and context.config.auto_create_topics_enable
        asked = once(body.topics or (), lambda topic: (topic.name, topic.topic_id))
        names = [topic.name for topic in asked if topic.name is not None and topic.topic_id == ZERO_UUID]
        refused = _refused(context, request, names, create=create)
        topics = [_look_up(context, request, topic, refused) for topic in asked]
    if body.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE and topic.name is not None:
                topic.topic_authorized_operations = operations(context, request, ResourceType.TOPIC, topic.name)
    nodes = context.cluster.nodes
    request.respond(
        MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id, endpoint.host, endpoint.port)
                for node_id, endpoints in sorted(nodes.items())
                if (endpoint := endpoints.get(request.listener_name)) is not None
            ],
            cluster_id=context.cluster.cluster_id,
            controller_id=context.cluster.controller_id,
            topics=topics,
            cluster_authorized_operations=(
                cluster_operations(context, request)
                if body.include_cluster_authorized_operations
                else NO_AUTHORIZED_OPERATIONS
            ),
        )
    )


def _refused(
    context: BrokerContext, request: ApiRequest[MetadataRequest], names: Sequence[str], *, create: bool
) -> dict[str, ApiError]:
    """Why topics of *names* are not described. With *create*, those that do not exist are created, in one change."""
    creates_any = create and is_allowed(context, request, AclOperation.CREATE, ResourceType.CLUSTER)
    refused, missing = {}, []
    for name in names:
        try:
            require(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            is_created = create and context.cluster.topic(name) is None
            if is_created and not creates_any:
                require(context, request, AclOperation.CREATE, ResourceType.TOPIC, name)
            validate_topic_name(name)
            if is_created:
                missing.append(name)
        except ApiError as error:
            refused[name] = error
    if len(missing) * context.config.num_partitions > MAX_PARTITIONS_PER_REQUEST:
        return refused | dict.fromkeys(missing, too_many_partitions())
    return refused | (_create(context, missing) if missing else {})


def _create(context: BrokerContext, names: Sequence[str]) -> dict[str, ApiError]:
    """Create topics; why some do not exist."""
    outcomes = stored_together(context, names, context.cluster.create_on_first_use, lambda name, error: error)
    return {
        name: error
        for name, error in zip(names, outcomes, strict=True)
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }


def _look_up(
    context: BrokerContext,
    request: ApiRequest[MetadataRequest],
    asked: MetadataRequestTopic,
    refused: Mapping[str, ApiError],
) -> MetadataResponseTopic:
    if asked.name is None or asked.topic_id != ZERO_UUID:
        if request.version < _FIRST_WITH_LOOKUP_BY_ID:
            # Earlier versions have the field, but no null name in the answer, which an unknown id needs.
            return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "")
        return _by_id(context, request, asked.topic_id)
    name = asked.name
    if name in refused:
        return MetadataResponseTopic(error_code=refused[name].code, name=name)
    topic = context.cluster.topic(name)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
    return _describe(context, topic)


def _by_id(context: BrokerContext, request: ApiRequest[MetadataRequest], topic_id: UUID) -> MetadataResponseTopic:
    topic = context.cluster.topic_by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
    except ApiError as error:
        # An id is no secret, the name is.
        return MetadataResponseTopic(error_code=error.code, name=None, topic_id=topic_id)
    return _describe(context, topic)


def _describe(context: BrokerContext, topic: TopicState) -> MetadataResponseTopic:
    running = frozenset(context.cluster.nodes)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_describe_partition(index, partition, running) for index, partition in enumerate(topic.partitions)],
    )


def _describe_partition(index: int, partition: PartitionState, running: frozenset[int]) -> MetadataResponsePartition:
    leaderless = partition.leader == NO_LEADER
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leaderless else ErrorCode.NONE,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=[replica for replica in partition.replicas if replica in running],
        offline_replicas=[replica for replica in partition.replicas if replica not in running],
    )


API: Final = ApiHandler(ApiKey.METADATA, VERSIONS, handle)
