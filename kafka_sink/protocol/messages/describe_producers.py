"""DescribeProducers (key 61): who writes to a partition, and since when a transaction is open (KIP-664)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, INT64, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0"
_FLEXIBLE = "0+"


@struct
class TopicRequest(Struct):
    """One topic's partitions."""

    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field(array(INT32), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeProducersRequest(RequestBody["DescribeProducersResponse"]):
    """Partitions that the broker asked leads."""

    topics: list[TopicRequest] = field(array(TopicRequest), "0+")


@struct
class ProducerState(Struct):
    """A producer that the log remembers; −1 where there is no such thing."""

    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT32, "0+")
    last_sequence: int = field(INT32, "0+", default=-1)
    last_timestamp: int = field(INT64, "0+", default=-1)
    coordinator_epoch: int = field(INT32, "0+")
    current_txn_start_offset: int = field(INT64, "0+", default=-1)


@struct
class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = field(array(ProducerState), "0+")


@struct
class TopicResponse(Struct):
    """The producers of one topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[PartitionResponse] = field(array(PartitionResponse), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeProducersResponse(Struct):
    """The producers of every partition."""

    throttle_time_ms: int = field(INT32, "0+")
    topics: list[TopicResponse] = field(array(TopicResponse), "0+")
