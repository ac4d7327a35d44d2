"""EndTxn (key 26): commits or aborts a transaction.

The answer means that the outcome is decided permanently; markers are written after it. Version 5 is for transactions
with an epoch each (KIP-890), and returns the next epoch.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import ProducerIdAndEpoch, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 5)
_FIRST_WITH_PRODUCER_FENCED: Final = 2
_FIRST_WITH_EPOCH_BUMP: Final = 5


def handle(context: BrokerContext, request: ApiRequest[EndTxnRequest]) -> None:
    """Decide the outcome, answer, and write the markers."""
    body = request.body
    bumps = request.version >= _FIRST_WITH_EPOCH_BUMP
    try:
        require(context, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        after = context.transactions_for(body.transactional_id).end_transaction(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            TransactionVersion.V2 if bumps else TransactionVersion.V1,
            committed=body.committed,
        )
    except ApiError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_WITH_PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        request.respond(EndTxnResponse(error_code=code))
        return
    request.respond(EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.epoch))
    context.transactions.write_markers(body.transactional_id)


API: Final = ApiHandler(ApiKey.END_TXN, VERSIONS, handle)
