"""OffsetCommit (key 8): how far a group has read. Versions 10 and up name topics by id."""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "2-10"
_FLEXIBLE = "8+"


@struct
class OffsetCommitRequestPartition(Struct):
    """The next offset to read in one partition, and what the group wants to remember with it."""

    partition_index: int = field(INT32, "0+")
    committed_offset: int = field(INT64, "0+")
    committed_leader_epoch: int = field(INT32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, "0+", nullable="0+")


@struct
class OffsetCommitRequestTopic(Struct):
    """The offsets of one topic."""

    name: str = field(STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetCommitRequest(RequestBody["OffsetCommitResponse"]):
    """Generation −1 with an empty member id commits without being a member."""

    group_id: str = field(STRING, "0+")
    generation_id_or_member_epoch: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "1+", ignorable=True)
    group_instance_id: str | None = field(STRING, "7+", default=None, nullable="7+")
    retention_time_ms: int = field(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic), "0+")


@struct
class OffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


@struct
class OffsetCommitResponseTopic(Struct):
    """The outcomes for one topic's partitions."""

    name: str = field(STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetCommitResponse(Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = field(INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic), "0+")
