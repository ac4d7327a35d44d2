"""DescribeTransactions (key 65): what the coordinator knows of transactional ids (KIP-664)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, INT64, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0"
_FLEXIBLE = "0+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeTransactionsRequest(RequestBody["DescribeTransactionsResponse"]):
    """Ids that the broker asked coordinates."""

    transactional_ids: list[str] = field(array(STRING), "0+")


@struct
class TopicData(Struct):
    """Partitions of one topic."""

    topic: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


@struct
class TransactionState(Struct):
    """One id's state; *topics* are the partitions in an open transaction, or those still without a marker."""

    error_code: int = field(INT16, "0+")
    transactional_id: str = field(STRING, "0+")
    transaction_state: str = field(STRING, "0+")
    transaction_timeout_ms: int = field(INT32, "0+")
    transaction_start_time_ms: int = field(INT64, "0+")
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    topics: list[TopicData] = field(array(TopicData), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeTransactionsResponse(Struct):
    """One state for each id that was asked for."""

    throttle_time_ms: int = field(INT32, "0+")
    transaction_states: list[TransactionState] = field(array(TransactionState), "0+")
