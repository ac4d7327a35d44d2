"""Describes and ends transactions, for operators (KIP-664)."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from kafka_sink.broker.coordinator.consumer_groups import full_matches
from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata, TransactionState
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import transaction_admin as m
from kafka_sink.records.control import EndTransactionMarker


@api_handler(ApiKey.DESCRIBE_PRODUCERS, "0")
def describe_producers(request: ApiRequest[m.DescribeProducersRequest]) -> None:
    """DescribeProducers (key 61): the producers of a partition and the start of their transactions (KIP-664)."""
    # The partitions of each topic, once each.
    by_topic: dict[str, dict[int, None]] = {}
    for topic in request.body.topics:
        by_topic.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = [
        m.TopicResponse(name, [_describe(request, name, index) for index in indexes])
        for name, indexes in by_topic.items()
    ]
    request.respond(m.DescribeProducersResponse(topics=topics))


def _describe(request: ApiRequest[m.DescribeProducersRequest], name: str, index: int) -> m.PartitionResponse:
    try:
        request.require(AclOperation.READ, ResourceType.TOPIC, name)
        request.broker.led_partition(request.broker.topic(name), index)
    except ApiError as error:
        return m.PartitionResponse(index, error.code, str(error))
    log = request.broker.logs.get(TopicPartition(name, index))
    producers = log.producers() if log is not None else {}
    return m.PartitionResponse(
        index,
        ErrorCode.NONE,
        None,
        [
            m.ProducerState(
                producer_id,
                state.epoch,
                state.last_sequence,
                state.last_timestamp,
                state.coordinator_epoch,
                state.transaction_first_offset,
            )
            for producer_id, state in producers.items()
        ],
    )


_KNOWN_STATES: Final = frozenset(TransactionState)


@api_handler(ApiKey.LIST_TRANSACTIONS, "0-2")
def list_transactions(request: ApiRequest[m.ListTransactionsRequest]) -> None:
    """ListTransactions (key 66): the transactional ids that a node coordinates (KIP-664, KIP-994, KIP-1152)."""
    body = request.body
    now_ms = request.broker.clock.wall_ms()
    transactions = {
        transaction.transactional_id: transaction
        for transaction in request.broker.transactions.all()
        if _passes(transaction, body, now_ms)
        and request.broker.cluster.coordinator_for(transaction.transactional_id) == request.broker.node_id
    }
    names = list(transactions)
    if body.transactional_id_pattern:
        try:
            names = full_matches(body.transactional_id_pattern, names)
        except ValueError:
            request.respond(m.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION))
            return
    states = [
        m.ListedTransaction(name, transactions[name].producer_id, transactions[name].state)
        for name in names
        if request.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
    ]
    unknown = [state for state in body.state_filters if state not in _KNOWN_STATES]
    request.respond(m.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=states))


def _passes(metadata: TransactionMetadata, body: m.ListTransactionsRequest, now_ms: int) -> bool:
    if body.state_filters and metadata.state not in body.state_filters:
        return False
    if body.producer_id_filters and metadata.producer_id not in body.producer_id_filters:
        return False
    return body.duration_filter < 0 or now_ms - metadata.start_ms > body.duration_filter


@api_handler(ApiKey.DESCRIBE_TRANSACTIONS, "0")
def describe_transactions(request: ApiRequest[m.DescribeTransactionsRequest]) -> None:
    """DescribeTransactions (key 65): the coordinator's state of transactional ids (KIP-664). Answers for each id."""
    states = [_transaction(request, name) for name in dict.fromkeys(request.body.transactional_ids)]
    request.respond(m.DescribeTransactionsResponse(transaction_states=states))


def _transaction(request: ApiRequest[m.DescribeTransactionsRequest], transactional_id: str) -> m.TransactionState:
    try:
        request.require(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        metadata = request.broker.transactions_for(transactional_id).find(transactional_id)
    except ApiError as error:
        return m.TransactionState(error.code, transactional_id)
    if metadata is None:
        return m.TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    by_topic = groupby(sorted(metadata.partitions), key=lambda partition: partition.topic)
    topics = [
        m.TopicData(topic, [partition.partition for partition in partitions])
        for topic, partitions in by_topic
        if request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    ]
    return m.TransactionState(
        ErrorCode.NONE,
        transactional_id,
        metadata.state,
        metadata.timeout_ms,
        metadata.start_ms,
        metadata.producer_id,
        metadata.producer_epoch,
        topics,
    )


@api_handler(ApiKey.WRITE_TXN_MARKERS, "1-2")
def write_txn_markers(request: ApiRequest[m.WriteTxnMarkersRequest]) -> None:
    """WriteTxnMarkers (key 27): the outcome of transactions, for partitions that this node leads.

    Brokers send it to each other; operators use it to end a transaction that no coordinator has any longer (KIP-664).
    Writes all valid markers, and answers for each partition.
    """
    if not request.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        request.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    results = [_write(request.broker, marker) for marker in request.body.markers]
    request.respond(m.WriteTxnMarkersResponse(markers=results))


def _write(context: BrokerContext, writable: m.WritableTxnMarker) -> m.WritableTxnMarkerResult:
    marker = EndTransactionMarker(
        writable.producer_id, writable.producer_epoch, writable.transaction_result, writable.coordinator_epoch
    )
    # A partition that is named many times is written once.
    outcomes = {
        (name, index): _write_partition(context, name, index, marker, writable.transaction_version)
        for name, index in {(topic.name, index): None for topic in writable.topics for index in topic.partition_indexes}
    }
    topics = [
        m.WritableTxnMarkerTopicResult(
            topic.name,
            [
                m.WritableTxnMarkerPartitionResult(index, outcomes[topic.name, index])
                for index in topic.partition_indexes
            ],
        )
        for topic in writable.topics
    ]
    return m.WritableTxnMarkerResult(writable.producer_id, topics)


def _write_partition(
    context: BrokerContext, name: str, index: int, marker: EndTransactionMarker, version: int
) -> ErrorCode:
    try:
        context.led_partition(context.topic(name), index)
        context.markers.write_partition(TopicPartition(name, index), marker, version)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
