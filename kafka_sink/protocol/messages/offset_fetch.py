"""OffsetFetch (key 9): how far groups have read. Version 8 asks for several groups, 10 and up name topics by id."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s

_VERSIONS = "1-10"
_FLEXIBLE = "6+"


@s.struct
class OffsetFetchRequestTopic(s.Struct):
    """Partitions of one topic, up to version 7."""

    name: str = s.field(s.STRING, "0-7")
    partition_indexes: list[int] = s.field(s.array(s.INT32), "0-7")


@s.struct
class OffsetFetchRequestTopics(s.Struct):
    """Partitions of one topic, from version 8 on."""

    name: str = s.field(s.STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partition_indexes: list[int] = s.field(s.array(s.INT32), "8+")


@s.struct
class OffsetFetchRequestGroup(s.Struct):
    """A group and what is asked of it; null *topics* ask for all."""

    group_id: str = s.field(s.STRING, "8+")
    member_id: str | None = s.field(s.STRING, "9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = s.field(s.INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = s.field(s.array(OffsetFetchRequestTopics), "8+", nullable="8+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetFetchRequest(s.RequestBody["OffsetFetchResponse"]):
    """*require_stable* refuses partitions with offsets of an open transaction (KIP-447)."""

    group_id: str = s.field(s.STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = s.field(s.array(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = s.field(s.array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = s.field(s.BOOL, "7+", default=False)


@s.struct
class OffsetFetchResponsePartition(s.Struct):
    """The next offset to read in one partition, −1 when none was committed."""

    partition_index: int = s.field(s.INT32, "0-7")
    committed_offset: int = s.field(s.INT64, "0-7")
    committed_leader_epoch: int = s.field(s.INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = s.field(s.STRING, "0-7", nullable="0-7")
    error_code: int = s.field(s.INT16, "0-7")


@s.struct
class OffsetFetchResponseTopic(s.Struct):
    """The offsets of one topic, up to version 7."""

    name: str = s.field(s.STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = s.field(s.array(OffsetFetchResponsePartition), "0-7")


@s.struct
class OffsetFetchResponsePartitions(s.Struct):
    """As :class:`OffsetFetchResponsePartition`, from version 8 on."""

    partition_index: int = s.field(s.INT32, "8+")
    committed_offset: int = s.field(s.INT64, "8+")
    committed_leader_epoch: int = s.field(s.INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = s.field(s.STRING, "8+", nullable="8+")
    error_code: int = s.field(s.INT16, "8+")


@s.struct
class OffsetFetchResponseTopics(s.Struct):
    """The offsets of one topic, from version 8 on."""

    name: str = s.field(s.STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = s.field(s.array(OffsetFetchResponsePartitions), "8+")


@s.struct
class OffsetFetchResponseGroup(s.Struct):
    """The offsets of one group."""

    group_id: str = s.field(s.STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = s.field(s.array(OffsetFetchResponseTopics), "8+")
    error_code: int = s.field(s.INT16, "8+", default=0)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetFetchResponse(s.Struct):
    """One group at the top level up to version 7, *groups* from version 8 on."""

    throttle_time_ms: int = s.field(s.INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = s.field(s.array(OffsetFetchResponseTopic), "0-7")
    error_code: int = s.field(s.INT16, "2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = s.field(s.array(OffsetFetchResponseGroup), "8+")
