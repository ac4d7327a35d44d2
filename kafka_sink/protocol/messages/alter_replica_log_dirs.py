"""AlterReplicaLogDirs (key 34): move replicas to another directory of a broker (KIP-113)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "1-2"
_FLEXIBLE = "2+"


@s.struct
class AlterReplicaLogDirTopic(s.Struct):
    """Partitions of one topic."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.array(s.INT32), "0+")


@s.struct
class AlterReplicaLogDir(s.Struct):
    """A directory, by its absolute path."""

    path: str = s.field(s.STRING, "0+")
    topics: list[AlterReplicaLogDirTopic] = s.field(s.array(AlterReplicaLogDirTopic), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterReplicaLogDirsRequest(s.RequestBody["AlterReplicaLogDirsResponse"]):
    """The partitions that each directory is to have."""

    dirs: list[AlterReplicaLogDir] = s.field(s.array(AlterReplicaLogDir), "0+")


@s.struct
class AlterReplicaLogDirPartitionResult(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class AlterReplicaLogDirTopicResult(s.Struct):
    """The outcomes for one topic's partitions."""

    topic_name: str = s.field(s.STRING, "0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = s.field(s.array(AlterReplicaLogDirPartitionResult), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterReplicaLogDirsResponse(s.Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    results: list[AlterReplicaLogDirTopicResult] = s.field(s.array(AlterReplicaLogDirTopicResult), "0+")
