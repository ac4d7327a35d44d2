"""Requests of operators about the cluster: nodes, quorum, partitions and features."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS


class DescribeClusterRequest(s.RequestBody["DescribeClusterResponse"], versions="0-2", flexible="0+"):
    """DescribeCluster (key 60): the brokers and the id of the cluster (KIP-700). *endpoint_type* 1 selects brokers, 2
    controllers."""

    include_cluster_authorized_operations: bool = s.field(s.BOOL, "0+")
    endpoint_type: int = s.field(s.INT8, "1+", default=1)
    include_fenced_brokers: bool = s.field(s.BOOL, "2+")


class DescribeClusterBroker(s.Struct):
    """A broker and its address on the listener that received the request."""

    broker_id: int = s.field(s.INT32, "0+")
    host: str = s.field(s.STRING, "0+")
    port: int = s.field(s.INT32, "0+")
    rack: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    is_fenced: bool = s.field(s.BOOL, "2+")


class DescribeClusterResponse(s.Throttled, versions="0-2", flexible="0+"):
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    endpoint_type: int = s.field(s.INT8, "1+", default=1)
    cluster_id: str = s.field(s.STRING, "0+")
    controller_id: int = s.field(s.INT32, "0+", default=-1)
    brokers: list[DescribeClusterBroker] = s.field(s.Array(DescribeClusterBroker), "0+")
    cluster_authorized_operations: int = s.field(s.INT32, "0+", default=NO_AUTHORIZED_OPERATIONS)


class PartitionData(s.Struct):
    partition_index: int = s.field(s.INT32, "0+")


class TopicData(s.Struct):
    topic_name: str = s.field(s.STRING, "0+")
    partitions: list[PartitionData] = s.field(s.Array(PartitionData), "0+")


class DescribeQuorumRequest(s.RequestBody["DescribeQuorumResponse"], versions="0-2", flexible="0+"):
    """DescribeQuorum (key 55): the quorum of controllers (KIP-595, KIP-836, KIP-853). The only topic that has a quorum
    is that of the cluster's metadata."""

    topics: list[TopicData] = s.field(s.Array(TopicData), "0+")


class ReplicaState(s.Struct):
    """A member; offsets and times (ms since 1970) are −1 if not known."""

    replica_id: int = s.field(s.INT32, "0+")
    replica_directory_id: uuid.UUID = s.field(s.UUID, "2+")
    log_end_offset: int = s.field(s.INT64, "0+")
    last_fetch_timestamp: int = s.field(s.INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = s.field(s.INT64, "1+", default=-1, ignorable=True)


class PartitionQuorum(s.Struct):
    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "2+", nullable="2+", ignorable=True)
    leader_id: int = s.field(s.INT32, "0+")
    leader_epoch: int = s.field(s.INT32, "0+")
    high_watermark: int = s.field(s.INT64, "0+")
    current_voters: list[ReplicaState] = s.field(s.Array(ReplicaState), "0+")
    observers: list[ReplicaState] = s.field(s.Array(ReplicaState), "0+")


class TopicQuorum(s.Struct):
    topic_name: str = s.field(s.STRING, "0+")
    partitions: list[PartitionQuorum] = s.field(s.Array(PartitionQuorum), "0+")


class Listener(s.Struct):
    name: str = s.field(s.STRING, "2+")
    host: str = s.field(s.STRING, "2+")
    port: int = s.field(s.UINT16, "2+")


class Node(s.Struct):
    """A member's addresses."""

    node_id: int = s.field(s.INT32, "2+")
    listeners: list[Listener] = s.field(s.Array(Listener), "2+")


class DescribeQuorumResponse(s.Struct, versions="0-2", flexible="0+"):
    """The quorum of each partition, and the addresses of its members."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "2+", nullable="2+", ignorable=True)
    topics: list[TopicQuorum] = s.field(s.Array(TopicQuorum), "0+")
    nodes: list[Node] = s.field(s.Array(Node), "2+")


class TopicRequest(s.Struct):
    """A topic of DescribeTopicPartitions (key 75), which returns topics and their partitions in pages (KIP-966)."""

    name: str = s.field(s.STRING, "0+")


class Cursor(s.Struct):
    """The first partition of a page."""

    topic_name: str = s.field(s.STRING, "0+")
    partition_index: int = s.field(s.INT32, "0+")


class DescribeTopicPartitionsRequest(s.RequestBody["DescribeTopicPartitionsResponse"], versions="0", flexible="0+"):
    """Empty *topics* select all; *cursor* is the *next_cursor* of the previous response."""

    topics: list[TopicRequest] = s.field(s.Array(TopicRequest), "0+")
    response_partition_limit: int = s.field(s.INT32, "0+", default=2000)
    cursor: Cursor | None = s.field(Cursor, "0+", default=None, nullable="0+")


class DescribeTopicPartitionsResponsePartition(s.Struct):
    """A partition; *eligible_leader_replicas* were in sync when its last leader was lost."""

    error_code: int = s.field(s.INT16, "0+")
    partition_index: int = s.field(s.INT32, "0+")
    leader_id: int = s.field(s.INT32, "0+")
    leader_epoch: int = s.field(s.INT32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = s.field(s.Array(s.INT32), "0+")
    isr_nodes: list[int] = s.field(s.Array(s.INT32), "0+")
    eligible_leader_replicas: list[int] | None = s.field(s.Array(s.INT32), "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = s.field(s.Array(s.INT32), "0+", default=None, nullable="0+")
    offline_replicas: list[int] = s.field(s.Array(s.INT32), "0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(s.Struct):
    """A topic, or its error."""

    error_code: int = s.field(s.INT16, "0+")
    name: str | None = s.field(s.STRING, "0+", nullable="0+")
    topic_id: uuid.UUID = s.field(s.UUID, "0+", ignorable=True)
    is_internal: bool = s.field(s.BOOL, "0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = s.field(
        s.Array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = s.field(s.INT32, "0+", default=-2147483648)


class DescribeTopicPartitionsResponse(s.Struct, versions="0", flexible="0+"):
    """*next_cursor* is the start of the next page, null at the end."""

    throttle_time_ms: int = s.field(s.INT32, "0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = s.field(s.Array(DescribeTopicPartitionsResponseTopic), "0+")
    next_cursor: Cursor | None = s.field(Cursor, "0+", default=None, nullable="0+")
