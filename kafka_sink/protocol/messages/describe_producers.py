"""DescribeProducers (key 61): who writes to a partition, and since when a transaction is open (KIP-664)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0"
_FLEXIBLE = "0+"


@s.struct
class TopicRequest(s.Struct):
    """One topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partition_indexes: list[int] = s.field(s.array(s.INT32), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeProducersRequest(s.RequestBody["DescribeProducersResponse"]):
    """Partitions that the broker asked leads."""

    topics: list[TopicRequest] = s.field(s.array(TopicRequest), "0+")


@s.struct
class ProducerState(s.Struct):
    """A producer that the log remembers; −1 where there is no such thing."""

    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT32, "0+")
    last_sequence: int = s.field(s.INT32, "0+", default=-1)
    last_timestamp: int = s.field(s.INT64, "0+", default=-1)
    coordinator_epoch: int = s.field(s.INT32, "0+")
    current_txn_start_offset: int = s.field(s.INT64, "0+", default=-1)


@s.struct
class PartitionResponse(s.Struct):
    """The producers of one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = s.field(s.array(ProducerState), "0+")


@s.struct
class TopicResponse(s.Struct):
    """The producers of one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[PartitionResponse] = s.field(s.array(PartitionResponse), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeProducersResponse(s.Struct):
    """The producers of every partition."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    topics: list[TopicResponse] = s.field(s.array(TopicResponse), "0+")
