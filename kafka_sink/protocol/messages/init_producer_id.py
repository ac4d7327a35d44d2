"""InitProducerId (key 22): a producer id and epoch, fencing older holders of the same transactional id."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, INT64, STRING, RequestBody, Struct, field, message

_VERSIONS = "0-5"
_FLEXIBLE = "2+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class InitProducerIdRequest(RequestBody["InitProducerIdResponse"]):
    """*transactional_id* null = idempotence only; id and epoch −1 = this producer has none yet (KIP-360)."""

    transactional_id: str | None = field(STRING, "0+", nullable="0+")
    transaction_timeout_ms: int = field(INT32, "0+")
    producer_id: int = field(INT64, "3+", default=-1)
    producer_epoch: int = field(INT16, "3+", default=-1)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class InitProducerIdResponse(Struct):
    """The id and epoch to stamp on batches."""

    throttle_time_ms: int = field(INT32, "0+", ignorable=True)
    error_code: int = field(INT16, "0+")
    producer_id: int = field(INT64, "0+", default=-1)
    producer_epoch: int = field(INT16, "0+")
