"""CreatePartitions (key 37): more partitions for topics that exist (KIP-195)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-3"
_FLEXIBLE = "2+"


@s.struct
class CreatePartitionsAssignment(s.Struct):
    """Where the replicas of one new partition are to live."""

    broker_ids: list[int] = s.field(s.array(s.INT32), "0+")


@s.struct
class CreatePartitionsTopic(s.Struct):
    """A topic and the *count* of partitions it is to have; null *assignments* let the broker choose."""

    name: str = s.field(s.STRING, "0+")
    count: int = s.field(s.INT32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = s.field(
        s.array(CreatePartitionsAssignment), "0+", nullable="0+"
    )


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreatePartitionsRequest(s.RequestBody["CreatePartitionsResponse"]):
    """*timeout_ms* is how long the broker may wait for them; *validate_only* creates nothing."""

    topics: list[CreatePartitionsTopic] = s.field(s.array(CreatePartitionsTopic), "0+")
    timeout_ms: int = s.field(s.INT32, "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


@s.struct
class CreatePartitionsTopicResult(s.Struct):
    """The outcome for one topic."""

    name: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreatePartitionsResponse(s.Struct):
    """The outcome for every topic."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    results: list[CreatePartitionsTopicResult] = s.field(s.array(CreatePartitionsTopicResult), "0+")
