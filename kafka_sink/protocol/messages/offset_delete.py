"""OffsetDelete (key 47): forget offsets of topics that a group does not read any more (KIP-496)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0"
_FLEXIBLE = "none"


@s.struct
class OffsetDeleteRequestPartition(s.Struct):
    """One partition."""

    partition_index: int = s.field(s.INT32, "0+")


@s.struct
class OffsetDeleteRequestTopic(s.Struct):
    """One topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = s.field(s.array(OffsetDeleteRequestPartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetDeleteRequest(s.RequestBody["OffsetDeleteResponse"]):
    """What to forget of one group."""

    group_id: str = s.field(s.STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = s.field(s.array(OffsetDeleteRequestTopic), "0+")


@s.struct
class OffsetDeleteResponsePartition(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class OffsetDeleteResponseTopic(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[OffsetDeleteResponsePartition] = s.field(s.array(OffsetDeleteResponsePartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetDeleteResponse(s.Struct):
    """The outcome for the group, and for every partition."""

    error_code: int = s.field(s.INT16, "0+")
    throttle_time_ms: int = s.field(s.INT32, "0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = s.field(s.array(OffsetDeleteResponseTopic), "0+")
