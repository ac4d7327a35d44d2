"""OffsetCommit (key 8): how far a group has read. Versions 10 and up name topics by id."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s

_VERSIONS = "2-10"
_FLEXIBLE = "8+"


@s.struct
class OffsetCommitRequestPartition(s.Struct):
    """The next offset to read in one partition, and what the group wants to remember with it."""

    partition_index: int = s.field(s.INT32, "0+")
    committed_offset: int = s.field(s.INT64, "0+")
    committed_leader_epoch: int = s.field(s.INT32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class OffsetCommitRequestTopic(s.Struct):
    """The offsets of one topic."""

    name: str = s.field(s.STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = s.field(s.array(OffsetCommitRequestPartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetCommitRequest(s.RequestBody["OffsetCommitResponse"]):
    """Generation −1 with an empty member id commits without being a member."""

    group_id: str = s.field(s.STRING, "0+")
    generation_id_or_member_epoch: int = s.field(s.INT32, "1+", default=-1, ignorable=True)
    member_id: str = s.field(s.STRING, "1+", ignorable=True)
    group_instance_id: str | None = s.field(s.STRING, "7+", default=None, nullable="7+")
    retention_time_ms: int = s.field(s.INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = s.field(s.array(OffsetCommitRequestTopic), "0+")


@s.struct
class OffsetCommitResponsePartition(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class OffsetCommitResponseTopic(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = s.field(s.array(OffsetCommitResponsePartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetCommitResponse(s.Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = s.field(s.INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = s.field(s.array(OffsetCommitResponseTopic), "0+")
