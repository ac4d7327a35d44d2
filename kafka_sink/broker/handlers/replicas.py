"""Replicas of partitions: their nodes, their reassignment, and the election of leaders.

Data is stored once and every node can open it, so nothing is copied and a reassignment is complete at once.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from kafka_sink.broker.cluster.topic_state import NO_LEADER
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import replicas as m

#: A partition and the name of its topic.
_Asked = tuple[str, m.ReassignablePartition]


@api_handler(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1")
def alter_partition_reassignments(request: ApiRequest[m.AlterPartitionReassignmentsRequest]) -> None:
    """AlterPartitionReassignments (key 45): changes the replicas of partitions, the preferred one first (KIP-455)."""
    request.require(AclOperation.ALTER, ResourceType.CLUSTER)
    may_grow = request.body.allow_replication_factor_change

    def reassign(reassignment: _Asked) -> m.ReassignablePartitionResponse:
        _reassign(request.broker, *reassignment, may_grow=may_grow)
        return m.ReassignablePartitionResponse(reassignment[1].partition_index, ErrorCode.NONE, None)

    def refused(reassignment: _Asked, error: ApiError) -> m.ReassignablePartitionResponse:
        return m.ReassignablePartitionResponse(reassignment[1].partition_index, error.code, str(error))

    items = [(topic.name, partition) for topic in request.body.topics for partition in topic.partitions]
    outcomes = iter(stored_together(request.broker, items, reassign, refused))
    responses = [
        m.ReassignableTopicResponse(topic.name, list(islice(outcomes, len(topic.partitions))))
        for topic in request.body.topics
    ]
    response = m.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_grow, error_message=None, responses=responses
    )
    request.respond(response)


def _reassign(context: BrokerContext, name: str, target: m.ReassignablePartition, *, may_grow: bool) -> None:
    partition = TopicPartition(name, target.partition_index)
    topic = context.topic(name)
    present = topic.partition(target.partition_index)
    if target.replicas is None:
        raise ApiError(f"no reassignment of {partition} is in progress", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    if not may_grow and len(target.replicas) != len(present.replicas):
        text = f"{partition} has {len(present.replicas)} replicas, and their number cannot be changed"
        raise ApiError(text, ErrorCode.INVALID_REPLICATION_FACTOR)
    context.cluster.reassign(partition, target.replicas)


@api_handler(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0")
def list_partition_reassignments(request: ApiRequest[m.ListPartitionReassignmentsRequest]) -> None:
    """ListPartitionReassignments (key 46): none is in progress (KIP-455)."""
    try:
        request.require(AclOperation.DESCRIBE, ResourceType.CLUSTER)
        answer = m.ListPartitionReassignmentsResponse(error_message=None)
    except ApiError as error:
        # As in Kafka: the requested partitions, without their replicas.
        named = [
            m.OngoingTopicReassignment(
                topic.name, [m.OngoingPartitionReassignment(index) for index in topic.partition_indexes]
            )
            for topic in request.body.topics or ()
        ]
        answer = m.ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error), topics=named)
    request.respond(answer)


_PREFERRED: Final = 0
_UNCLEAN: Final = 1


@api_handler(ApiKey.ELECT_LEADERS, "0-2")
def elect_leaders(request: ApiRequest[m.ElectLeadersRequest]) -> None:
    """ElectLeaders (key 43): makes the first replica of partitions the leader (KIP-183).

    Unclean elections (KIP-460) are never necessary here: a running replica takes over at once and has all records.
    """
    body = request.body
    request.require(AclOperation.ALTER, ResourceType.CLUSTER)
    if body.election_type not in (_PREFERRED, _UNCLEAN):
        request.respond(m.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    if body.topic_partitions is None:
        topics = {name: range(len(topic.partitions)) for name, topic in request.broker.cluster.topics.items()}
        results = _elect(request.broker, body.election_type, topics)
        for result in results:
            # If the request names no partitions, only those that needed an election are reported.
            result.partition_result = [
                item for item in result.partition_result if item.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
        results = [result for result in results if result.partition_result]
    else:
        results = _elect(
            request.broker, body.election_type, {item.topic: item.partitions for item in body.topic_partitions}
        )
    request.respond(m.ElectLeadersResponse(replica_election_results=results))


def _elect(
    context: BrokerContext, election_type: int, topics: Mapping[str, Sequence[int]]
) -> list[m.ReplicaElectionResult]:
    def elect(partition: TopicPartition) -> m.PartitionResult:
        if election_type == _PREFERRED:
            context.cluster.elect_preferred_leader(partition)
            return m.PartitionResult(partition.partition, ErrorCode.NONE, None)
        if context.topic(partition.topic).partition(partition.partition).leader != NO_LEADER:
            raise ApiError(f"{partition} has a leader", ErrorCode.ELECTION_NOT_NEEDED)
        raise ApiError(f"no replica of {partition} is running", ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)

    def refused(partition: TopicPartition, error: ApiError) -> m.PartitionResult:
        return m.PartitionResult(partition.partition, error.code, str(error))

    partitions = [TopicPartition(name, index) for name, indexes in topics.items() for index in dict.fromkeys(indexes)]
    by_topic: dict[str, list[m.PartitionResult]] = {name: [] for name in topics}
    for partition, result in zip(partitions, stored_together(context, partitions, elect, refused), strict=True):
        by_topic[partition.topic].append(result)
    return [m.ReplicaElectionResult(name, results) for name, results in by_topic.items()]


@api_handler(ApiKey.DESCRIBE_LOG_DIRS, "1-5")
def describe_log_dirs(request: ApiRequest[m.DescribeLogDirsRequest]) -> None:
    """DescribeLogDirs (key 35): the directory of this broker with the sizes of its partitions (KIP-113, KIP-827).
    Answers with the partitions of which this node has a replica; nodes share one directory."""
    try:
        request.require(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    except ApiError as error:
        # In this case Kafka returns no directory.
        request.respond(m.DescribeLogDirsResponse(error_code=error.code))
        return
    named = request.body.topics
    wanted = None if named is None else {(item.topic, index) for item in named for index in item.partitions}
    topics: dict[str, list[m.DescribeLogDirsPartition]] = defaultdict(list)
    for name, topic in sorted(request.broker.cluster.topics.items()):
        for index, partition in enumerate(topic.partitions):
            if request.broker.node_id in partition.replicas and (wanted is None or (name, index) in wanted):
                log = request.broker.logs.get(TopicPartition(name, index))
                size = 0 if log is None else log.size
                topics[name].append(m.DescribeLogDirsPartition(index, size, offset_lag=0, is_future_key=False))
    directory = request.broker.logs.directory
    try:
        total, _, usable = shutil.disk_usage(directory)
    except OSError:
        total = usable = -1
    described = [m.DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()]
    result = m.DescribeLogDirsResult(0, str(directory), described, total, usable)
    request.respond(m.DescribeLogDirsResponse(results=[result]))
