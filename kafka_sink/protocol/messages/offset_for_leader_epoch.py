"""OffsetForLeaderEpoch (key 23): where the records of a leader epoch end (KIP-101, KIP-320)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, INT64, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "2-4"
_FLEXIBLE = "4+"


@struct
class OffsetForLeaderPartition(Struct):
    """*current_leader_epoch* is the one the client knows, −1 when it does not say."""

    partition: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = field(INT32, "0+")


@struct
class OffsetForLeaderTopic(Struct):
    """One topic's partitions."""

    topic: str = field(STRING, "0+")
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetForLeaderEpochRequest(RequestBody["OffsetForLeaderEpochResponse"]):
    """*replica_id* −1 is a consumer, −2 a debugger."""

    replica_id: int = field(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic), "0+")


@struct
class EpochEndOffset(Struct):
    """The largest epoch up to the one asked for, and the offset after its last record; −1 if there is none."""

    error_code: int = field(INT16, "0+")
    partition: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    end_offset: int = field(INT64, "0+", default=-1)


@struct
class OffsetForLeaderTopicResult(Struct):
    """The answers for one topic's partitions."""

    topic: str = field(STRING, "0+")
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetForLeaderEpochResponse(Struct):
    """The answer for every partition."""

    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult), "0+")
