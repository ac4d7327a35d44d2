"""ListOffsets (key 2): the offset of a partition's start, its end, or of a point in time."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "1-11"
_FLEXIBLE = "6+"

#: Timestamps that ask for the start of the log or for its end instead of a point in time.
EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


@s.struct
class ListOffsetsPartition(s.Struct):
    """Asks for the first record at or after *timestamp* (ms), or for one of the special points."""

    partition_index: int = s.field(s.INT32, "0+")
    current_leader_epoch: int = s.field(s.INT32, "4+", default=-1, ignorable=True)
    timestamp: int = s.field(s.INT64, "0+")


@s.struct
class ListOffsetsTopic(s.Struct):
    """Partitions of one topic."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[ListOffsetsPartition] = s.field(s.array(ListOffsetsPartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListOffsetsRequest(s.RequestBody["ListOffsetsResponse"]):
    """*replica_id* −1 = a consumer; *isolation_level* 1 puts the end before open transactions."""

    replica_id: int = s.field(s.INT32, "0+")
    isolation_level: int = s.field(s.INT8, "2+")
    topics: list[ListOffsetsTopic] = s.field(s.array(ListOffsetsTopic), "0+")
    timeout_ms: int = s.field(s.INT32, "10+", ignorable=True)


@s.struct
class ListOffsetsPartitionResponse(s.Struct):
    """*offset* and *timestamp* are −1 when nothing was found."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    timestamp: int = s.field(s.INT64, "1+", default=-1)
    offset: int = s.field(s.INT64, "1+", default=-1)
    leader_epoch: int = s.field(s.INT32, "4+", default=-1)


@s.struct
class ListOffsetsTopicResponse(s.Struct):
    """Partitions of one topic."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[ListOffsetsPartitionResponse] = s.field(s.array(ListOffsetsPartitionResponse), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListOffsetsResponse(s.Struct):
    """An offset for every partition asked for."""

    throttle_time_ms: int = s.field(s.INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = s.field(s.array(ListOffsetsTopicResponse), "0+")
