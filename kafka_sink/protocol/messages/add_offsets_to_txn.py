"""AddOffsetsToTxn (key 25): a transaction is going to commit offsets of a group.

From transaction version 2 on it is left out: TxnOffsetCommit version 5 says it by itself (KIP-890).
"""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-4"
_FLEXIBLE = "3+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AddOffsetsToTxnRequest(s.RequestBody["AddOffsetsToTxnResponse"]):
    """The partition of ``__consumer_offsets`` that *group_id* belongs to becomes part of the transaction."""

    transactional_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    group_id: str = s.field(s.STRING, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AddOffsetsToTxnResponse(s.Struct):
    """Whether it did."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
