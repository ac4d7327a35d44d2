"""Fetch (key 1): record batches from partitions. From version 13 topics travel as ids (KIP-516).

Versions 7 and up may run in sessions that name only what changed (KIP-227); session epoch −1 asks for none.
"""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Records,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "4-18"
_FLEXIBLE = "12+"


@struct
class ReplicaState(Struct):
    """Which broker fetches; −1 = a consumer."""

    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


@struct
class FetchPartition(Struct):
    """Where to start reading a partition and how much of it to send at most."""

    partition: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64, "0+")
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32, "0+")
    replica_directory_id: uuid.UUID = field(UUID, "17+", tag=0, ignorable=True)
    high_watermark: int = field(INT64, "18+", tag=1, default=2**63 - 1, ignorable=True)


@struct
class FetchTopic(Struct):
    """Partitions of one topic, by name or (version 13 and up) by id."""

    topic: str = field(STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "13+", ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition), "0+")


@struct
class ForgottenTopic(Struct):
    """Partitions that leave the fetch session."""

    topic: str = field(STRING, "7-12", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "13+", ignorable=True)
    partitions: list[int] = field(array(INT32), "7+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class FetchRequest(RequestBody["FetchResponse"]):
    """Waits up to *max_wait_ms* for *min_bytes*; *isolation_level* 0 reads everything, 1 only what is committed."""

    cluster_id: str | None = field(STRING, "12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: int = field(INT32, "0-14", default=-1)
    replica_state: ReplicaState = field(ReplicaState, "15+", tag=1)
    max_wait_ms: int = field(INT32, "0+")
    min_bytes: int = field(INT32, "0+")
    max_bytes: int = field(INT32, "3+", default=2**31 - 1, ignorable=True)
    isolation_level: int = field(INT8, "4+", ignorable=True)
    session_id: int = field(INT32, "7+", ignorable=True)
    session_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+")
    rack_id: str = field(STRING, "11+", ignorable=True)


@struct
class EpochEndOffset(Struct):
    """Where the fetcher's log parts from the leader's; −1 = it does not."""

    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


@struct
class LeaderIdAndEpoch(Struct):
    """Who leads now; −1 = not known."""

    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


@struct
class SnapshotId(Struct):
    """The snapshot a lagging replica has to load; −1 = none."""

    end_offset: int = field(INT64, "0+", default=-1)
    epoch: int = field(INT32, "0+", default=-1)


@struct
class AbortedTransaction(Struct):
    """From *first_offset* on, records of *producer_id* are not to be shown, up to its abort marker."""

    producer_id: int = field(INT64, "4+")
    first_offset: int = field(INT64, "4+")


@struct
class PartitionData(Struct):
    """The batches of one partition; the last one may be cut off in the middle."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    high_watermark: int = field(INT64, "0+")
    last_stable_offset: int = field(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = field(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Records = field(RECORDS, "0+", nullable="0+")


@struct
class FetchableTopicResponse(Struct):
    """Partitions of one topic, by name or (version 13 and up) by id."""

    topic: str = field(STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "13+", ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData), "0+")


@struct
class NodeEndpoint(Struct):
    """Address of a broker named as current leader."""

    node_id: int = field(INT32, "16+")
    host: str = field(STRING, "16+")
    port: int = field(INT32, "16+")
    rack: str | None = field(STRING, "16+", nullable="16+", default=None)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class FetchResponse(Struct):
    """What was read; *session_id* 0 = no session was made."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "7+", ignorable=True)
    session_id: int = field(INT32, "7+")
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "16+", tag=0)
