"""OffsetFetch (key 9): how far groups have read. Version 8 asks for several groups, 10 and up name topics by id."""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import (
    BOOL,
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

_VERSIONS = "1-10"
_FLEXIBLE = "6+"


@struct
class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, up to version 7."""

    name: str = field(STRING, "0-7")
    partition_indexes: list[int] = field(array(INT32), "0-7")


@struct
class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic, from version 8 on."""

    name: str = field(STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "10+", ignorable=True)
    partition_indexes: list[int] = field(array(INT32), "8+")


@struct
class OffsetFetchRequestGroup(Struct):
    """A group and what is asked of it; null *topics* ask for all."""

    group_id: str = field(STRING, "8+")
    member_id: str | None = field(STRING, "9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(array(OffsetFetchRequestTopics), "8+", nullable="8+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetFetchRequest(RequestBody["OffsetFetchResponse"]):
    """*require_stable* refuses partitions with offsets of an open transaction (KIP-447)."""

    group_id: str = field(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = field(array(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = field(BOOL, "7+", default=False)


@struct
class OffsetFetchResponsePartition(Struct):
    """The next offset to read in one partition, −1 when none was committed."""

    partition_index: int = field(INT32, "0-7")
    committed_offset: int = field(INT64, "0-7")
    committed_leader_epoch: int = field(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "0-7", nullable="0-7")
    error_code: int = field(INT16, "0-7")


@struct
class OffsetFetchResponseTopic(Struct):
    """The offsets of one topic, up to version 7."""

    name: str = field(STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition), "0-7")


@struct
class OffsetFetchResponsePartitions(Struct):
    """As :class:`OffsetFetchResponsePartition`, from version 8 on."""

    partition_index: int = field(INT32, "8+")
    committed_offset: int = field(INT64, "8+")
    committed_leader_epoch: int = field(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "8+", nullable="8+")
    error_code: int = field(INT16, "8+")


@struct
class OffsetFetchResponseTopics(Struct):
    """The offsets of one topic, from version 8 on."""

    name: str = field(STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions), "8+")


@struct
class OffsetFetchResponseGroup(Struct):
    """The offsets of one group."""

    group_id: str = field(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics), "8+")
    error_code: int = field(INT16, "8+", default=0)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetFetchResponse(Struct):
    """One group at the top level up to version 7, *groups* from version 8 on."""

    throttle_time_ms: int = field(INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = field(INT16, "2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), "8+")
