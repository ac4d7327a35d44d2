"""AddOffsetsToTxn (key 25): a transaction is going to commit offsets of a group.

From transaction version 2 on it is left out: TxnOffsetCommit version 5 says it by itself (KIP-890).
"""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, INT64, STRING, RequestBody, Struct, field, message

_VERSIONS = "0-4"
_FLEXIBLE = "3+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AddOffsetsToTxnRequest(RequestBody["AddOffsetsToTxnResponse"]):
    """The partition of ``__consumer_offsets`` that *group_id* belongs to becomes part of the transaction."""

    transactional_id: str = field(STRING, "0+")
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    group_id: str = field(STRING, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AddOffsetsToTxnResponse(Struct):
    """Whether it did."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
