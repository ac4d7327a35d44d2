"""EndTxn (key 26): commit or abort a transaction.

Version 5 belongs to transaction version 2: the answer carries the epoch of the next transaction (KIP-890).
"""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-5"
_FLEXIBLE = "3+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class EndTxnRequest(s.RequestBody["EndTxnResponse"]):
    """*committed* false = abort."""

    transactional_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    committed: bool = s.field(s.BOOL, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class EndTxnResponse(s.Struct):
    """No error: the outcome is decided for good, though readers may still have to wait for the markers."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    producer_id: int = s.field(s.INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = s.field(s.INT16, "5+", default=-1, ignorable=True)
