"""TxnOffsetCommit (key 28): offsets of a group that take effect when the transaction is committed.

Version 5 adds the group to the transaction by itself (transaction version 2, KIP-890); before it AddOffsetsToTxn does.
"""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-5"
_FLEXIBLE = "3+"


@s.struct
class TxnOffsetCommitRequestPartition(s.Struct):
    """The offset for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    committed_offset: int = s.field(s.INT64, "0+")
    committed_leader_epoch: int = s.field(s.INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class TxnOffsetCommitRequestTopic(s.Struct):
    """The offsets for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[TxnOffsetCommitRequestPartition] = s.field(s.array(TxnOffsetCommitRequestPartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class TxnOffsetCommitRequest(s.RequestBody["TxnOffsetCommitResponse"]):
    """Generation −1 with an empty member id: the group's coordinator does not hold the offsets in against a member."""

    transactional_id: str = s.field(s.STRING, "0+")
    group_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    generation_id: int = s.field(s.INT32, "3+", default=-1)
    member_id: str = s.field(s.STRING, "3+", default="")
    group_instance_id: str | None = s.field(s.STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = s.field(s.array(TxnOffsetCommitRequestTopic), "0+")


@s.struct
class TxnOffsetCommitResponsePartition(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class TxnOffsetCommitResponseTopic(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[TxnOffsetCommitResponsePartition] = s.field(s.array(TxnOffsetCommitResponsePartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class TxnOffsetCommitResponse(s.Struct):
    """The outcome for every partition of the request."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    topics: list[TxnOffsetCommitResponseTopic] = s.field(s.array(TxnOffsetCommitResponseTopic), "0+")
