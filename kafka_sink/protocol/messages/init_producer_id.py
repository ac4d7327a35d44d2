"""InitProducerId (key 22): a producer id and epoch, fencing older holders of the same transactional id."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-6"
_FLEXIBLE = "2+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class InitProducerIdRequest(s.RequestBody["InitProducerIdResponse"]):
    """*transactional_id* null = idempotence only; id and epoch −1 = this producer has none yet (KIP-360).

    Version 6 (KIP-939): *enable2_pc* = the id's transactions never time out; *keep_prepared_txn* = an open transaction
    is kept instead of aborted.
    """

    transactional_id: str | None = s.field(s.STRING, "0+", nullable="0+")
    transaction_timeout_ms: int = s.field(s.INT32, "0+")
    producer_id: int = s.field(s.INT64, "3+", default=-1)
    producer_epoch: int = s.field(s.INT16, "3+", default=-1)
    enable2_pc: bool = s.field(s.BOOL, "6+", default=False)
    keep_prepared_txn: bool = s.field(s.BOOL, "6+", default=False)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class InitProducerIdResponse(s.Struct):
    """The id and epoch to stamp on batches; from version 6 on, those of a transaction that was kept, or −1."""

    throttle_time_ms: int = s.field(s.INT32, "0+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    producer_id: int = s.field(s.INT64, "0+", default=-1)
    producer_epoch: int = s.field(s.INT16, "0+")
    ongoing_txn_producer_id: int = s.field(s.INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = s.field(s.INT16, "6+", default=-1)
