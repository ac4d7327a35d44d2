"""WriteTxnMarkers (key 27): brokers tell each other how transactions ended (KIP-98)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "1-2"
_FLEXIBLE = "1+"


@s.struct
class WritableTxnMarkerTopic(s.Struct):
    """Partitions of one topic."""

    name: str = s.field(s.STRING, "0+")
    partition_indexes: list[int] = s.field(s.array(s.INT32), "0+")


@s.struct
class WritableTxnMarker(s.Struct):
    """A transaction: *transaction_result* is true when it is committed."""

    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    transaction_result: bool = s.field(s.BOOL, "0+")
    topics: list[WritableTxnMarkerTopic] = s.field(s.array(WritableTxnMarkerTopic), "0+")
    coordinator_epoch: int = s.field(s.INT32, "0+")
    transaction_version: int = s.field(s.INT8, "2+", default=0, ignorable=True)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class WriteTxnMarkersRequest(s.RequestBody["WriteTxnMarkersResponse"]):
    """Markers for partitions that the broker asked leads."""

    markers: list[WritableTxnMarker] = s.field(s.array(WritableTxnMarker), "0+")


@s.struct
class WritableTxnMarkerPartitionResult(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class WritableTxnMarkerTopicResult(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[WritableTxnMarkerPartitionResult] = s.field(s.array(WritableTxnMarkerPartitionResult), "0+")


@s.struct
class WritableTxnMarkerResult(s.Struct):
    """The outcomes for one producer."""

    producer_id: int = s.field(s.INT64, "0+")
    topics: list[WritableTxnMarkerTopicResult] = s.field(s.array(WritableTxnMarkerTopicResult), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class WriteTxnMarkersResponse(s.Struct):
    """The outcome for every marker."""

    markers: list[WritableTxnMarkerResult] = s.field(s.array(WritableTxnMarkerResult), "0+")
