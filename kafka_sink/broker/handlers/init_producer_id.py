"""InitProducerId (key 22): a producer id for idempotent writes. Ids are never given out twice, restarts included."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 5)
_log: Final = ContextLogger(__name__, "")


def handle(context: BrokerContext, request: ApiRequest[InitProducerIdRequest]) -> None:
    """Answer with a new id and epoch 0."""
    if request.body.transactional_id is not None:
        # This broker coordinates no transactions; a code that may be retried would keep the client waiting for ever.
        request.respond(InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1))
        return
    try:
        producer_id = context.cluster.allocate_producer_id()
    except OSError as error:
        _log.error("cannot reserve producer ids: %s", error)
        request.respond(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1))
        return
    request.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


API: Final = ApiHandler(ApiKey.INIT_PRODUCER_ID, VERSIONS, handle)
