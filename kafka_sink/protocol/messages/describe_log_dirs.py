"""DescribeLogDirs (key 35): the directories of a broker with the sizes of its partitions (KIP-113, KIP-827)."""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    BOOL,
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

_VERSIONS = "1-5"
_FLEXIBLE = "2+"


@struct
class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeLogDirsRequest(RequestBody["DescribeLogDirsResponse"]):
    """Null *topics* asks for all."""

    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), "0+", nullable="0+")


@struct
class DescribeLogDirsPartition(Struct):
    """A partition; *partition_size* in bytes, *offset_lag* behind its leader."""

    partition_index: int = field(INT32, "0+")
    partition_size: int = field(INT64, "0+")
    offset_lag: int = field(INT64, "0+")
    is_future_key: bool = field(BOOL, "0+")


@struct
class DescribeLogDirsTopic(Struct):
    """The partitions of one topic that lie there."""

    name: str = field(STRING, "0+")
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition), "0+")


@struct
class DescribeLogDirsResult(Struct):
    """A directory; *total_bytes* and *usable_bytes* are those of its volume, −1 if not known."""

    error_code: int = field(INT16, "0+")
    log_dir: str = field(STRING, "0+")
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic), "0+")
    total_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, "5+", ignorable=True)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeLogDirsResponse(Struct):
    """The directories of the broker that was asked."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult), "0+")
