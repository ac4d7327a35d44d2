"""ListTransactions (key 66): the transactional ids that a broker coordinates (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, INT64, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-2"
_FLEXIBLE = "0+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListTransactionsRequest(RequestBody["ListTransactionsResponse"]):
    """Empty filters let everything pass; *duration_filter* in ms, below 0 none."""

    state_filters: list[str] = field(array(STRING), "0+")
    producer_id_filters: list[int] = field(array(INT64), "0+")
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", nullable="2+", default=None)


@struct
class TransactionState(Struct):
    """One id, who holds it, and what its transaction does."""

    transactional_id: str = field(STRING, "0+")
    producer_id: int = field(INT64, "0+")
    transaction_state: str = field(STRING, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListTransactionsResponse(Struct):
    """What passed, and filters whose state nobody knows."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    unknown_state_filters: list[str] = field(array(STRING), "0+")
    transaction_states: list[TransactionState] = field(array(TransactionState), "0+")
