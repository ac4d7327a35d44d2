"""AlterPartitionReassignments (key 45): changes the replicas of partitions, the preferred one first (KIP-455).

Data is stored once and every node can open it, so nothing is copied and a reassignment is complete at once.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)

#: A partition and the name of its topic.
_Asked = tuple[str, ReassignablePartition]


def handle(context: BrokerContext, request: ApiRequest[AlterPartitionReassignmentsRequest]) -> None:
    """Reassign each partition; a failure does not affect the others."""
    if is_refused(context, request, AclOperation.ALTER, ResourceType.CLUSTER):
        return
    may_grow = request.body.allow_replication_factor_change

    def reassign(asked: _Asked) -> ReassignablePartitionResponse:
        _reassign(context, *asked, may_grow=may_grow)
        return ReassignablePartitionResponse(asked[1].partition_index, ErrorCode.NONE, None)

    def refused(asked: _Asked, error: ApiError) -> ReassignablePartitionResponse:
        return ReassignablePartitionResponse(asked[1].partition_index, error.code, str(error))

    items = [(topic.name, partition) for topic in request.body.topics for partition in topic.partitions]
    outcomes = iter(stored_together(context, items, reassign, refused))
    responses = [
        ReassignableTopicResponse(topic.name, list(islice(outcomes, len(topic.partitions))))
        for topic in request.body.topics
    ]
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_grow, error_message=None, responses=responses
    )
    request.respond(response)


def _reassign(context: BrokerContext, name: str, asked: ReassignablePartition, *, may_grow: bool) -> None:
    partition = TopicPartition(name, asked.partition_index)
    topic = context.cluster.topic(name)
    if topic is None:
        raise ApiError(f"topic {name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = topic.partition(asked.partition_index)
    if asked.replicas is None:
        raise ApiError(f"no reassignment of {partition} is in progress", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if not may_grow and len(asked.replicas) != len(present.replicas):
        text = f"{partition} has {len(present.replicas)} replicas, and their number cannot be changed"
        raise ApiError(text, ErrorCode.INVALID_REPLICATION_FACTOR)
    context.cluster.reassign(partition, asked.replicas)


API: Final = ApiHandler(ApiKey.ALTER_PARTITION_REASSIGNMENTS, VERSIONS, handle)
