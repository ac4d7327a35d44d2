"""AddOffsetsToTxn (key 25): adds the offsets of a group to a transaction (KIP-98)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import ProducerIdAndEpoch, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 4)
_FIRST_WITH_PRODUCER_FENCED: Final = 2


def handle(context: BrokerContext, request: ApiRequest[AddOffsetsToTxnRequest]) -> None:
    """Add the group's offsets as a participant."""
    body = request.body
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    code = ErrorCode.NONE
    try:
        require(context, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        require(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        transactions = context.transactions_for(body.transactional_id)
        groups = frozenset({body.group_id})
        transactions.add_partitions(body.transactional_id, producer, frozenset(), TransactionVersion.V1, groups=groups)
    except ApiError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_WITH_PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
    request.respond(AddOffsetsToTxnResponse(error_code=code))


API: Final = ApiHandler(ApiKey.ADD_OFFSETS_TO_TXN, VERSIONS, handle)
