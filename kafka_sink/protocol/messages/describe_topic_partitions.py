"""DescribeTopicPartitions (key 75): topics and their partitions, some at a time (KIP-966)."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s

_VERSIONS = "0"
_FLEXIBLE = "0+"


@s.struct
class TopicRequest(s.Struct):
    """One topic."""

    name: str = s.field(s.STRING, "0+")


@s.struct
class Cursor(s.Struct):
    """The first partition of an answer."""

    topic_name: str = s.field(s.STRING, "0+")
    partition_index: int = s.field(s.INT32, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeTopicPartitionsRequest(s.RequestBody["DescribeTopicPartitionsResponse"]):
    """No *topics* asks for all; *cursor* is where the answer before ended."""

    topics: list[TopicRequest] = s.field(s.array(TopicRequest), "0+")
    response_partition_limit: int = s.field(s.INT32, "0+", default=2000)
    cursor: Cursor | None = s.field(Cursor, "0+", default=None, nullable="0+")


@s.struct
class DescribeTopicPartitionsResponsePartition(s.Struct):
    """A partition; *eligible_leader_replicas* were in sync when its last leader was lost."""

    error_code: int = s.field(s.INT16, "0+")
    partition_index: int = s.field(s.INT32, "0+")
    leader_id: int = s.field(s.INT32, "0+")
    leader_epoch: int = s.field(s.INT32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = s.field(s.array(s.INT32), "0+")
    isr_nodes: list[int] = s.field(s.array(s.INT32), "0+")
    eligible_leader_replicas: list[int] | None = s.field(s.array(s.INT32), "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = s.field(s.array(s.INT32), "0+", default=None, nullable="0+")
    offline_replicas: list[int] = s.field(s.array(s.INT32), "0+", ignorable=True)


@s.struct
class DescribeTopicPartitionsResponseTopic(s.Struct):
    """A topic, or what is wrong with it."""

    error_code: int = s.field(s.INT16, "0+")
    name: str | None = s.field(s.STRING, "0+", nullable="0+")
    topic_id: uuid.UUID = s.field(s.UUID, "0+", ignorable=True)
    is_internal: bool = s.field(s.BOOL, "0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = s.field(
        s.array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = s.field(s.INT32, "0+", default=-2147483648)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeTopicPartitionsResponse(s.Struct):
    """*next_cursor* is where the next answer goes on, null at the end."""

    throttle_time_ms: int = s.field(s.INT32, "0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = s.field(s.array(DescribeTopicPartitionsResponseTopic), "0+")
    next_cursor: Cursor | None = s.field(Cursor, "0+", default=None, nullable="0+")
