"""DescribeTopicPartitions (key 75): topics and their partitions, a limited number at a time (KIP-966).

Source: apache/kafka ``DescribeTopicPartitionsRequestHandler``.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.cluster.topic_state import TopicState, validate_topic_name
from kafka_sink.broker.handlers.authorization import is_allowed, operations
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 0)
#: Kafka's default of max.request.partition.size.limit.
_MOST_PARTITIONS: Final = 2_000

Topic = DescribeTopicPartitionsResponseTopic


def handle(context: BrokerContext, request: ApiRequest[DescribeTopicPartitionsRequest]) -> None:
    """Answer with the topics in the order of their names, from the cursor on, until the limit is reached."""
    body = request.body
    asked = {topic.name for topic in body.topics}
    if body.cursor is not None and (body.cursor.partition_index < 0 or (asked and body.cursor.topic_name not in asked)):
        wrong = [Topic(ErrorCode.INVALID_REQUEST, topic.name) for topic in body.topics]
        request.respond(DescribeTopicPartitionsResponse(topics=wrong))
        return
    names = asked or set(context.cluster.topics)
    start, first = ("", 0) if body.cursor is None else (body.cursor.topic_name, body.cursor.partition_index)
    room = max(min(body.response_partition_limit, _MOST_PARTITIONS), 1)
    topics: list[Topic] = []
    refused: list[Topic] = []
    cursor: Cursor | None = None
    for name in sorted(name for name in names if name >= start):
        if not is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            # Only to those who asked for it, whether it exists or not.
            refused += [Topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)] if asked else []
            continue
        if cursor is not None or room == 0:
            cursor = cursor or Cursor(name, 0)
            continue
        topic, missing = _described(context, name, first if name == start else 0, room)
        topic.topic_authorized_operations = operations(context, request, ResourceType.TOPIC, name)
        topics.append(topic)
        room -= len(topic.partitions)
        cursor = None if missing is None else Cursor(name, missing)
    request.respond(DescribeTopicPartitionsResponse(topics=topics + refused, next_cursor=cursor))


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
    partitions = [_partition(topic, index, running) for index in range(first, end)]
    missing = end if end < len(topic.partitions) else None
    return Topic(name=name, topic_id=topic.topic_id, partitions=partitions), missing


def _partition(topic: TopicState, index: int, running: frozenset[int]) -> DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[index]
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=[replica for replica in partition.replicas if replica in running],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[replica for replica in partition.replicas if replica not in running],
    )


API: Final = ApiHandler(ApiKey.DESCRIBE_TOPIC_PARTITIONS, VERSIONS, handle)
