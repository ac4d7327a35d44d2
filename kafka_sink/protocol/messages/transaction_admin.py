"""Requests of operators that describe transactions and end them (KIP-664)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s


class TopicPartitions(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partition_indexes: list[int] = s.field(s.Array(s.INT32), "0+")


class DescribeProducersRequest(s.RequestBody["DescribeProducersResponse"], versions="0", flexible="0+"):
    """DescribeProducers (key 61): the producers of partitions, and the start offsets of their open transactions
    (KIP-664). The receiving broker must lead the partitions."""

    topics: list[TopicPartitions] = s.field(s.Array(TopicPartitions), "0+")


class ProducerState(s.Struct):
    """The state of a producer in the log; −1 for values that it does not have."""

    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT32, "0+")
    last_sequence: int = s.field(s.INT32, "0+", default=-1)
    last_timestamp: int = s.field(s.INT64, "0+", default=-1)
    coordinator_epoch: int = s.field(s.INT32, "0+")
    current_txn_start_offset: int = s.field(s.INT64, "0+", default=-1)


class PartitionResponse(s.Struct):
    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    active_producers: list[ProducerState] = s.field(s.Array(ProducerState), "0+")


class TopicResponse(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[PartitionResponse] = s.field(s.Array(PartitionResponse), "0+")


class DescribeProducersResponse(s.Throttled, versions="0", flexible="0+"):
    topics: list[TopicResponse] = s.field(s.Array(TopicResponse), "0+")


class ListTransactionsRequest(s.RequestBody["ListTransactionsResponse"], versions="0-2", flexible="0+"):
    """ListTransactions (key 66): the transactional ids that a broker coordinates (KIP-664, KIP-994, KIP-1152). Empty
    filters select all; *duration_filter* in ms, negative = none."""

    state_filters: list[str] = s.field(s.Array(s.STRING), "0+")
    producer_id_filters: list[int] = s.field(s.Array(s.INT64), "0+")
    duration_filter: int = s.field(s.INT64, "1+", default=-1)
    transactional_id_pattern: str | None = s.field(s.STRING, "2+", nullable="2+", default=None)


class ListedTransaction(s.Struct):
    """A transactional id, its producer id, and the state of its transaction."""

    transactional_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    transaction_state: str = s.field(s.STRING, "0+")


class ListTransactionsResponse(s.Throttled, versions="0-2", flexible="0+"):
    """The transactions that the filters select, and the unknown states in the filters."""

    error_code: int = s.field(s.INT16, "0+")
    unknown_state_filters: list[str] = s.field(s.Array(s.STRING), "0+")
    transaction_states: list[ListedTransaction] = s.field(s.Array(ListedTransaction), "0+")


class DescribeTransactionsRequest(s.RequestBody["DescribeTransactionsResponse"], versions="0", flexible="0+"):
    """DescribeTransactions (key 65): the state of transactional ids (KIP-664), which the receiving broker must
    coordinate."""

    transactional_ids: list[str] = s.field(s.Array(s.STRING), "0+")


class TopicData(s.Struct):
    topic: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.Array(s.INT32), "0+")


class TransactionState(s.Struct):
    """One id's state; *topics* are the partitions in an open transaction, or those still without a marker."""

    error_code: int = s.field(s.INT16, "0+")
    transactional_id: str = s.field(s.STRING, "0+")
    transaction_state: str = s.field(s.STRING, "0+")
    transaction_timeout_ms: int = s.field(s.INT32, "0+")
    transaction_start_time_ms: int = s.field(s.INT64, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    topics: list[TopicData] = s.field(s.Array(TopicData), "0+")


class DescribeTransactionsResponse(s.Throttled, versions="0", flexible="0+"):
    transaction_states: list[TransactionState] = s.field(s.Array(TransactionState), "0+")


class WritableTxnMarker(s.Struct):
    """A transaction: *transaction_result* is true when it is committed."""

    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    transaction_result: bool = s.field(s.BOOL, "0+")
    topics: list[TopicPartitions] = s.field(s.Array(TopicPartitions), "0+")
    coordinator_epoch: int = s.field(s.INT32, "0+")
    transaction_version: int = s.field(s.INT8, "2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(s.RequestBody["WriteTxnMarkersResponse"], versions="1-2", flexible="1+"):
    """WriteTxnMarkers (key 27): coordinators send the markers of ended transactions to leaders (KIP-98)."""

    markers: list[WritableTxnMarker] = s.field(s.Array(WritableTxnMarker), "0+")


class WritableTxnMarkerPartitionResult(s.Struct):
    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


class WritableTxnMarkerTopicResult(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[WritableTxnMarkerPartitionResult] = s.field(s.Array(WritableTxnMarkerPartitionResult), "0+")


class WritableTxnMarkerResult(s.Struct):
    producer_id: int = s.field(s.INT64, "0+")
    topics: list[WritableTxnMarkerTopicResult] = s.field(s.Array(WritableTxnMarkerTopicResult), "0+")


class WriteTxnMarkersResponse(s.Struct, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = s.field(s.Array(WritableTxnMarkerResult), "0+")
