"""ListPartitionReassignments (key 46): the reassignments that are under way (KIP-455)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0"
_FLEXIBLE = "0+"


@s.struct
class ListPartitionReassignmentsTopics(s.Struct):
    """Partitions of one topic."""

    name: str = s.field(s.STRING, "0+")
    partition_indexes: list[int] = s.field(s.array(s.INT32), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListPartitionReassignmentsRequest(s.RequestBody["ListPartitionReassignmentsResponse"]):
    """Null *topics* asks for all."""

    timeout_ms: int = s.field(s.INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = s.field(
        s.array(ListPartitionReassignmentsTopics), "0+", default=None, nullable="0+"
    )


@s.struct
class OngoingPartitionReassignment(s.Struct):
    """The present replicas, and those that are added and removed."""

    partition_index: int = s.field(s.INT32, "0+")
    replicas: list[int] = s.field(s.array(s.INT32), "0+")
    adding_replicas: list[int] = s.field(s.array(s.INT32), "0+")
    removing_replicas: list[int] = s.field(s.array(s.INT32), "0+")


@s.struct
class OngoingTopicReassignment(s.Struct):
    """Partitions of one topic."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = s.field(s.array(OngoingPartitionReassignment), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListPartitionReassignmentsResponse(s.Struct):
    """The partitions with a reassignment under way; those without one are left out."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = s.field(s.array(OngoingTopicReassignment), "0+")
