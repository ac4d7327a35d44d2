"""EndTxn (key 26): commit or abort a transaction.

Version 5 belongs to transaction version 2: the answer carries the epoch of the next transaction (KIP-890).
"""

from __future__ import annotations

from kafka_sink.protocol.schema import BOOL, INT16, INT32, INT64, STRING, RequestBody, Struct, field, message

_VERSIONS = "0-5"
_FLEXIBLE = "3+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class EndTxnRequest(RequestBody["EndTxnResponse"]):
    """*committed* false = abort."""

    transactional_id: str = field(STRING, "0+")
    producer_id: int = field(INT64, "0+")
    producer_epoch: int = field(INT16, "0+")
    committed: bool = field(BOOL, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class EndTxnResponse(Struct):
    """No error: the outcome is decided for good, though readers may still have to wait for the markers."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    producer_id: int = field(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(INT16, "5+", default=-1, ignorable=True)
