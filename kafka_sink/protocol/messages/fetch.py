"""Fetch (key 1): record batches from partitions. From version 13 on, topics are identified by id (KIP-516).

From version 7 on, a fetch session transfers only changes of the partitions (KIP-227); session epoch −1 = no session.
"""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.metadata import LeaderIdAndEpoch, NodeEndpoint

_VERSIONS = "4-18"
_FLEXIBLE = "12+"


class ReplicaState(s.Struct):
    """The broker that fetches; −1 = a consumer."""

    replica_id: int = s.field(s.INT32, "15+", default=-1)
    replica_epoch: int = s.field(s.INT64, "15+", default=-1)


class FetchPartition(s.Struct):
    """The offset at which to start reading a partition, and the maximum number of bytes to return."""

    partition: int = s.field(s.INT32, "0+")
    current_leader_epoch: int = s.field(s.INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = s.field(s.INT64, "0+")
    last_fetched_epoch: int = s.field(s.INT32, "12+", default=-1)
    log_start_offset: int = s.field(s.INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = s.field(s.INT32, "0+")
    replica_directory_id: uuid.UUID = s.field(s.UUID, "17+", tag=0, ignorable=True)
    high_watermark: int = s.field(s.INT64, "18+", tag=1, default=2**63 - 1, ignorable=True)


class FetchTopic(s.Struct):
    """Partitions of one topic, by name or (version 13 and up) by id."""

    topic: str = s.field(s.STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "13+", ignorable=True)
    partitions: list[FetchPartition] = s.field(s.Array(FetchPartition), "0+")


class ForgottenTopic(s.Struct):
    """Partitions that leave the fetch session."""

    topic: str = s.field(s.STRING, "7-12", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "13+", ignorable=True)
    partitions: list[int] = s.field(s.Array(s.INT32), "7+")


class FetchRequest(s.RequestBody["FetchResponse"], versions=_VERSIONS, flexible=_FLEXIBLE):
    """Waits up to *max_wait_ms* for *min_bytes*; *isolation_level* 0 = read uncommitted, 1 = read committed."""

    cluster_id: str | None = s.field(s.STRING, "12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = s.field(s.INT32, "0-14", default=-1)
    replica_state: ReplicaState = s.field(ReplicaState, "15+", tag=1)
    max_wait_ms: int = s.field(s.INT32, "0+")
    min_bytes: int = s.field(s.INT32, "0+")
    max_bytes: int = s.field(s.INT32, "3+", default=2**31 - 1, ignorable=True)
    isolation_level: int = s.field(s.INT8, "4+", ignorable=True)
    session_id: int = s.field(s.INT32, "7+", ignorable=True)
    session_epoch: int = s.field(s.INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = s.field(s.Array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = s.field(s.Array(ForgottenTopic), "7+")
    rack_id: str = s.field(s.STRING, "11+", ignorable=True)


class EpochEndOffset(s.Struct):
    """The epoch and offset at which the fetcher's log diverges from the leader's; −1 = it does not."""

    epoch: int = s.field(s.INT32, "12+", default=-1)
    end_offset: int = s.field(s.INT64, "12+", default=-1)


class SnapshotId(s.Struct):
    """The snapshot that a lagging replica must fetch; −1 = none."""

    end_offset: int = s.field(s.INT64, "0+", default=-1)
    epoch: int = s.field(s.INT32, "0+", default=-1)


class AbortedTransaction(s.Struct):
    """A consumer skips the records of *producer_id* from *first_offset* up to its abort marker."""

    producer_id: int = s.field(s.INT64, "4+")
    first_offset: int = s.field(s.INT64, "4+")


class PartitionData(s.Struct):
    """The batches of one partition; the last one may be truncated."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    high_watermark: int = s.field(s.INT64, "0+")
    last_stable_offset: int = s.field(s.INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = s.field(s.INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = s.field(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = s.field(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = s.field(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = s.field(
        s.Array(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = s.field(s.INT32, "11+", default=-1)
    records: s.Records = s.field(s.RECORDS, "0+", nullable="0+")


class FetchableTopicResponse(s.Struct):
    """Partitions of one topic, by name or (version 13 and up) by id."""

    topic: str = s.field(s.STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "13+", ignorable=True)
    partitions: list[PartitionData] = s.field(s.Array(PartitionData), "0+")


class FetchResponse(s.Struct, versions=_VERSIONS, flexible=_FLEXIBLE):
    """The records that were read; *session_id* 0 = no session was created."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "7+", ignorable=True)
    session_id: int = s.field(s.INT32, "7+")
    responses: list[FetchableTopicResponse] = s.field(s.Array(FetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = s.field(s.Array(NodeEndpoint), "16+", tag=0)
