"""DescribeTransactions (key 65): what the coordinator knows of transactional ids (KIP-664)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0"
_FLEXIBLE = "0+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeTransactionsRequest(s.RequestBody["DescribeTransactionsResponse"]):
    """Ids that the broker asked coordinates."""

    transactional_ids: list[str] = s.field(s.array(s.STRING), "0+")


@s.struct
class TopicData(s.Struct):
    """Partitions of one topic."""

    topic: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.array(s.INT32), "0+")


@s.struct
class TransactionState(s.Struct):
    """One id's state; *topics* are the partitions in an open transaction, or those still without a marker."""

    error_code: int = s.field(s.INT16, "0+")
    transactional_id: str = s.field(s.STRING, "0+")
    transaction_state: str = s.field(s.STRING, "0+")
    transaction_timeout_ms: int = s.field(s.INT32, "0+")
    transaction_start_time_ms: int = s.field(s.INT64, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    topics: list[TopicData] = s.field(s.array(TopicData), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeTransactionsResponse(s.Struct):
    """One state for each id that was asked for."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    transaction_states: list[TransactionState] = s.field(s.array(TransactionState), "0+")
