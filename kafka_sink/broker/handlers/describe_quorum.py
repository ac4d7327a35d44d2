"""DescribeQuorum (key 55): the one controller of this cluster, and the other nodes as its observers (KIP-595)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionQuorum,
    ReplicaState,
    TopicQuorum,
)
from kafka_sink.protocol.schema import ZERO_UUID, VersionRange

VERSIONS: Final = VersionRange(0, 2)
#: The topic of Kafka's controllers, which has one partition. Here a file has its place, which all nodes share:
#: nobody is behind.
_METADATA: Final = "__cluster_metadata"
_OFFSET: Final = 0
_FIRST_WITH_NODES: Final = 2


def handle(context: BrokerContext, request: ApiRequest[DescribeQuorumRequest]) -> None:
    """Answer for the partition of the metadata; every other one has no quorum."""
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER)
    except ApiError as error:
        request.respond(DescribeQuorumResponse(error_code=error.code, error_message=str(error)))
        return
    asked = [(topic.topic_name, [item.partition_index for item in topic.partitions]) for topic in request.body.topics]
    if asked == [(_METADATA, [0])]:
        topics = [TopicQuorum(_METADATA, [_quorum(context)])]
        nodes = [_controller(context, request.listener_name)] if request.version >= _FIRST_WITH_NODES else []
    else:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        nodes = []
        topics = [
            TopicQuorum(name, [PartitionQuorum(index, unknown, None) for index in indexes]) for name, indexes in asked
        ]
    request.respond(DescribeQuorumResponse(error_message=None, topics=topics, nodes=nodes))


def _quorum(context: BrokerContext) -> PartitionQuorum:
    controller = context.cluster.controller_id
    states = {node_id: ReplicaState(node_id, ZERO_UUID, _OFFSET) for node_id in sorted(context.cluster.nodes)}
    return PartitionQuorum(
        partition_index=0,
        error_message=None,
        leader_id=controller,
        leader_epoch=0,
        high_watermark=_OFFSET,
        current_voters=[states[controller]] if controller in states else [],
        observers=[state for node_id, state in states.items() if node_id != controller],
    )


def _controller(context: BrokerContext, listener: str) -> Node:
    controller = context.cluster.controller_id
    endpoint = context.cluster.nodes.get(controller, {}).get(listener)
    return Node(controller, [] if endpoint is None else [Listener(listener, endpoint.host, endpoint.port)])


API: Final = ApiHandler(ApiKey.DESCRIBE_QUORUM, VERSIONS, handle)
