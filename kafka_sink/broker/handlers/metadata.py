"""The cluster's nodes, topics, partitions and coordinators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kafka_sink.broker.cluster.cluster_image import ClusterImage
from kafka_sink.broker.cluster.topic_state import (
    MAX_PARTITIONS_PER_REQUEST,
    NO_LEADER,
    PartitionState,
    TopicState,
    too_many_partitions,
    validate_topic_name,
)
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, once, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import cluster as m
from kafka_sink.protocol.messages import metadata as md
from kafka_sink.protocol.schema import ZERO_UUID

_FIRST_WITH_LOOKUP_BY_ID: Final = 12


@api_handler(ApiKey.METADATA, "0-13")
def metadata(request: ApiRequest[md.MetadataRequest]) -> None:
    """Metadata (key 3): nodes, topics and leaders; unknown topics are created if both client and broker allow it."""
    body, cluster = request.body, request.broker.cluster
    # Version 0 has no null; its empty list selects all topics.
    everything = body.topics is None or (request.version == 0 and not body.topics)
    if everything:
        topics = [
            _describe(request.broker, topic)
            for name, topic in cluster.topics.items()
            if request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    else:
        create = body.allow_auto_topic_creation and request.broker.config.auto_create_topics_enable
        requested_topics = once(body.topics or (), lambda topic: (topic.name, topic.topic_id))
        names = [topic.name for topic in requested_topics if topic.name is not None and topic.topic_id == ZERO_UUID]
        refused = _refused(request, names, create=create)
        topics = [_look_up(request, topic, refused) for topic in requested_topics]
    if body.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE and topic.name is not None:
                topic.topic_authorized_operations = request.operations(ResourceType.TOPIC, topic.name)
    request.respond(
        md.MetadataResponse(
            brokers=[md.MetadataResponseBroker(*broker) for broker in _brokers(cluster.image, request.listener_name)],
            cluster_id=cluster.image.cluster_id,
            controller_id=cluster.controller_id,
            topics=topics,
            cluster_authorized_operations=_operations(request, wanted=body.include_cluster_authorized_operations),
        )
    )


def _brokers(image: ClusterImage, listener_name: str) -> list[tuple[int, str, int]]:
    """Id, host and port of the nodes that run and have the client's listener."""
    return [
        (node_id, endpoint.host, endpoint.port)
        for node_id, endpoints in sorted(image.nodes.items())
        if (endpoint := endpoints.get(listener_name)) is not None
    ]


def _operations(request: ApiRequest[Any], *, wanted: bool) -> int:
    return request.operations(ResourceType.CLUSTER) if wanted else md.NO_AUTHORIZED_OPERATIONS


def _replicas(partition: PartitionState, running: frozenset[int]) -> dict[str, Any]:
    """The fields of a partition that both answers about topics have."""
    return {
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": [replica for replica in partition.replicas if replica in running],
        "offline_replicas": [replica for replica in partition.replicas if replica not in running],
    }


def _refused(request: ApiRequest[md.MetadataRequest], names: Sequence[str], *, create: bool) -> dict[str, ApiError]:
    """The errors of topics that are not described. With *create*, missing topics are created, in one change."""
    creates_any = create and request.allows(AclOperation.CREATE, ResourceType.CLUSTER)
    refused, missing = {}, []
    for name in names:
        try:
            request.require(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            is_created = create and request.broker.cluster.topic(name) is None
            if is_created and not creates_any:
                request.require(AclOperation.CREATE, ResourceType.TOPIC, name)
            validate_topic_name(name)
            if is_created:
                missing.append(name)
        except ApiError as error:
            refused[name] = error
    if len(missing) * request.broker.config.num_partitions > MAX_PARTITIONS_PER_REQUEST:
        return refused | dict.fromkeys(missing, too_many_partitions())
    return refused | (_create(request.broker, missing) if missing else {})


def _create(context: BrokerContext, names: Sequence[str]) -> dict[str, ApiError]:
    """Create topics; returns the errors of those that could not be created."""
    outcomes = stored_together(context, names, context.cluster.create_on_first_use, lambda name, error: error)
    return {
        name: error
        for name, error in zip(names, outcomes, strict=True)
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    }


def _look_up(
    request: ApiRequest[md.MetadataRequest], requested_topic: md.MetadataRequestTopic, refused: Mapping[str, ApiError]
) -> md.MetadataResponseTopic:
    if requested_topic.name is None or requested_topic.topic_id != ZERO_UUID:
        if request.version < _FIRST_WITH_LOOKUP_BY_ID:
            # Earlier versions have the field, but no null name in the answer, which an unknown id needs.
            return md.MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=requested_topic.name or "")
        return _by_id(request, requested_topic.topic_id)
    name = requested_topic.name
    if name in refused:
        return md.MetadataResponseTopic(error_code=refused[name].code, name=name)
    topic = request.broker.cluster.topic(name)
    if topic is None:
        return md.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
    return _describe(request.broker, topic)


