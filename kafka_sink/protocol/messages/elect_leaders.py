"""ElectLeaders (key 43): give partitions back to their preferred leader (KIP-183), or to any replica (KIP-460)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@s.struct
class TopicPartitions(s.Struct):
    """Partitions of one topic."""

    topic: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.array(s.INT32), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ElectLeadersRequest(s.RequestBody["ElectLeadersResponse"]):
    """*election_type* 0 is the preferred leader, 1 any; null partitions are all partitions."""

    election_type: int = s.field(s.INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = s.field(s.array(TopicPartitions), "0+", nullable="0+")
    timeout_ms: int = s.field(s.INT32, "0+", default=60000)


@s.struct
class PartitionResult(s.Struct):
    """The outcome for one partition."""

    partition_id: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class ReplicaElectionResult(s.Struct):
    """The outcomes for one topic's partitions."""

    topic: str = s.field(s.STRING, "0+")
    partition_result: list[PartitionResult] = s.field(s.array(PartitionResult), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ElectLeadersResponse(s.Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = s.field(s.array(ReplicaElectionResult), "0+")
