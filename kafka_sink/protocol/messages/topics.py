"""Topics: their creation and deletion, and the creation of further partitions."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s


class CreatableReplicaAssignment(s.Struct):
    """The brokers of a partition's replicas; the first one is the preferred leader."""

    partition_index: int = s.field(s.INT32, "0+")
    broker_ids: list[int] = s.field(s.Array(s.INT32), "0+")


class CreatableTopicConfig(s.Struct):
    """A topic setting that differs from the broker's default."""

    name: str = s.field(s.STRING, "0+")
    value: str | None = s.field(s.STRING, "0+", nullable="0+")


class CreatableTopic(s.Struct):
    """A topic to create; counts are −1 if *assignments* determine them or the broker chooses."""

    name: str = s.field(s.STRING, "0+")
    num_partitions: int = s.field(s.INT32, "0+")
    replication_factor: int = s.field(s.INT16, "0+")
    assignments: list[CreatableReplicaAssignment] = s.field(s.Array(CreatableReplicaAssignment), "0+")
    configs: list[CreatableTopicConfig] = s.field(s.Array(CreatableTopicConfig), "0+")


class CreateTopicsRequest(s.RequestBody["CreateTopicsResponse"], versions="2-7", flexible="5+"):
    """CreateTopics (key 19). Version 4 lets the broker choose counts (−1, KIP-464), 5 returns configs, 7 the topic id.
    The broker waits up to *timeout_ms* for the topics to be created; *validate_only* creates nothing."""

    topics: list[CreatableTopic] = s.field(s.Array(CreatableTopic), "0+")
    timeout_ms: int = s.field(s.INT32, "0+", default=60_000)
    validate_only: bool = s.field(s.BOOL, "1+")


class CreatableTopicConfigs(s.Struct):
    """A setting of the created topic."""

    name: str = s.field(s.STRING, "5+")
    value: str | None = s.field(s.STRING, "5+", nullable="5+")
    read_only: bool = s.field(s.BOOL, "5+")
    config_source: int = s.field(s.INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = s.field(s.BOOL, "5+")


class CreatableTopicResult(s.Struct):
    """The outcome for one topic; counts and configs are those of a topic that was created."""

    name: str = s.field(s.STRING, "0+")
    topic_id: uuid.UUID = s.field(s.UUID, "7+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = s.field(s.INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = s.field(s.INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = s.field(s.INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = s.field(
        s.Array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(s.Struct, versions="2-7", flexible="5+"):
    throttle_time_ms: int = s.field(s.INT32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = s.field(s.Array(CreatableTopicResult), "0+")


class CreatePartitionsAssignment(s.Struct):
    """The brokers of a new partition's replicas."""

    broker_ids: list[int] = s.field(s.Array(s.INT32), "0+")


class CreatePartitionsTopic(s.Struct):
    """A topic and its new *count* of partitions; with null *assignments* the broker chooses."""

    name: str = s.field(s.STRING, "0+")
    count: int = s.field(s.INT32, "0+")
    assignments: list[CreatePartitionsAssignment] | None = s.field(
        s.Array(CreatePartitionsAssignment), "0+", nullable="0+"
    )


class CreatePartitionsRequest(s.RequestBody["CreatePartitionsResponse"], versions="0-3", flexible="2+"):
    """CreatePartitions (key 37): more partitions for existing topics (KIP-195). The broker waits up to *timeout_ms* for
    them; *validate_only* creates nothing."""

    topics: list[CreatePartitionsTopic] = s.field(s.Array(CreatePartitionsTopic), "0+")
    timeout_ms: int = s.field(s.INT32, "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


class CreatePartitionsTopicResult(s.Struct):
    name: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")


class CreatePartitionsResponse(s.Throttled, versions="0-3", flexible="2+"):
    results: list[CreatePartitionsTopicResult] = s.field(s.Array(CreatePartitionsTopicResult), "0+")


class DeleteTopicState(s.Struct):
    """A topic by name, or by id if *name* is null."""

    name: str | None = s.field(s.STRING, "6+", nullable="6+", default=None)
    topic_id: uuid.UUID = s.field(s.UUID, "6+")


class DeleteTopicsRequest(s.RequestBody["DeleteTopicsResponse"], versions="1-6", flexible="4+"):
    """DeleteTopics (key 20): by name, or from version 6 on by id as well. *topic_names* up to version 5, *topics* from
    version 6 on."""

    topics: list[DeleteTopicState] = s.field(s.Array(DeleteTopicState), "6+")
    topic_names: list[str] = s.field(s.Array(s.STRING), "0-5", ignorable=True)
    timeout_ms: int = s.field(s.INT32, "0+")


class DeletableTopicResult(s.Struct):
    """The outcome for one topic; *name* is null if no topic has the id."""

    name: str | None = s.field(s.STRING, "0+", nullable="6+")
    topic_id: uuid.UUID = s.field(s.UUID, "6+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(s.Struct, versions="1-6", flexible="4+"):
    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    responses: list[DeletableTopicResult] = s.field(s.Array(DeletableTopicResult), "0+")
