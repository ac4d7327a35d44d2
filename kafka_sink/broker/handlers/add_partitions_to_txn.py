"""AddPartitionsToTxn (key 24): adds partitions to a transaction before it writes to them.

Clients use versions up to 3, for one transaction. Versions 4 and up are for brokers, which send several transactions
and may only verify whether the partitions are part of them already (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from kafka_sink.broker.handlers.authorization import is_allowed, is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 5)
_FIRST_WITH_PRODUCER_FENCED: Final = 2
_FIRST_OF_BROKERS: Final = 4


def handle(context: BrokerContext, request: ApiRequest[AddPartitionsToTxnRequest]) -> None:
    """Answer for each transaction and each of its partitions."""
    body = request.body
    if request.version >= _FIRST_OF_BROKERS:
        if is_refused(context, request, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return
        results = [_handle_transaction(context, transaction) for transaction in body.transactions]
        request.respond(AddPartitionsToTxnResponse(results_by_transaction=results))
        return
    transactional_id = body.v3_and_below_transactional_id
    if is_refused(context, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return
    producer = ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)

    def add(partitions: frozenset[TopicPartition]) -> ErrorCode:
        try:
            transactions = context.transactions_for(transactional_id)
            transactions.add_partitions(transactional_id, producer, partitions, TransactionVersion.V1)
        except ApiError as error:
            if error.code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_WITH_PRODUCER_FENCED:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            return error.code
        return ErrorCode.NONE

    asked = body.v3_and_below_topics
    allowed = {
        topic.name
        for topic in asked
        if is_allowed(context, request, AclOperation.WRITE, ResourceType.TOPIC, topic.name)
    }
    topics = _add_known(context, asked, add, allowed)
    request.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))


def _handle_transaction(context: BrokerContext, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    transactional_id = transaction.transactional_id
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return AddPartitionsToTxnResult(transactional_id, _verify(context, transaction, producer))

    def add(partitions: frozenset[TopicPartition]) -> ErrorCode:
        try:
            transactions = context.transactions_for(transactional_id)
            transactions.add_partitions(transactional_id, producer, partitions, TransactionVersion.V2)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    return AddPartitionsToTxnResult(
        transactional_id, _add_known(context, transaction.topics, add, {topic.name for topic in transaction.topics})
    )


def _verify(
    context: BrokerContext, transaction: AddPartitionsToTxnTransaction, producer: ProducerIdAndEpoch
) -> list[AddPartitionsToTxnTopicResult]:
    asked = frozenset(_partitions(transaction.topics))
    try:
        transactions = context.transactions_for(transaction.transactional_id)
        missing = transactions.verify_partitions(transaction.transactional_id, producer, asked)
    except ApiError as error:
        code = error.code
        return _results(transaction.topics, lambda partition: code)
    return _results(
        transaction.topics,
        lambda partition: ErrorCode.TRANSACTION_ABORTABLE if partition in missing else ErrorCode.NONE,
    )


def _add_known(
    context: BrokerContext,
    topics: Sequence[AddPartitionsToTxnTopic],
    add: Callable[[frozenset[TopicPartition]], ErrorCode],
    allowed: Collection[str],
) -> list[AddPartitionsToTxnTopicResult]:
    """Add all partitions or none: if one does not exist or is not of an *allowed* topic, none is added."""
    refused = {
        partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.topic in allowed
        else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for partition in _partitions(topics)
        if partition.topic not in allowed or not _exists(context, partition)
    }
    if refused:
        return _results(topics, lambda partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED))
    code = add(frozenset(_partitions(topics)))
    return _results(topics, lambda partition: code)


def _exists(context: BrokerContext, partition: TopicPartition) -> bool:
    topic = context.cluster.topic(partition.topic)
    return topic is not None and 0 <= partition.partition < len(topic.partitions)


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], code: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, code(TopicPartition(topic.name, index)))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


API: Final = ApiHandler(ApiKey.ADD_PARTITIONS_TO_TXN, VERSIONS, handle)
