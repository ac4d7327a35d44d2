"""InitProducerId (key 22): allocates a producer id and an epoch. Ids are never reused, even after a restart.

With a transactional id the coordinator assigns the producer id of that id and fences its previous producer (KIP-98,
KIP-360). In version 6 it may ask for transactions that never time out (KIP-939); brokers offer that version only with
unstable.api.versions.enable.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.coordinator.transaction_metadata import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafka_sink.broker.handlers.authorization import is_allowed, refusal, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import ProducerIdAndEpoch
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 6)
#: Without unstable.api.versions.enable.
STABLE_VERSIONS: Final = VersionRange(0, 5)
#: Clients of older versions do not support PRODUCER_FENCED.
_FIRST_WITH_PRODUCER_FENCED: Final = 4
_log: Final = ContextLogger(__name__, "")


def handle(context: BrokerContext, request: ApiRequest[InitProducerIdRequest]) -> None:
    """Answer with an id and an epoch."""
    try:
        given = _init(context, request)
    except ApiError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_WITH_PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        request.respond(InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH))
        return
    request.respond(InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.epoch))


def _init(context: BrokerContext, request: ApiRequest[InitProducerIdRequest]) -> ProducerIdAndEpoch:
    body = request.body
    if body.transactional_id is not None:
        require(context, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        _require_two_phase(context, request, body.transactional_id)
    elif not _may_write_idempotently(context, request):
        raise refusal(request, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    expected = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_PRODUCER_EPOCH):
        raise ApiError("a producer must have both an id and an epoch, or neither", ErrorCode.INVALID_REQUEST)
    if body.transactional_id is None:
        return _new_id(context)
    return context.transactions_for(body.transactional_id).init_producer_id(
        body.transactional_id,
        body.transaction_timeout_ms,
        None if expected.producer_id == NO_PRODUCER_ID else expected,
        two_phase=body.enable2_pc,
    )


def _require_two_phase(
    context: BrokerContext, request: ApiRequest[InitProducerIdRequest], transactional_id: str
) -> None:
    """:raises ApiError: if the request wants what only two-phase commit has, and may not have it."""
    if request.body.enable2_pc:
        require(context, request, AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not context.config.transaction_two_phase_commit_enable:
            # As Kafka: the code of a missing permission.
            text = "transaction.two.phase.commit.enable is false"
            raise ApiError(text, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.body.keep_prepared_txn:
        raise ApiError("an open transaction cannot be kept", ErrorCode.UNSUPPORTED_VERSION)


def _may_write_idempotently(context: BrokerContext, request: ApiRequest[InitProducerIdRequest]) -> bool:
    """Whoever may write to any topic may write idempotently (KIP-679)."""
    return is_allowed(context, request, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) or (
        context.authorizer.allows_any(request.principal, request.client_address, AclOperation.WRITE, ResourceType.TOPIC)
    )


def _new_id(context: BrokerContext) -> ProducerIdAndEpoch:
    try:
        return ProducerIdAndEpoch(context.cluster.allocate_producer_id(), 0)
    except OSError as error:
        _log.error("cannot reserve producer ids: %s", error)
        raise ApiError(f"cannot reserve producer ids: {error}", ErrorCode.COORDINATOR_NOT_AVAILABLE) from error


API: Final = ApiHandler(ApiKey.INIT_PRODUCER_ID, VERSIONS, handle)
