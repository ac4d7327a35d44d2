"""The requests of transactional producers (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from kafka_sink.broker.coordinator.transaction_state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import transactions as m
from kafka_sink.protocol.schema import VersionRange

#: Without unstable.api.versions.enable.
STABLE_VERSIONS: Final = VersionRange(0, 5)
#: Clients of older versions do not support PRODUCER_FENCED.
_FIRST_WITH_PRODUCER_FENCED: Final = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
_log: Final = ContextLogger(__name__, "")


def _code(request: ApiRequest[Any], error: ApiError) -> ErrorCode:
    """The code of *error* that the client's version knows."""
    fenced = error.code is ErrorCode.PRODUCER_FENCED
    if fenced and request.version < _FIRST_WITH_PRODUCER_FENCED[request.api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


def _outcome(request: ApiRequest[Any], act: Callable[[], None]) -> ErrorCode:
    try:
        act()
    except ApiError as error:
        return _code(request, error)
    return ErrorCode.NONE


@api_handler(ApiKey.INIT_PRODUCER_ID, "0-6")
def init_producer_id(request: ApiRequest[m.InitProducerIdRequest]) -> None:
    """InitProducerId (key 22): allocates a producer id and an epoch. Ids are never reused, even after a restart.

    With a transactional id the coordinator assigns the producer id of that id and fences its previous producer (KIP-98,
    KIP-360). In version 6 it may request transactions that never time out (KIP-939); brokers offer that version only
    with unstable.api.versions.enable.
    """
    try:
        producer = _init(request)
    except ApiError as error:
        failed = m.InitProducerIdResponse(error_code=_code(request, error), producer_epoch=NO_PRODUCER_EPOCH)
        request.respond(failed)
        return
    request.respond(m.InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch))


def _init(request: ApiRequest[m.InitProducerIdRequest]) -> ProducerIdAndEpoch:
    body = request.body
    if body.transactional_id is not None:
        request.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        _require_two_phase(request, body.transactional_id)
    elif not _may_write_idempotently(request):
        raise request.refusal(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    expected = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_PRODUCER_EPOCH):
        raise ApiError("a producer must have both an id and an epoch, or neither", ErrorCode.INVALID_REQUEST)
    if body.transactional_id is None:
        return _new_id(request.broker)
    return request.broker.transactions_for(body.transactional_id).init_producer_id(
        body.transactional_id,
        body.transaction_timeout_ms,
        None if expected.producer_id == NO_PRODUCER_ID else expected,
        two_phase=body.enable2_pc,
    )


