"""ListOffsets (key 2): the offset of a partition's start, its end, or of a point in time."""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "1-11"
_FLEXIBLE = "6+"

#: Timestamps that ask for the start of the log or for its end instead of a point in time.
EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


@struct
class ListOffsetsPartition(Struct):
    """Asks for the first record at or after *timestamp* (ms), or for one of the special points."""

    partition_index: int = field(INT32, "0+")
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = field(INT64, "0+")


@struct
class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING, "0+")
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListOffsetsRequest(RequestBody["ListOffsetsResponse"]):
    """*replica_id* −1 = a consumer; *isolation_level* 1 puts the end before open transactions."""

    replica_id: int = field(INT32, "0+")
    isolation_level: int = field(INT8, "2+")
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic), "0+")
    timeout_ms: int = field(INT32, "10+", ignorable=True)


@struct
class ListOffsetsPartitionResponse(Struct):
    """*offset* and *timestamp* are −1 when nothing was found."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    timestamp: int = field(INT64, "1+", default=-1)
    offset: int = field(INT64, "1+", default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


@struct
class ListOffsetsTopicResponse(Struct):
    """Partitions of one topic."""

    name: str = field(STRING, "0+")
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListOffsetsResponse(Struct):
    """An offset for every partition asked for."""

    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse), "0+")
