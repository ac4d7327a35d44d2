"""WriteTxnMarkers (key 27): brokers tell each other how transactions ended (KIP-98)."""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "1-2"
_FLEXIBLE = "1+"


@struct
class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING, "0+")
    partition_indexes: list[int] = field(array(INT32), "0+")


@struct
class WritableTxnMarker(Struct):
    """A transaction: *transaction_result* is true when it is committed."""

    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    transaction_result: bool = field(BOOL, "0+")
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic), "0+")
    coordinator_epoch: int = field(INT32, "0+")
    transaction_version: int = field(INT8, "2+", default=0, ignorable=True)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class WriteTxnMarkersRequest(RequestBody["WriteTxnMarkersResponse"]):
    """Markers for partitions that the broker asked leads."""

    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker), "0+")


@struct
class WritableTxnMarkerPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")


@struct
class WritableTxnMarkerTopicResult(Struct):
    """The outcomes for one topic's partitions."""

    name: str = field(STRING, "0+")
    partitions: list[WritableTxnMarkerPartitionResult] = field(array(WritableTxnMarkerPartitionResult), "0+")


@struct
class WritableTxnMarkerResult(Struct):
    """The outcomes for one producer."""

    producer_id: int = field(INT64, "0+")
    topics: list[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class WriteTxnMarkersResponse(Struct):
    """The outcome for every marker."""

    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult), "0+")