def _by_id(request: ApiRequest[md.MetadataRequest], topic_id: UUID) -> md.MetadataResponseTopic:
    topic = request.broker.cluster.topic_by_id(topic_id)
    if topic is None:
        return md.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    try:
        request.require(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
    except ApiError as error:
        # The id is not secret, but the name is.
        return md.MetadataResponseTopic(error_code=error.code, name=None, topic_id=topic_id)
    return _describe(request.broker, topic)


def _describe(context: BrokerContext, topic: TopicState) -> md.MetadataResponseTopic:
    running = frozenset(context.cluster.nodes)
    partitions = [
        md.MetadataResponsePartition(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader == NO_LEADER else ErrorCode.NONE,
            partition_index=index,
            **_replicas(partition, running),
        )
        for index, partition in enumerate(topic.partitions)
    ]
    return md.MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


#: Kafka's default of max.request.partition.size.limit.
_MOST_PARTITIONS: Final = 2_000

Topic = m.DescribeTopicPartitionsResponseTopic


@api_handler(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0")
def describe_topic_partitions(request: ApiRequest[m.DescribeTopicPartitionsRequest]) -> None:
    """DescribeTopicPartitions (key 75): topics and their partitions, a limited number at a time (KIP-966).

    Answers with the topics in the order of their names, from the cursor on, until the limit is reached.

    Source: apache/kafka ``DescribeTopicPartitionsRequestHandler``.
    """
    body = request.body
    named = {topic.name for topic in body.topics}
    if body.cursor is not None and (body.cursor.partition_index < 0 or (named and body.cursor.topic_name not in named)):
        wrong = [Topic(ErrorCode.INVALID_REQUEST, topic.name) for topic in body.topics]
        request.respond(m.DescribeTopicPartitionsResponse(topics=wrong))
        return
    names = named or set(request.broker.cluster.topics)
    start, first = ("", 0) if body.cursor is None else (body.cursor.topic_name, body.cursor.partition_index)
    room = max(min(body.response_partition_limit, _MOST_PARTITIONS), 1)
    topics: list[Topic] = []
    refused: list[Topic] = []
    cursor: m.Cursor | None = None
    for name in sorted(name for name in names if name >= start):
        if not request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            # Returned only if the client named the topic, whether it exists or not.
            refused += [Topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)] if named else []
            continue
        if cursor is not None or room == 0:
            cursor = cursor or m.Cursor(name, 0)
            continue
        topic, missing = _described(request.broker, name, first if name == start else 0, room)
        topic.topic_authorized_operations = request.operations(ResourceType.TOPIC, name)
        topics.append(topic)
        room -= len(topic.partitions)
        cursor = None if missing is None else m.Cursor(name, missing)
    request.respond(m.DescribeTopicPartitionsResponse(topics=topics + refused, next_cursor=cursor))


def _described(context: BrokerContext, name: str, first: int, room: int) -> tuple[Topic, int | None]:
    """A topic with at most *room* partitions from *first* on, and the first one that had no room."""
    topic = context.cluster.topic(name)
    if topic is None:
        try:
            validate_topic_name(name)
        except ApiError as error:
            return Topic(error.code, name), None
        return Topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name), None
    end = min(first + room, len(topic.partitions))
    running = frozenset(context.cluster.nodes)
    partitions = [
        m.DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            eligible_leader_replicas=[],
            last_known_elr=[],
            **_replicas(topic.partitions[index], running),
        )
        for index in range(first, end)
    ]
    missing = end if end < len(topic.partitions) else None
    return Topic(name=name, topic_id=topic.topic_id, partitions=partitions), missing


