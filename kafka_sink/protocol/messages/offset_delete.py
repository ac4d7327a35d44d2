"""OffsetDelete (key 47): forget offsets of topics that a group does not read any more (KIP-496)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0"
_FLEXIBLE = "none"


@struct
class OffsetDeleteRequestPartition(Struct):
    """One partition."""

    partition_index: int = field(INT32, "0+")


@struct
class OffsetDeleteRequestTopic(Struct):
    """One topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetDeleteRequest(RequestBody["OffsetDeleteResponse"]):
    """What to forget of one group."""

    group_id: str = field(STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic), "0+")


@struct
class OffsetDeleteResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


@struct
class OffsetDeleteResponseTopic(Struct):
    """The outcomes for one topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class OffsetDeleteResponse(Struct):
    """The outcome for the group, and for every partition."""

    error_code: int = field(INT16, "0+")
    throttle_time_ms: int = field(INT32, "0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic), "0+")
