"""Produce (key 0): appends batches to the logs of the partitions that this node leads.

An answer with an offset means that the operating system has the batch; with ``log.flush.interval.messages=1``, that it
is on disk. Versions 13 and up identify topics by id (KIP-516); answers of versions 10 and up include a new leader
(KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.coordinator.transaction_coordinator import FIRST_PRODUCE_THAT_ADDS
from kafka_sink.broker.handlers.authorization import is_allowed, refusal, refuse, require_topic
from kafka_sink.broker.handlers.context import (
    ApiHandler,
    ApiRequest,
    BrokerContext,
    asked_topic,
    leaders_named,
    no_such_topic,
)
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.log.producer_state import VerificationGuard
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode, InvalidRecordError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafka_sink.protocol.schema import VersionRange
from kafka_sink.records.batch import BatchHeader, is_transactional
from kafka_sink.records.validation import validate_batch

VERSIONS: Final = VersionRange(3, 13)
_FIRST_WITH_NEW_LEADER: Final = 10
_NO_ACKS: Final = 0
_ALL_ACKS: Final = -1
_log: Final = ContextLogger(__name__, "")


def handle(context: BrokerContext, request: ApiRequest[ProduceRequest]) -> None:
    """Append all batches, then answer for each partition (with acks=0 there is no answer)."""
    if _is_refused(context, request):
        return
    responses = [_produce_topic(context, request, topic) for topic in request.body.topic_data]
    now_ms = context.clock.monotonic_ms()
    throttle_ms = context.producer_quota.record(request.client_id, request.size_in_bytes, now_ms, user=request.user)
    failed = [part for topic in responses for part in topic.partition_responses if part.error_code]
    if request.body.acks == _NO_ACKS:
        if failed:
            # The client expects no answer; only a closed connection shows the error.
            _log.info("closing a connection of %s: its acks=0 write failed: %s", request.client_id, failed[0])
            request.close_connection()
            return
        request.throttle(throttle_ms, context.timer, now_ms)
        request.respond_nothing()
    else:
        request.throttle(throttle_ms, context.timer, now_ms)
        leaders = leaders_named(context, (part.current_leader.leader_id for part in failed), request.listener_name)
        request.respond(ProduceResponse(responses, throttle_ms, [NodeEndpoint(*leader) for leader in leaders]))
    _wake_fetches(context, request)


def _is_refused(context: BrokerContext, request: ApiRequest[ProduceRequest]) -> bool:
    """Whether the client may not use the transactional id; the request is answered then."""
    body = request.body
    parts = (part.records for topic in body.topic_data for part in topic.partition_data)
    if not any(isinstance(records, memoryview) and is_transactional(records) for records in parts):
        return False
    transactional_id = body.transactional_id
    if transactional_id is not None and is_allowed(
        context, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return False
    error = refusal(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id or "")
    if body.acks == _NO_ACKS:
        request.close_connection()
    else:
        refuse(request, error)
    return True


def _wake_fetches(context: BrokerContext, request: ApiRequest[ProduceRequest]) -> None:
    # After the answer, so that completing delayed fetches does not delay the producer.
    for data in request.body.topic_data:
        topic = asked_topic(context, request, data.name, data.topic_id)
        if topic is not None:
            for partition in data.partition_data:
                context.purgatory.check(TopicPartition(topic.name, partition.index))


def _produce_topic(
    context: BrokerContext, request: ApiRequest[ProduceRequest], data: TopicProduceData
) -> TopicProduceResponse:
    topic = asked_topic(context, request, data.name, data.topic_id)
    parts = []
    for partition in data.partition_data:
        try:
            require_topic(context, request, AclOperation.WRITE, topic, data.name)
            if topic is None:
                raise no_such_topic(request)
            parts.append(_produce_partition(context, request, topic, partition))
        except ApiError as error:
            part = PartitionProduceResponse(partition.index, error.code, -1, error_message=str(error))
            if isinstance(error, InvalidRecordError) and topic is not None:
                part.record_errors = [BatchIndexAndErrorMessage(number, str(error)) for number in error.numbers]
                log = context.logs.get(TopicPartition(topic.name, partition.index))
                part.log_start_offset = log.start_offset if log is not None else 0
            moved = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= _FIRST_WITH_NEW_LEADER
            if topic is not None and moved:
                state = topic.partitions[partition.index]
                part.current_leader = LeaderIdAndEpoch(state.leader, state.leader_epoch)
            parts.append(part)
    return TopicProduceResponse(data.name, data.topic_id, parts)


def _produce_partition(
    context: BrokerContext, request: ApiRequest[ProduceRequest], topic: TopicState, data: PartitionProduceData
) -> PartitionProduceResponse:
    acks = request.body.acks
    if acks not in (_ALL_ACKS, _NO_ACKS, 1):
        raise ApiError(f"acks {acks} is not one of 0, 1, -1", ErrorCode.INVALID_REQUIRED_ACKS)
    partition = context.led_partition(topic, data.index)
    if acks == _ALL_ACKS:
        in_sync = sum(replica in context.cluster.nodes for replica in partition.replicas)
        if in_sync < topic.settings.min_insync_replicas:
            raise ApiError(f"{in_sync} replicas are in sync", ErrorCode.NOT_ENOUGH_REPLICAS)
    # Decoding returns a memoryview or None; record sets of several buffers occur only in clients that encode requests.
    assert data.records is None or isinstance(data.records, memoryview)
    batch, header = validate_batch(data.records, topic.settings.batches, context.clock.wall_ms(), request.version)
    log = context.log_of(topic, data.index)
    with _admitted(context, request, TopicPartition(topic.name, data.index), log, header) as guard:
        appended = log.append(batch, header, partition.leader_epoch, context.clock.wall_ms(), guard)
    return PartitionProduceResponse(
        data.index,
        ErrorCode.NONE,
        appended.base_offset,
        appended.log_append_time_ms,
        appended.log_start_offset,
    )


@contextmanager
def _admitted(
    context: BrokerContext,
    request: ApiRequest[ProduceRequest],
    partition: TopicPartition,
    log: PartitionLog,
    header: BatchHeader,
) -> Iterator[VerificationGuard | None]:
    """Verify with the coordinator that a transaction's first batch in *log* belongs to the transaction (KIP-890)."""
    if not header.is_transactional:
        yield None
        return
    transactional_id = request.body.transactional_id
    assert transactional_id is not None, "requests with transactional batches and no id are refused"
    producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
    version = TransactionVersion.V2 if request.version >= FIRST_PRODUCE_THAT_ADDS else TransactionVersion.V1
    now_ms = context.clock.wall_ms()
    guard = log.begin_verification(*producer, header.base_sequence, now_ms, transaction_version=version)
    if guard is None:
        yield None
        return
    try:
        context.transactions.admit_produce(transactional_id, producer, partition, request.version)
        yield guard
    finally:
        log.end_verification(guard)


API: Final = ApiHandler(ApiKey.PRODUCE, VERSIONS, handle)
