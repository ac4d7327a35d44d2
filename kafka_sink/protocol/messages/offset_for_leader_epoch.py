"""OffsetForLeaderEpoch (key 23): where the records of a leader epoch end (KIP-101, KIP-320)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "2-4"
_FLEXIBLE = "4+"


@s.struct
class OffsetForLeaderPartition(s.Struct):
    """*current_leader_epoch* is the one the client knows, −1 when it does not say."""

    partition: int = s.field(s.INT32, "0+")
    current_leader_epoch: int = s.field(s.INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = s.field(s.INT32, "0+")


@s.struct
class OffsetForLeaderTopic(s.Struct):
    """One topic's partitions."""

    topic: str = s.field(s.STRING, "0+")
    partitions: list[OffsetForLeaderPartition] = s.field(s.array(OffsetForLeaderPartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetForLeaderEpochRequest(s.RequestBody["OffsetForLeaderEpochResponse"]):
    """*replica_id* −1 is a consumer, −2 a debugger."""

    replica_id: int = s.field(s.INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = s.field(s.array(OffsetForLeaderTopic), "0+")


@s.struct
class EpochEndOffset(s.Struct):
    """The largest epoch up to the one asked for, and the offset after its last record; −1 if there is none."""

    error_code: int = s.field(s.INT16, "0+")
    partition: int = s.field(s.INT32, "0+")
    leader_epoch: int = s.field(s.INT32, "1+", default=-1, ignorable=True)
    end_offset: int = s.field(s.INT64, "0+", default=-1)


@s.struct
class OffsetForLeaderTopicResult(s.Struct):
    """The answers for one topic's partitions."""

    topic: str = s.field(s.STRING, "0+")
    partitions: list[EpochEndOffset] = s.field(s.array(EpochEndOffset), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetForLeaderEpochResponse(s.Struct):
    """The answer for every partition."""

    throttle_time_ms: int = s.field(s.INT32, "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = s.field(s.array(OffsetForLeaderTopicResult), "0+")
