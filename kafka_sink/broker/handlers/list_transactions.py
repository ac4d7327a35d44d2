"""ListTransactions (key 66): the transactional ids that a node coordinates (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

import re
from typing import Final

from kafka_sink.broker.coordinator.transaction_metadata import TransactionMetadata, TransactionState
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import list_transactions as messages
from kafka_sink.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)
_KNOWN_STATES: Final = frozenset(TransactionState)


def handle(context: BrokerContext, request: ApiRequest[ListTransactionsRequest]) -> None:
    """Answer with what passes every filter."""
    body = request.body
    try:
        pattern = re.compile(body.transactional_id_pattern) if body.transactional_id_pattern else None
    except re.error:
        request.respond(ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION))
        return
    now_ms = context.clock.wall_ms()
    found = [
        messages.TransactionState(each.transactional_id, each.producer_id, each.state)
        for each in context.transactions.all()
        if _passes(each, body, pattern, now_ms)
        and context.cluster.coordinator_for(each.transactional_id) == context.node_id
    ]
    unknown = [state for state in body.state_filters if state not in _KNOWN_STATES]
    request.respond(ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found))


def _passes(
    metadata: TransactionMetadata, body: ListTransactionsRequest, pattern: re.Pattern[str] | None, now_ms: int
) -> bool:
    if body.state_filters and metadata.state not in body.state_filters:
        return False
    if body.producer_id_filters and metadata.producer_id not in body.producer_id_filters:
        return False
    if body.duration_filter >= 0 and now_ms - metadata.start_ms <= body.duration_filter:
        return False
    return pattern is None or pattern.fullmatch(metadata.transactional_id) is not None


API: Final = ApiHandler(ApiKey.LIST_TRANSACTIONS, VERSIONS, handle)
