"""CreatePartitions (key 37): more partitions for topics that exist (KIP-195)."""

from __future__ import annotations

from kafka_sink.protocol.schema import BOOL, INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-3"
_FLEXIBLE = "2+"


@struct
class CreatePartitionsAssignment(Struct):
    """Where the replicas of one new partition are to live."""

    broker_ids: list[int] = field(array(INT32), "0+")


@struct
class CreatePartitionsTopic(Struct):
    """A topic and the *count* of partitions it is to have; null *assignments* let the broker choose."""

    name: str = field(STRING, "0+")
    count: int = field(INT32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = field(array(CreatePartitionsAssignment), "0+", nullable="0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreatePartitionsRequest(RequestBody["CreatePartitionsResponse"]):
    """*timeout_ms* is how long the broker may wait for them; *validate_only* creates nothing."""

    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic), "0+")
    timeout_ms: int = field(INT32, "0+")
    validate_only: bool = field(BOOL, "0+")


@struct
class CreatePartitionsTopicResult(Struct):
    """The outcome for one topic."""

    name: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreatePartitionsResponse(Struct):
    """The outcome for every topic."""

    throttle_time_ms: int = field(INT32, "0+")
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult), "0+")
