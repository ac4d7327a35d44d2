"""ElectLeaders (key 43): makes the first replica of partitions the leader (KIP-183).

Unclean elections (KIP-460) are never necessary here: data is stored once, so a running replica takes over at once and
has all records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kafka_sink.broker.cluster.topic_state import NO_LEADER
from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)
_PREFERRED: Final = 0
_UNCLEAN: Final = 1


def handle(context: BrokerContext, request: ApiRequest[ElectLeadersRequest]) -> None:
    """Elect a leader for each partition; a failure does not affect the others."""
    body = request.body
    if is_refused(context, request, AclOperation.ALTER, ResourceType.CLUSTER):
        return
    if body.election_type not in (_PREFERRED, _UNCLEAN):
        request.respond(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    if body.topic_partitions is None:
        asked = {name: range(len(topic.partitions)) for name, topic in context.cluster.topics.items()}
        results = _elect(context, body.election_type, asked)
        for result in results:
            # If the request names no partitions, only those that needed an election are reported.
            result.partition_result = [
                item for item in result.partition_result if item.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
        results = [result for result in results if result.partition_result]
    else:
        results = _elect(context, body.election_type, {item.topic: item.partitions for item in body.topic_partitions})
    request.respond(ElectLeadersResponse(replica_election_results=results))


def _elect(
    context: BrokerContext, election_type: int, asked: Mapping[str, Sequence[int]]
) -> list[ReplicaElectionResult]:
    def elect(partition: TopicPartition) -> PartitionResult:
        if election_type == _PREFERRED:
            context.cluster.elect_preferred_leader(partition)
        else:
            _refuse_unclean(context, partition)
        return PartitionResult(partition.partition, ErrorCode.NONE, None)

    def refused(partition: TopicPartition, error: ApiError) -> PartitionResult:
        return PartitionResult(partition.partition, error.code, str(error))

    partitions = [TopicPartition(name, index) for name, indexes in asked.items() for index in dict.fromkeys(indexes)]
    found: dict[str, list[PartitionResult]] = {name: [] for name in asked}
    for partition, result in zip(partitions, stored_together(context, partitions, elect, refused), strict=True):
        found[partition.topic].append(result)
    return [ReplicaElectionResult(name, results) for name, results in found.items()]


def _refuse_unclean(context: BrokerContext, partition: TopicPartition) -> None:
    topic = context.cluster.topic(partition.topic)
    if topic is None:
        raise ApiError(f"topic {partition.topic!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.partition(partition.partition).leader != NO_LEADER:
        raise ApiError(f"{partition} has a leader", ErrorCode.ELECTION_NOT_NEEDED)
    raise ApiError(f"no replica of {partition} is running", ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)


API: Final = ApiHandler(ApiKey.ELECT_LEADERS, VERSIONS, handle)
