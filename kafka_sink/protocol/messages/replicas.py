"""Replicas of partitions: their reassignment, the election of leaders, and the log directories."""

from __future__ import annotations

from kafka_sink.protocol import schema as s


class ReassignablePartition(s.Struct):
    """A partition and its *replicas*; null cancels an ongoing reassignment."""

    partition_index: int = s.field(s.INT32, "0+")
    replicas: list[int] | None = s.field(s.Array(s.INT32), "0+", default=None, nullable="0+")


class ReassignableTopic(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[ReassignablePartition] = s.field(s.Array(ReassignablePartition), "0+")


class AlterPartitionReassignmentsRequest(
    s.RequestBody["AlterPartitionReassignmentsResponse"], versions="0-1", flexible="0+"
):
    """AlterPartitionReassignments (key 45): assign the replicas of partitions, the preferred leader first (KIP-455).
    The broker waits up to *timeout_ms* for the reassignments to begin."""

    timeout_ms: int = s.field(s.INT32, "0+", default=60000)
    allow_replication_factor_change: bool = s.field(s.BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = s.field(s.Array(ReassignableTopic), "0+")


class ReassignablePartitionResponse(s.Struct):
    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")


class ReassignableTopicResponse(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[ReassignablePartitionResponse] = s.field(s.Array(ReassignablePartitionResponse), "0+")


class AlterPartitionReassignmentsResponse(s.Throttled, versions="0-1", flexible="0+"):
    """The outcome for every partition; an accepted reassignment may still be in progress."""

    allow_replication_factor_change: bool = s.field(s.BOOL, "1+", default=True, ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = s.field(s.Array(ReassignableTopicResponse), "0+")


class ListPartitionReassignmentsTopics(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partition_indexes: list[int] = s.field(s.Array(s.INT32), "0+")


class ListPartitionReassignmentsRequest(
    s.RequestBody["ListPartitionReassignmentsResponse"], versions="0", flexible="0+"
):
    """ListPartitionReassignments (key 46): the ongoing reassignments (KIP-455). Null *topics* select all."""

    timeout_ms: int = s.field(s.INT32, "0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = s.field(
        s.Array(ListPartitionReassignmentsTopics), "0+", default=None, nullable="0+"
    )


class OngoingPartitionReassignment(s.Struct):
    """The current replicas, and those that are added and removed."""

    partition_index: int = s.field(s.INT32, "0+")
    replicas: list[int] = s.field(s.Array(s.INT32), "0+")
    adding_replicas: list[int] = s.field(s.Array(s.INT32), "0+")
    removing_replicas: list[int] = s.field(s.Array(s.INT32), "0+")


class OngoingTopicReassignment(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[OngoingPartitionReassignment] = s.field(s.Array(OngoingPartitionReassignment), "0+")


class ListPartitionReassignmentsResponse(s.Throttled, versions="0", flexible="0+"):
    """The partitions with an ongoing reassignment; those without one are omitted."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = s.field(s.Array(OngoingTopicReassignment), "0+")


class TopicPartitions(s.Struct):
    topic: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.Array(s.INT32), "0+")


class ElectLeadersRequest(s.RequestBody["ElectLeadersResponse"], versions="0-2", flexible="2+"):
    """ElectLeaders (key 43): elect the preferred leader of partitions (KIP-183), or any replica (KIP-460).
    *election_type* 0 is the preferred leader, 1 any; null partitions select all partitions."""

    election_type: int = s.field(s.INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = s.field(s.Array(TopicPartitions), "0+", nullable="0+")
    timeout_ms: int = s.field(s.INT32, "0+", default=60000)


class PartitionResult(s.Struct):
    partition_id: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")


class ReplicaElectionResult(s.Struct):
    topic: str = s.field(s.STRING, "0+")
    partition_result: list[PartitionResult] = s.field(s.Array(PartitionResult), "0+")


class ElectLeadersResponse(s.Throttled, versions="0-2", flexible="2+"):
    error_code: int = s.field(s.INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = s.field(s.Array(ReplicaElectionResult), "0+")


class DescribeLogDirsRequest(s.RequestBody["DescribeLogDirsResponse"], versions="1-5", flexible="2+"):
    """DescribeLogDirs (key 35): the directories of a broker with the sizes of its partitions (KIP-113, KIP-827). Null
    *topics* select all."""

    topics: list[TopicPartitions] | None = s.field(s.Array(TopicPartitions), "0+", nullable="0+")


class DescribeLogDirsPartition(s.Struct):
    """A partition; *partition_size* in bytes, *offset_lag* behind its leader."""

    partition_index: int = s.field(s.INT32, "0+")
    partition_size: int = s.field(s.INT64, "0+")
    offset_lag: int = s.field(s.INT64, "0+")
    is_future_key: bool = s.field(s.BOOL, "0+")


class DescribeLogDirsTopic(s.Struct):
    """The partitions of one topic in the directory."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[DescribeLogDirsPartition] = s.field(s.Array(DescribeLogDirsPartition), "0+")


class DescribeLogDirsResult(s.Struct):
    """A directory; *total_bytes* and *usable_bytes* are those of its volume, −1 if not known."""

    error_code: int = s.field(s.INT16, "0+")
    log_dir: str = s.field(s.STRING, "0+")
    topics: list[DescribeLogDirsTopic] = s.field(s.Array(DescribeLogDirsTopic), "0+")
    total_bytes: int = s.field(s.INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = s.field(s.INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = s.field(s.BOOL, "5+", ignorable=True)


class DescribeLogDirsResponse(s.Throttled, versions="1-5", flexible="2+"):
    """The directories of the broker."""

    error_code: int = s.field(s.INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = s.field(s.Array(DescribeLogDirsResult), "0+")
