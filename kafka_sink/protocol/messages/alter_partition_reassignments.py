"""AlterPartitionReassignments (key 45): say which brokers hold a partition, the preferred leader first (KIP-455)."""

from __future__ import annotations

from kafka_sink.protocol.schema import BOOL, INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-1"
_FLEXIBLE = "0+"


@struct
class ReassignablePartition(Struct):
    """A partition and its *replicas*; null gives up a reassignment that is under way."""

    partition_index: int = field(INT32, "0+")
    replicas: list[int] | None = field(array(INT32), "0+", default=None, nullable="0+")


@struct
class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING, "0+")
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterPartitionReassignmentsRequest(RequestBody["AlterPartitionReassignmentsResponse"]):
    """*timeout_ms* is how long the broker may wait for them to begin."""

    timeout_ms: int = field(INT32, "0+", default=60000)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic), "0+")


@struct
class ReassignablePartitionResponse(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


@struct
class ReassignableTopicResponse(Struct):
    """The outcomes for one topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterPartitionReassignmentsResponse(Struct):
    """The outcome for every partition; what is accepted may still be under way."""

    throttle_time_ms: int = field(INT32, "0+")
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True, ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse), "0+")
