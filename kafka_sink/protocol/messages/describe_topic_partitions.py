"""DescribeTopicPartitions (key 75): topics and their partitions, some at a time (KIP-966)."""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "0"
_FLEXIBLE = "0+"


@struct
class TopicRequest(Struct):
    """One topic."""

    name: str = field(STRING, "0+")


@struct
class Cursor(Struct):
    """The first partition of an answer."""

    topic_name: str = field(STRING, "0+")
    partition_index: int = field(INT32, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeTopicPartitionsRequest(RequestBody["DescribeTopicPartitionsResponse"]):
    """No *topics* asks for all; *cursor* is where the answer before ended."""

    topics: list[TopicRequest] = field(array(TopicRequest), "0+")
    response_partition_limit: int = field(INT32, "0+", default=2000)
    cursor: Cursor | None = field(Cursor, "0+", default=None, nullable="0+")


@struct
class DescribeTopicPartitionsResponsePartition(Struct):
    """A partition; *eligible_leader_replicas* were in sync when its last leader was lost."""

    error_code: int = field(INT16, "0+")
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32), "0+")
    isr_nodes: list[int] = field(array(INT32), "0+")
    eligible_leader_replicas: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+")
    offline_replicas: list[int] = field(array(INT32), "0+", ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic, or what is wrong with it."""

    error_code: int = field(INT16, "0+")
    name: str | None = field(STRING, "0+", nullable="0+")
    topic_id: uuid.UUID = field(UUID, "0+", ignorable=True)
    is_internal: bool = field(BOOL, "0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = field(INT32, "0+", default=-2147483648)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeTopicPartitionsResponse(Struct):
    """*next_cursor* is where the next answer goes on, null at the end."""

    throttle_time_ms: int = field(INT32, "0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(array(DescribeTopicPartitionsResponseTopic), "0+")
    next_cursor: Cursor | None = field(Cursor, "0+", default=None, nullable="0+")
