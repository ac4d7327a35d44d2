"""AlterReplicaLogDirs (key 34): move replicas to another directory of a broker (KIP-113)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "1-2"
_FLEXIBLE = "2+"


@struct
class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


@struct
class AlterReplicaLogDir(Struct):
    """A directory, by its absolute path."""

    path: str = field(STRING, "0+")
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterReplicaLogDirsRequest(RequestBody["AlterReplicaLogDirsResponse"]):
    """The partitions that each directory is to have."""

    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir), "0+")


@struct
class AlterReplicaLogDirPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


@struct
class AlterReplicaLogDirTopicResult(Struct):
    """The outcomes for one topic's partitions."""

    topic_name: str = field(STRING, "0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = field(array(AlterReplicaLogDirPartitionResult), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterReplicaLogDirsResponse(Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = field(INT32, "0+")
    results: list[AlterReplicaLogDirTopicResult] = field(array(AlterReplicaLogDirTopicResult), "0+")
