"""DescribeQuorum (key 55): the quorum of controllers (KIP-595, KIP-836, KIP-853)."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s

_VERSIONS = "0-2"
_FLEXIBLE = "0+"


@s.struct
class PartitionData(s.Struct):
    """One partition."""

    partition_index: int = s.field(s.INT32, "0+")


@s.struct
class TopicData(s.Struct):
    """Partitions of one topic."""

    topic_name: str = s.field(s.STRING, "0+")
    partitions: list[PartitionData] = s.field(s.array(PartitionData), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeQuorumRequest(s.RequestBody["DescribeQuorumResponse"]):
    """The only topic that has a quorum is that of the cluster's metadata."""

    topics: list[TopicData] = s.field(s.array(TopicData), "0+")


@s.struct
class ReplicaState(s.Struct):
    """A member; offsets and times (ms since 1970) are −1 if not known."""

    replica_id: int = s.field(s.INT32, "0+")
    replica_directory_id: uuid.UUID = s.field(s.UUID, "2+")
    log_end_offset: int = s.field(s.INT64, "0+")
    last_fetch_timestamp: int = s.field(s.INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = s.field(s.INT64, "1+", default=-1, ignorable=True)


@s.struct
class PartitionQuorum(s.Struct):
    """The quorum of one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "2+", nullable="2+", ignorable=True)
    leader_id: int = s.field(s.INT32, "0+")
    leader_epoch: int = s.field(s.INT32, "0+")
    high_watermark: int = s.field(s.INT64, "0+")
    current_voters: list[ReplicaState] = s.field(s.array(ReplicaState), "0+")
    observers: list[ReplicaState] = s.field(s.array(ReplicaState), "0+")


@s.struct
class TopicQuorum(s.Struct):
    """The partitions of one topic."""

    topic_name: str = s.field(s.STRING, "0+")
    partitions: list[PartitionQuorum] = s.field(s.array(PartitionQuorum), "0+")


@s.struct
class Listener(s.Struct):
    """One address."""

    name: str = s.field(s.STRING, "2+")
    host: str = s.field(s.STRING, "2+")
    port: int = s.field(s.UINT16, "2+")


@s.struct
class Node(s.Struct):
    """A member's addresses."""

    node_id: int = s.field(s.INT32, "2+")
    listeners: list[Listener] = s.field(s.array(Listener), "2+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeQuorumResponse(s.Struct):
    """The quorum of each partition, and the addresses of its members."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "2+", nullable="2+", ignorable=True)
    topics: list[TopicQuorum] = s.field(s.array(TopicQuorum), "0+")
    nodes: list[Node] = s.field(s.array(Node), "2+")
