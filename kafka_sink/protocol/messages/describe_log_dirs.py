"""DescribeLogDirs (key 35): the directories of a broker with the sizes of its partitions (KIP-113, KIP-827)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "1-5"
_FLEXIBLE = "2+"


@s.struct
class DescribableLogDirTopic(s.Struct):
    """Partitions of one topic."""

    topic: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.array(s.INT32), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeLogDirsRequest(s.RequestBody["DescribeLogDirsResponse"]):
    """Null *topics* asks for all."""

    topics: list[DescribableLogDirTopic] | None = s.field(s.array(DescribableLogDirTopic), "0+", nullable="0+")


@s.struct
class DescribeLogDirsPartition(s.Struct):
    """A partition; *partition_size* in bytes, *offset_lag* behind its leader."""

    partition_index: int = s.field(s.INT32, "0+")
    partition_size: int = s.field(s.INT64, "0+")
    offset_lag: int = s.field(s.INT64, "0+")
    is_future_key: bool = s.field(s.BOOL, "0+")


@s.struct
class DescribeLogDirsTopic(s.Struct):
    """The partitions of one topic that lie there."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[DescribeLogDirsPartition] = s.field(s.array(DescribeLogDirsPartition), "0+")


@s.struct
class DescribeLogDirsResult(s.Struct):
    """A directory; *total_bytes* and *usable_bytes* are those of its volume, −1 if not known."""

    error_code: int = s.field(s.INT16, "0+")
    log_dir: str = s.field(s.STRING, "0+")
    topics: list[DescribeLogDirsTopic] = s.field(s.array(DescribeLogDirsTopic), "0+")
    total_bytes: int = s.field(s.INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = s.field(s.INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = s.field(s.BOOL, "5+", ignorable=True)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeLogDirsResponse(s.Struct):
    """The directories of the broker that was asked."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = s.field(s.array(DescribeLogDirsResult), "0+")
