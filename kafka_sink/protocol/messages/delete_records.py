"""DeleteRecords (key 21): move the begin of partitions forward (KIP-107)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@s.struct
class DeleteRecordsPartition(s.Struct):
    """Records before *offset* go; −1 stands for the high watermark."""

    partition_index: int = s.field(s.INT32, "0+")
    offset: int = s.field(s.INT64, "0+")


@s.struct
class DeleteRecordsTopic(s.Struct):
    """One topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[DeleteRecordsPartition] = s.field(s.array(DeleteRecordsPartition), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteRecordsRequest(s.RequestBody["DeleteRecordsResponse"]):
    """*timeout_ms* is how long the broker may wait for its replicas."""

    topics: list[DeleteRecordsTopic] = s.field(s.array(DeleteRecordsTopic), "0+")
    timeout_ms: int = s.field(s.INT32, "0+")


@s.struct
class DeleteRecordsPartitionResult(s.Struct):
    """The first offset that is left, or −1 and why not."""

    partition_index: int = s.field(s.INT32, "0+")
    low_watermark: int = s.field(s.INT64, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class DeleteRecordsTopicResult(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[DeleteRecordsPartitionResult] = s.field(s.array(DeleteRecordsPartitionResult), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteRecordsResponse(s.Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    topics: list[DeleteRecordsTopicResult] = s.field(s.array(DeleteRecordsTopicResult), "0+")
