"""DescribeTransactions (key 65): the coordinator's state of transactional ids (KIP-664)."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from kafka_sink.broker.coordinator.transaction_metadata import TransactionMetadata
from kafka_sink.broker.handlers.authorization import is_allowed, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 0)


def handle(context: BrokerContext, request: ApiRequest[DescribeTransactionsRequest]) -> None:
    """Answer for each id."""
    states = [_describe(context, request, each) for each in dict.fromkeys(request.body.transactional_ids)]
    request.respond(DescribeTransactionsResponse(transaction_states=states))


def _describe(
    context: BrokerContext, request: ApiRequest[DescribeTransactionsRequest], transactional_id: str
) -> TransactionState:
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        metadata = context.transactions_for(transactional_id).find(transactional_id)
    except ApiError as error:
        return TransactionState(error.code, transactional_id)
    if metadata is None:
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    return TransactionState(
        ErrorCode.NONE,
        transactional_id,
        metadata.state,
        metadata.timeout_ms,
        metadata.start_ms,
        metadata.producer_id,
        metadata.producer_epoch,
        [
            topic
            for topic in _topics(metadata)
            if is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        ],
    )


def _topics(metadata: TransactionMetadata) -> list[TopicData]:
    by_topic = groupby(sorted(metadata.partitions), key=lambda partition: partition.topic)
    return [TopicData(topic, [partition.partition for partition in partitions]) for topic, partitions in by_topic]


API: Final = ApiHandler(ApiKey.DESCRIBE_TRANSACTIONS, VERSIONS, handle)