_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@api_handler(ApiKey.DESCRIBE_CLUSTER, "0-2")
def describe_cluster(request: ApiRequest[m.DescribeClusterRequest]) -> None:
    """DescribeCluster (key 60): the brokers and their addresses on the client's listener (KIP-700)."""
    kind = request.body.endpoint_type
    if kind != _BROKERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if kind == _CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"a broker cannot describe endpoints of type {kind}"
        request.respond(m.DescribeClusterResponse(error_code=code, error_message=message, cluster_id=""))
        return
    image = request.broker.cluster.image
    request.respond(
        m.DescribeClusterResponse(
            cluster_id=image.cluster_id,
            controller_id=min(image.nodes, default=-1),
            brokers=[m.DescribeClusterBroker(*broker) for broker in _brokers(image, request.listener_name)],
            cluster_authorized_operations=_operations(
                request, wanted=request.body.include_cluster_authorized_operations
            ),
        )
    )


_FIRST_WITH_SEVERAL_KEYS: Final = 4
_RESOURCES: Final = {md.GROUP: ResourceType.GROUP, md.TRANSACTION: ResourceType.TRANSACTIONAL_ID}


@api_handler(ApiKey.FIND_COORDINATOR, "0-6")
def find_coordinator(request: ApiRequest[md.FindCoordinatorRequest]) -> None:
    """FindCoordinator (key 10): the node that coordinates a group or a transactional id. Answers for each key."""
    body = request.body
    if request.version >= _FIRST_WITH_SEVERAL_KEYS:
        keys = dict.fromkeys(body.coordinator_keys)
        request.respond(md.FindCoordinatorResponse(coordinators=[_find(request, key) for key in keys]))
        return
    coordinator = _find(request, body.key)
    request.respond(
        md.FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )
    )


def _find(request: ApiRequest[md.FindCoordinatorRequest], key: str) -> md.Coordinator:
    resource_type = _RESOURCES.get(request.body.key_type)
    try:
        if resource_type is None:
            text = f"coordinators of type {request.body.key_type} do not exist"
            raise ApiError(text, ErrorCode.INVALID_REQUEST)
        request.require(AclOperation.DESCRIBE, resource_type, key)
        node_id = request.broker.cluster.coordinator_for(key)
        endpoint = request.endpoint_of(node_id)
        if endpoint is None:
            text = f"broker {node_id} has no listener {request.listener_name}"
            raise ApiError(text, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except ApiError as error:
        return md.Coordinator(key, -1, "", -1, error.code, str(error))
    return md.Coordinator(key, node_id, endpoint.host, endpoint.port, ErrorCode.NONE, None)


#: The topic of Kafka's controllers, which has one partition. Here all nodes share a file instead, so no observer
#: lags.
_METADATA: Final = "__cluster_metadata"
_OFFSET: Final = 0
_FIRST_WITH_NODES: Final = 2


@api_handler(ApiKey.DESCRIBE_QUORUM, "0-2")
def describe_quorum(request: ApiRequest[m.DescribeQuorumRequest]) -> None:
    """DescribeQuorum (key 55): the one controller of this cluster, and the other nodes as its observers (KIP-595)."""
    request.require(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    named = [(topic.topic_name, [item.partition_index for item in topic.partitions]) for topic in request.body.topics]
    if named == [(_METADATA, [0])]:
        topics = [m.TopicQuorum(_METADATA, [_quorum(request.broker)])]
        node_id = request.broker.cluster.controller_id
        endpoint = request.endpoint_of(node_id)
        listeners = [] if endpoint is None else [m.Listener(request.listener_name, endpoint.host, endpoint.port)]
        nodes = [m.Node(node_id, listeners)] if request.version >= _FIRST_WITH_NODES else []
    else:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        nodes = []
        topics = [
            m.TopicQuorum(name, [m.PartitionQuorum(index, unknown, None) for index in indexes])
            for name, indexes in named
        ]
    request.respond(m.DescribeQuorumResponse(error_message=None, topics=topics, nodes=nodes))


def _quorum(context: BrokerContext) -> m.PartitionQuorum:
    controller = context.cluster.controller_id
    states = {node_id: m.ReplicaState(node_id, ZERO_UUID, _OFFSET) for node_id in sorted(context.cluster.nodes)}
    return m.PartitionQuorum(
        partition_index=0,
        error_message=None,
        leader_id=controller,
        leader_epoch=0,
        high_watermark=_OFFSET,
        current_voters=[states[controller]] if controller in states else [],
        observers=[state for node_id, state in states.items() if node_id != controller],
    )