def _require_two_phase(request: ApiRequest[m.InitProducerIdRequest], transactional_id: str) -> None:
    """:raises ApiError: if the request uses a feature of two-phase commit that is not permitted or not supported."""
    if request.body.enable2_pc:
        request.require(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not request.broker.config.transaction_two_phase_commit_enable:
            # As Kafka: the code of a missing permission.
            text = "transaction.two.phase.commit.enable is false"
            raise ApiError(text, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.body.keep_prepared_txn:
        raise ApiError("an open transaction cannot be kept", ErrorCode.UNSUPPORTED_VERSION)


def _may_write_idempotently(request: ApiRequest[m.InitProducerIdRequest]) -> bool:
    """Whether the client may write idempotently, as any client that may write to some topic (KIP-679)."""
    return request.allows(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) or (
        request.broker.authorizer.allows_any(
            request.principal, request.client_address, AclOperation.WRITE, ResourceType.TOPIC
        )
    )


def _new_id(context: BrokerContext) -> ProducerIdAndEpoch:
    try:
        return ProducerIdAndEpoch(context.cluster.allocate_producer_id(), 0)
    except OSError as error:
        _log.error("cannot reserve producer ids: %s", error)
        raise ApiError(f"cannot reserve producer ids: {error}", ErrorCode.COORDINATOR_NOT_AVAILABLE) from error


_FIRST_OF_BROKERS: Final = 4


@api_handler(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5")
def add_partitions_to_txn(request: ApiRequest[m.AddPartitionsToTxnRequest]) -> None:
    """AddPartitionsToTxn (key 24): adds partitions to a transaction before it writes to them.

    Clients use versions up to 3, for one transaction. Versions 4 and up are for brokers, which send several
    transactions and may only verify whether the partitions are part of them already (KIP-890).
    """
    body = request.body
    if request.version >= _FIRST_OF_BROKERS:
        request.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        results = [_handle_transaction(request, transaction) for transaction in body.transactions]
        request.respond(m.AddPartitionsToTxnResponse(results_by_transaction=results))
        return
    transactional_id, requested_topics = body.v3_and_below_transactional_id, body.v3_and_below_topics
    request.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    producer = ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)

    def add(partitions: frozenset[TopicPartition]) -> None:
        transactions = request.broker.transactions_for(transactional_id)
        transactions.add_partitions(transactional_id, producer, partitions, TransactionVersion.V1)

    names = {topic.name for topic in requested_topics}
    allowed = {name for name in names if request.allows(AclOperation.WRITE, ResourceType.TOPIC, name)}
    topics = _add_known(request, requested_topics, add, allowed)
    request.respond(m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))


def _handle_transaction(
    request: ApiRequest[m.AddPartitionsToTxnRequest], transaction: m.AddPartitionsToTxnTransaction
) -> m.AddPartitionsToTxnResult:
    transactional_id = transaction.transactional_id
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        return m.AddPartitionsToTxnResult(transactional_id, _verify(request.broker, transaction, producer))

    def add(partitions: frozenset[TopicPartition]) -> None:
        transactions = request.broker.transactions_for(transactional_id)
        transactions.add_partitions(transactional_id, producer, partitions, TransactionVersion.V2)

    allowed = {topic.name for topic in transaction.topics}
    topics = _add_known(request, transaction.topics, add, allowed)
    return m.AddPartitionsToTxnResult(transactional_id, topics)


def _verify(
    context: BrokerContext, transaction: m.AddPartitionsToTxnTransaction, producer: ProducerIdAndEpoch
) -> list[m.AddPartitionsToTxnTopicResult]:
    partitions = frozenset(_partitions(transaction.topics))
    try:
        transactions = context.transactions_for(transaction.transactional_id)
        missing = transactions.verify_partitions(transaction.transactional_id, producer, partitions)
    except ApiError as error:
        code = error.code
        return _results(transaction.topics, lambda partition: code)
    return _results(
        transaction.topics,
        lambda partition: ErrorCode.TRANSACTION_ABORTABLE if partition in missing else ErrorCode.NONE,
    )


def _add_known(
    request: ApiRequest[m.AddPartitionsToTxnRequest],
    topics: Sequence[m.AddPartitionsToTxnTopic],
    add: Callable[[frozenset[TopicPartition]], None],
    allowed: Collection[str],
) -> list[m.AddPartitionsToTxnTopicResult]:
    """Add all partitions or none: if one does not exist or is not of an *allowed* topic, none is added."""
    refused = {
        partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.topic in allowed
        else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for partition in _partitions(topics)
        if partition.topic not in allowed or not request.broker.has_partition(partition)
    }
    if refused:
        return _results(topics, lambda partition: refused.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED))
    code = _outcome(request, lambda: add(frozenset(_partitions(topics))))
    return _results(topics, lambda partition: code)


def _partitions(topics: Sequence[m.AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _results(
    topics: Sequence[m.AddPartitionsToTxnTopic], code: Callable[[TopicPartition], ErrorCode]
) -> list[m.AddPartitionsToTxnTopicResult]:
    return [
        m.AddPartitionsToTxnTopicResult(
            topic.name,
            [
                m.AddPartitionsToTxnPartitionResult(index, code(TopicPartition(topic.name, index)))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


@api_handler(ApiKey.ADD_OFFSETS_TO_TXN, "0-4")
def add_offsets_to_txn(request: ApiRequest[m.AddOffsetsToTxnRequest]) -> None:
    """AddOffsetsToTxn (key 25): adds the offsets of a group to a transaction (KIP-98)."""
    body = request.body
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)

    def add() -> None:
        request.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        request.require(AclOperation.READ, ResourceType.GROUP, body.group_id)
        transactions = request.broker.transactions_for(body.transactional_id)
        groups = frozenset({body.group_id})
        transactions.add_partitions(body.transactional_id, producer, frozenset(), TransactionVersion.V1, groups=groups)

    request.respond(m.AddOffsetsToTxnResponse(error_code=_outcome(request, add)))


_FIRST_WITH_EPOCH_BUMP: Final = 5


@api_handler(ApiKey.END_TXN, "0-5")
def end_txn(request: ApiRequest[m.EndTxnRequest]) -> None:
    """EndTxn (key 26): commits or aborts a transaction.

    The answer means that the outcome is decided permanently; markers are written after it. Version 5 is for
    transactions with an epoch each (KIP-890), and returns the next epoch.
    """
    body = request.body
    bumps = request.version >= _FIRST_WITH_EPOCH_BUMP
    try:
        request.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        after = request.broker.transactions_for(body.transactional_id).end_transaction(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            TransactionVersion.V2 if bumps else TransactionVersion.V1,
            committed=body.committed,
        )
    except ApiError as error:
        request.respond(m.EndTxnResponse(error_code=_code(request, error)))
        return
    request.respond(m.EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.epoch))
    request.broker.transactions.write_markers(body.transactional_id)
