"""TxnOffsetCommit (key 28): offsets of a group that take effect when the transaction is committed.

Version 5 adds the group to the transaction by itself (transaction version 2, KIP-890); before it AddOffsetsToTxn does.
"""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, INT64, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-5"
_FLEXIBLE = "3+"


@struct
class TxnOffsetCommitRequestPartition(Struct):
    """The offset for one partition."""

    partition_index: int = field(INT32, "0+")
    committed_offset: int = field(INT64, "0+")
    committed_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, "0+", nullable="0+")


@struct
class TxnOffsetCommitRequestTopic(Struct):
    """The offsets for one topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class TxnOffsetCommitRequest(RequestBody["TxnOffsetCommitResponse"]):
    """Generation −1 with an empty member id: the group's coordinator does not hold the offsets in against a member."""

    transactional_id: str = field(STRING, "0+")
    group_id: str = field(STRING, "0+")
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    generation_id: int = field(INT32, "3+", default=-1)
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic), "0+")


@struct
class TxnOffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


@struct
class TxnOffsetCommitResponseTopic(Struct):
    """The outcomes for one topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class TxnOffsetCommitResponse(Struct):
    """The outcome for every partition of the request."""

    throttle_time_ms: int = field(INT32, "0+")
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic), "0+")
