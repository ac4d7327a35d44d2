"""ListTransactions (key 66): the transactional ids that a broker coordinates (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-2"
_FLEXIBLE = "0+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListTransactionsRequest(s.RequestBody["ListTransactionsResponse"]):
    """Empty filters let everything pass; *duration_filter* in ms, below 0 none."""

    state_filters: list[str] = s.field(s.array(s.STRING), "0+")
    producer_id_filters: list[int] = s.field(s.array(s.INT64), "0+")
    duration_filter: int = s.field(s.INT64, "1+", default=-1)
    transactional_id_pattern: str | None = s.field(s.STRING, "2+", nullable="2+", default=None)


@s.struct
class TransactionState(s.Struct):
    """One id, who holds it, and what its transaction does."""

    transactional_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    transaction_state: str = s.field(s.STRING, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListTransactionsResponse(s.Struct):
    """What passed, and filters whose state nobody knows."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    unknown_state_filters: list[str] = s.field(s.array(s.STRING), "0+")
    transaction_states: list[TransactionState] = s.field(s.array(TransactionState), "0+")
