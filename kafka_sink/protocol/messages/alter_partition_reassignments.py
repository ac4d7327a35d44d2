"""AlterPartitionReassignments (key 45): say which brokers hold a partition, the preferred leader first (KIP-455)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-1"
_FLEXIBLE = "0+"


@s.struct
class ReassignablePartition(s.Struct):
    """A partition and its *replicas*; null gives up a reassignment that is under way."""

    partition_index: int = s.field(s.INT32, "0+")
    replicas: list[int] | None = s.field(s.array(s.INT32), "0+", default=None, nullable="0+")


@s.struct
class ReassignableTopic(s.Struct):
    """Partitions of one topic."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[ReassignablePartition] = s.field(s.array(ReassignablePartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterPartitionReassignmentsRequest(s.RequestBody["AlterPartitionReassignmentsResponse"]):
    """*timeout_ms* is how long the broker may wait for them to begin."""

    timeout_ms: int = s.field(s.INT32, "0+", default=60000)
    allow_replication_factor_change: bool = s.field(s.BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = s.field(s.array(ReassignableTopic), "0+")


@s.struct
class ReassignablePartitionResponse(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class ReassignableTopicResponse(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[ReassignablePartitionResponse] = s.field(s.array(ReassignablePartitionResponse), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterPartitionReassignmentsResponse(s.Struct):
    """The outcome for every partition; what is accepted may still be under way."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    allow_replication_factor_change: bool = s.field(s.BOOL, "1+", default=True, ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = s.field(s.array(ReassignableTopicResponse), "0+")
