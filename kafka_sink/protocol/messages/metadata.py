"""Metadata (key 3): brokers, topics and who leads each partition. Version 12 asks by topic id too."""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import (
    BOOL,
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

_VERSIONS = "0-13"
_FLEXIBLE = "9+"

#: Stands for "authorized operations were not asked for".
NO_AUTHORIZED_OPERATIONS = -(2**31)


@struct
class MetadataRequestTopic(Struct):
    """A topic by name, or (version 12 and up, *name* null) by id."""

    topic_id: uuid.UUID = field(UUID, "10+", ignorable=True)
    name: str | None = field(STRING, "0+", nullable="10+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class MetadataRequest(RequestBody["MetadataResponse"]):
    """*topics* null asks for all topics, empty for none; version 0 has no null and its empty list means all."""

    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), "0+", nullable="1+")
    allow_auto_topic_creation: bool = field(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, "8-10")
    include_topic_authorized_operations: bool = field(BOOL, "8+")


@struct
class MetadataResponseBroker(Struct):
    """A broker and its address on the listener that was asked."""

    node_id: int = field(INT32, "0+")
    host: str = field(STRING, "0+")
    port: int = field(INT32, "0+")
    rack: str | None = field(STRING, "1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition(Struct):
    """A partition; *leader_id* −1 when it has no leader."""

    error_code: int = field(INT16, "0+")
    partition_index: int = field(INT32, "0+")
    leader_id: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32), "0+")
    isr_nodes: list[int] = field(array(INT32), "0+")
    offline_replicas: list[int] = field(array(INT32), "5+", ignorable=True)


@struct
class MetadataResponseTopic(Struct):
    """A topic, or why there is none; *name* is null for an id nobody knows."""

    error_code: int = field(INT16, "0+")
    name: str | None = field(STRING, "0+", nullable="12+")
    topic_id: uuid.UUID = field(UUID, "10+", ignorable=True)
    is_internal: bool = field(BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition), "0+")
    topic_authorized_operations: int = field(INT32, "8+", default=NO_AUTHORIZED_OPERATIONS)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class MetadataResponse(Struct):
    """The cluster as one broker sees it."""

    throttle_time_ms: int = field(INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker), "0+")
    cluster_id: str | None = field(STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic), "0+")
    cluster_authorized_operations: int = field(INT32, "8-10", default=NO_AUTHORIZED_OPERATIONS)
    error_code: int = field(INT16, "13+", ignorable=True)
