"""Produce (key 0): record batches for partitions. From version 13 topics travel as ids (KIP-516).

acks=0 has no response at all. Versions 10 and up tell the new leader with NOT_LEADER_OR_FOLLOWER (KIP-951).
"""

from __future__ import annotations

import uuid

from kafka_sink.protocol.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Records,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "3-13"
_FLEXIBLE = "9+"


@struct
class PartitionProduceData(Struct):
    """The batches for one partition."""

    index: int = field(INT32, "0+")
    records: Records = field(RECORDS, "0+", nullable="0+")


@struct
class TopicProduceData(Struct):
    """The batches for one topic, by name or (version 13 and up) by id."""

    name: str = field(STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ProduceRequest(RequestBody["ProduceResponse"]):
    """*acks*: 0 none, 1 the leader, −1 all in-sync replicas; *timeout_ms* is how long the broker may wait for them."""

    transactional_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    acks: int = field(INT16, "0+")
    timeout_ms: int = field(INT32, "0+")
    topic_data: list[TopicProduceData] = field(array(TopicProduceData), "0+")


@struct
class BatchIndexAndErrorMessage(Struct):
    """A record that made its batch fail (KIP-467)."""

    batch_index: int = field(INT32, "8+")
    batch_index_error_message: str | None = field(STRING, "8+", nullable="8+", default=None)


@struct
class LeaderIdAndEpoch(Struct):
    """Who leads now; −1 = not known."""

    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


@struct
class PartitionProduceResponse(Struct):
    """*base_offset* of the first record; *log_append_time_ms* −1 unless the topic stamps records itself."""

    index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    base_offset: int = field(INT64, "0+")
    log_append_time_ms: int = field(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(array(BatchIndexAndErrorMessage), "8+", ignorable=True)
    error_message: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "10+", tag=0)


@struct
class TopicProduceResponse(Struct):
    """The outcome for one topic's partitions."""

    name: str = field(STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = field(UUID, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse), "0+")


@struct
class NodeEndpoint(Struct):
    """Address of a broker named as current leader."""

    node_id: int = field(INT32, "10+")
    host: str = field(STRING, "10+")
    port: int = field(INT32, "10+")
    rack: str | None = field(STRING, "10+", nullable="10+", default=None)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ProduceResponse(Struct):
    """The outcome for every partition of the request."""

    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse), "0+")
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "10+", tag=0)
