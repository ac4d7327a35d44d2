"""ListTransactions (key 66): the transactional ids that a node coordinates (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.coordinator.transaction_metadata import TransactionMetadata, TransactionState
from kafka_sink.broker.handlers.authorization import is_allowed
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.broker.re2 import full_matches
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import list_transactions as messages
from kafka_sink.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)
_KNOWN_STATES: Final = frozenset(TransactionState)


def handle(context: BrokerContext, request: ApiRequest[ListTransactionsRequest]) -> None:
    """Answer with the ids that match all filters."""
    body = request.body
    now_ms = context.clock.wall_ms()
    found = [
        each
        for each in context.transactions.all()
        if _passes(each, body, now_ms) and context.cluster.coordinator_for(each.transactional_id) == context.node_id
    ]
    if body.transactional_id_pattern:
        try:
            ids = set(full_matches(body.transactional_id_pattern, (each.transactional_id for each in found)))
        except ValueError:
            request.respond(ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION))
            return
        found = [each for each in found if each.transactional_id in ids]
    found = [
        each
        for each in found
        if is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
    ]
    states = [messages.TransactionState(each.transactional_id, each.producer_id, each.state) for each in found]
    unknown = [state for state in body.state_filters if state not in _KNOWN_STATES]
    request.respond(ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states))


def _passes(metadata: TransactionMetadata, body: ListTransactionsRequest, now_ms: int) -> bool:
    if body.state_filters and metadata.state not in body.state_filters:
        return False
    if body.producer_id_filters and metadata.producer_id not in body.producer_id_filters:
        return False
    return body.duration_filter < 0 or now_ms - metadata.start_ms > body.duration_filter


API: Final = ApiHandler(ApiKey.LIST_TRANSACTIONS, VERSIONS, handle)
