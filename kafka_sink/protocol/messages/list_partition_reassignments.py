"""ListPartitionReassignments (key 46): the reassignments that are under way (KIP-455)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0"
_FLEXIBLE = "0+"


@struct
class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field(array(INT32), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListPartitionReassignmentsRequest(RequestBody["ListPartitionReassignmentsResponse"]):
    """Null *topics* asks for all."""

    timeout_ms: int = field(INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), "0+", default=None, nullable="0+"
    )


@struct
class OngoingPartitionReassignment(Struct):
    """The present replicas, and those that are added and removed."""

    partition_index: int = field(INT32, "0+")
    replicas: list[int] = field(array(INT32), "0+")
    adding_replicas: list[int] = field(array(INT32), "0+")
    removing_replicas: list[int] = field(array(INT32), "0+")


@struct
class OngoingTopicReassignment(Struct):
    """Partitions of one topic."""

    name: str = field(STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = field(array(OngoingPartitionReassignment), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListPartitionReassignmentsResponse(Struct):
    """The partitions with a reassignment under way; those without one are left out."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment), "0+")
