"""DeleteRecords (key 21): move the begin of partitions forward (KIP-107)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, INT64, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@struct
class DeleteRecordsPartition(Struct):
    """Records before *offset* go; −1 stands for the high watermark."""

    partition_index: int = field(INT32, "0+")
    offset: int = field(INT64, "0+")


@struct
class DeleteRecordsTopic(Struct):
    """One topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteRecordsRequest(RequestBody["DeleteRecordsResponse"]):
    """*timeout_ms* is how long the broker may wait for its replicas."""

    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic), "0+")
    timeout_ms: int = field(INT32, "0+")


@struct
class DeleteRecordsPartitionResult(Struct):
    """The first offset that is left, or −1 and why not."""

    partition_index: int = field(INT32, "0+")
    low_watermark: int = field(INT64, "0+")
    error_code: int = field(INT16, "0+")


@struct
class DeleteRecordsTopicResult(Struct):
    """The outcomes for one topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteRecordsResponse(Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = field(INT32, "0+")
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult), "0+")
