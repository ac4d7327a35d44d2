"""ElectLeaders (key 43): give partitions back to their preferred leader (KIP-183), or to any replica (KIP-460)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT8, INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@struct
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ElectLeadersRequest(RequestBody["ElectLeadersResponse"]):
    """*election_type* 0 is the preferred leader, 1 any; null partitions are all partitions."""

    election_type: int = field(INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), "0+", nullable="0+")
    timeout_ms: int = field(INT32, "0+", default=60000)


@struct
class PartitionResult(Struct):
    """The outcome for one partition."""

    partition_id: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


@struct
class ReplicaElectionResult(Struct):
    """The outcomes for one topic's partitions."""

    topic: str = field(STRING, "0+")
    partition_result: list[PartitionResult] = field(array(PartitionResult), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ElectLeadersResponse(Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult), "0+")
