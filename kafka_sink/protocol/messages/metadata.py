"""Metadata (key 3): brokers, topics and the leaders of partitions; from version 12 on, topics by id, too. The new
leader in responses of Produce and Fetch (KIP-951). FindCoordinator (key 10): the coordinator of a group or a
transactional id, from version 4 on of several.
"""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s

_VERSIONS = "0-13"
_FLEXIBLE = "9+"

#: Means "authorized operations were not requested".
NO_AUTHORIZED_OPERATIONS = -(2**31)
#: The first version that has authorized operations (KIP-430).
FIRST_WITH_OPERATIONS = 8


class MetadataRequestTopic(s.Struct):
    """A topic by name, or (version 12 and up, *name* null) by id."""

    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    name: str | None = s.field(s.STRING, "0+", nullable="10+")


class MetadataRequest(s.RequestBody["MetadataResponse"], versions=_VERSIONS, flexible=_FLEXIBLE):
    """*topics* null selects all topics, empty none; version 0 has no null and its empty list means all."""

    topics: list[MetadataRequestTopic] | None = s.field(s.Array(MetadataRequestTopic), "0+", nullable="1+")
    allow_auto_topic_creation: bool = s.field(s.BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = s.field(s.BOOL, "8-10")
    include_topic_authorized_operations: bool = s.field(s.BOOL, "8+")


class MetadataResponseBroker(s.Struct):
    """A broker and its address on the listener that received the request."""

    node_id: int = s.field(s.INT32, "0+")
    host: str = s.field(s.STRING, "0+")
    port: int = s.field(s.INT32, "0+")
    rack: str | None = s.field(s.STRING, "1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(s.Struct):
    """A partition; *leader_id* −1 if it has no leader."""

    error_code: int = s.field(s.INT16, "0+")
    partition_index: int = s.field(s.INT32, "0+")
    leader_id: int = s.field(s.INT32, "0+")
    leader_epoch: int = s.field(s.INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = s.field(s.Array(s.INT32), "0+")
    isr_nodes: list[int] = s.field(s.Array(s.INT32), "0+")
    offline_replicas: list[int] = s.field(s.Array(s.INT32), "5+", ignorable=True)


class MetadataResponseTopic(s.Struct):
    """A topic, or its error; *name* is null for an unknown id."""

    error_code: int = s.field(s.INT16, "0+")
    name: str | None = s.field(s.STRING, "0+", nullable="12+")
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    is_internal: bool = s.field(s.BOOL, "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = s.field(s.Array(MetadataResponsePartition), "0+")
    topic_authorized_operations: int = s.field(s.INT32, "8+", default=NO_AUTHORIZED_OPERATIONS)


class MetadataResponse(s.Struct, versions=_VERSIONS, flexible=_FLEXIBLE):
    throttle_time_ms: int = s.field(s.INT32, "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = s.field(s.Array(MetadataResponseBroker), "0+")
    cluster_id: str | None = s.field(s.STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = s.field(s.INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = s.field(s.Array(MetadataResponseTopic), "0+")
    cluster_authorized_operations: int = s.field(s.INT32, "8-10", default=NO_AUTHORIZED_OPERATIONS)
    error_code: int = s.field(s.INT16, "13+", ignorable=True)


class LeaderIdAndEpoch(s.Struct):
    """The current leader of a partition, in a response of Produce or Fetch; −1 = not known."""

    leader_id: int = s.field(s.INT32, "0+", default=-1)
    leader_epoch: int = s.field(s.INT32, "0+", default=-1)


class NodeEndpoint(s.Struct):
    """The address of a broker that is a current leader."""

    node_id: int = s.field(s.INT32, "0+")
    host: str = s.field(s.STRING, "0+")
    port: int = s.field(s.INT32, "0+")
    rack: str | None = s.field(s.STRING, "0+", nullable="0+", default=None)


_FIND_VERSIONS = "0-6"
_FIND_FLEXIBLE = "3+"

#: The types of a coordinator key.
GROUP = 0
TRANSACTION = 1


class FindCoordinatorRequest(
    s.RequestBody["FindCoordinatorResponse"], versions=_FIND_VERSIONS, flexible=_FIND_FLEXIBLE
):
    """*key* up to version 3, *coordinator_keys* from version 4 on; *key_type* is their type."""

    key: str = s.field(s.STRING, "0-3")
    key_type: int = s.field(s.INT8, "1+")
    coordinator_keys: list[str] = s.field(s.Array(s.STRING), "4+")


class Coordinator(s.Struct):
    key: str = s.field(s.STRING, "4+")
    node_id: int = s.field(s.INT32, "4+")
    host: str = s.field(s.STRING, "4+")
    port: int = s.field(s.INT32, "4+")
    error_code: int = s.field(s.INT16, "4+")
    error_message: str | None = s.field(s.STRING, "4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(s.Struct, versions=_FIND_VERSIONS, flexible=_FIND_FLEXIBLE):
    """One coordinator at the top level up to version 3, *coordinators* from version 4 on."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0-3")
    error_message: str | None = s.field(s.STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = s.field(s.INT32, "0-3")
    host: str = s.field(s.STRING, "0-3")
    port: int = s.field(s.INT32, "0-3")
    coordinators: list[Coordinator] = s.field(s.Array(Coordinator), "4+")
