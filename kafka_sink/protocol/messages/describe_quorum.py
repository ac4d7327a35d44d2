"""DescribeQuorum (key 55): the quorum of controllers (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "0-2"
_FLEXIBLE = "0+"


@struct
class PartitionData(Struct):
    """One partition."""

    partition_index: int = field(INT32, "0+")


@struct
class TopicData(Struct):
    """Partitions of one topic."""

    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionData] = field(array(PartitionData), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeQuorumRequest(RequestBody["DescribeQuorumResponse"]):
    """The only topic that has a quorum is that of the cluster's metadata."""

    topics: list[TopicData] = field(array(TopicData), "0+")


@struct
class ReplicaState(Struct):
    """A member; offsets and times (ms since 1970) are −1 if not known."""

    replica_id: int = field(INT32, "0+")
    replica_directory_id: uuid.UUID = field(UUID, "2+")
    log_end_offset: int = field(INT64, "0+")
    last_fetch_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)


@struct
class PartitionQuorum(Struct):
    """The quorum of one partition."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "2+", nullable="2+", ignorable=True)
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    high_watermark: int = field(INT64, "0+")
    current_voters: list[ReplicaState] = field(array(ReplicaState), "0+")
    observers: list[ReplicaState] = field(array(ReplicaState), "0+")


@struct
class TopicQuorum(Struct):
    """The partitions of one topic."""

    topic_name: str = field(STRING, "0+")
    partitions: list[PartitionQuorum] = field(array(PartitionQuorum), "0+")


@struct
class Listener(Struct):
    """One address."""

    name: str = field(STRING, "2+")
    host: str = field(STRING, "2+")
    port: int = field(UINT16, "2+")


@struct
class Node(Struct):
    """A member's addresses."""

    node_id: int = field(INT32, "2+")
    listeners: list[Listener] = field(array(Listener), "2+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeQuorumResponse(Struct):
    """The quorum of each partition, and the addresses of its members."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "2+", nullable="2+", ignorable=True)
    topics: list[TopicQuorum] = field(array(TopicQuorum), "0+")
    nodes: list[Node] = field(array(Node), "2+")
