"""CreateTopics (key 19). Version 4 lets the broker choose counts (−1, KIP-464), 5 returns configs, 7 the topic id."""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "2-7"
_FLEXIBLE = "5+"


@struct
class CreatableReplicaAssignment(Struct):
    """Where the replicas of a partition are to live; the first one leads."""

    partition_index: int = field(INT32, "0+")
    broker_ids: list[int] = field(array(INT32), "0+")


@struct
class CreatableTopicConfig(Struct):
    """A topic setting that differs from the broker's default."""

    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


@struct
class CreatableTopic(Struct):
    """A topic to create; counts are −1 where *assignments* say it or the broker shall choose."""

    name: str = field(STRING, "0+")
    num_partitions: int = field(INT32, "0+")
    replication_factor: int = field(INT16, "0+")
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment), "0+")
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreateTopicsRequest(RequestBody["CreateTopicsResponse"]):
    """*timeout_ms* is how long the broker may wait for the topics to be there; *validate_only* creates nothing."""

    topics: list[CreatableTopic] = field(array(CreatableTopic), "0+")
    timeout_ms: int = field(INT32, "0+", default=60_000)
    validate_only: bool = field(BOOL, "1+")


@struct
class CreatableTopicConfigs(Struct):
    """A setting of the topic as it was created."""

    name: str = field(STRING, "5+")
    value: str | None = field(STRING, "5+", nullable="5+")
    read_only: bool = field(BOOL, "5+")
    config_source: int = field(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "5+")


@struct
class CreatableTopicResult(Struct):
    """What became of one topic; counts and configs are known when it was created."""

    name: str = field(STRING, "0+")
    topic_id: uuid.UUID = field(UUID, "7+", ignorable=True)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = field(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = field(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreateTopicsResponse(Struct):
    """What became of every topic."""

    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult), "0+")
