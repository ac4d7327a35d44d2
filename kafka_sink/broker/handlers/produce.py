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
from kafka_sink.broker.handlers.context import ApiRequest, api_handler, leaders_named
from kafka_sink.broker.handlers.topics import permitted_topic
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.log.producer_state import VerificationGuard
from kafka_sink.broker.network.request_channel import NoOpResponse
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode, InvalidRecordError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import produce as m
from kafka_sink.protocol.messages.metadata import LeaderIdAndEpoch
from kafka_sink.records.batch import BatchHeader, is_transactional
from kafka_sink.records.validation import validate_batch

_FIRST_WITH_NEW_LEADER: Final = 10
_NO_ACKS: Final = 0
_ALL_ACKS: Final = -1
_ACKS: Final = (_ALL_ACKS, _NO_ACKS, 1)
_log: Final = ContextLogger(__name__, "")


@api_handler(ApiKey.PRODUCE, "3-13")
def produce(request: ApiRequest[m.ProduceRequest]) -> None:
    """Append all batches, then answer for each partition (with acks=0 there is no answer)."""
    body = request.body
    refused = _refused_transaction(request)
    topic_data = [] if refused is not None else body.topic_data
    topics = [_writable_topic(request, data) for data in topic_data]
    responses = [_produce_topic(request, data, topic) for data, topic in zip(topic_data, topics, strict=True)]
    failed = [part for topic in responses for part in topic.partition_responses if part.error_code]
    now_ms, quota = request.broker.clock.monotonic_ms(), request.broker.producer_quota
    throttle_ms = 0
    if refused is None:
        throttle_ms = quota.record(request.client_id, request.size_in_bytes, now_ms, user=request.user)
    if body.acks == _NO_ACKS and (refused is not None or failed):
        # The client expects no answer; only a closed connection shows the error.
        _log.info("closing a connection of %s: its acks=0 write failed: %s", request.client_id, refused or failed[0])
        request.close_connection()
        return
    request.throttle(throttle_ms, now_ms)
    if body.acks == _NO_ACKS:
        request.sink.send_response(NoOpResponse(request.request))
    elif refused is None:
        leaders = leaders_named(request, (part.current_leader.leader_id for part in failed))
        request.respond(m.ProduceResponse(responses, throttle_ms, leaders))
    else:
        request.refuse(refused)
    # After the answer, so that completing delayed fetches does not delay the producer.
    for topic, response in zip(topics, responses, strict=True):
        if isinstance(topic, TopicState):
            for part in response.partition_responses:
                request.broker.purgatory.check(TopicPartition(topic.name, part.index))


def _refused_transaction(request: ApiRequest[m.ProduceRequest]) -> ApiError | None:
    """The error if the request has batches of transactions and the client may not use its transactional id."""
    body = request.body
    parts = (part.records for topic in body.topic_data for part in topic.partition_data)
    if not any(isinstance(records, memoryview) and is_transactional(records) for records in parts):
        return None
    name = body.transactional_id
    if name is not None and request.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return None
    return request.refusal(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name or "")


def _writable_topic(request: ApiRequest[m.ProduceRequest], data: m.TopicProduceData) -> TopicState | ApiError:
    topic = permitted_topic(request, AclOperation.WRITE, data.name, data.topic_id)
    if isinstance(topic, TopicState) and request.body.acks not in _ACKS:
        return ApiError(f"acks {request.body.acks} is not one of 0, 1, -1", ErrorCode.INVALID_REQUIRED_ACKS)
    return topic


def _produce_topic(
    request: ApiRequest[m.ProduceRequest], data: m.TopicProduceData, topic: TopicState | ApiError
) -> m.TopicProduceResponse:
    parts = []
    for partition in data.partition_data:
        if isinstance(topic, ApiError):
            parts.append(m.PartitionProduceResponse(partition.index, topic.code, -1, error_message=str(topic)))
            continue
        try:
            parts.append(_produce_partition(request, topic, partition))
        except ApiError as error:
            part = m.PartitionProduceResponse(partition.index, error.code, -1, error_message=str(error))
            if isinstance(error, InvalidRecordError):
                part.record_errors = [m.BatchIndexAndErrorMessage(number, str(error)) for number in error.numbers]
                log = request.broker.logs.get(TopicPartition(topic.name, partition.index))
                part.log_start_offset = log.start_offset if log is not None else 0
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= _FIRST_WITH_NEW_LEADER:
                state = topic.partitions[partition.index]
                part.current_leader = LeaderIdAndEpoch(state.leader, state.leader_epoch)
            parts.append(part)
    return m.TopicProduceResponse(data.name, data.topic_id, parts)


def _produce_partition(
    request: ApiRequest[m.ProduceRequest], topic: TopicState, data: m.PartitionProduceData
) -> m.PartitionProduceResponse:
    context = request.broker
    partition = context.led_partition(topic, data.index)
    if request.body.acks == _ALL_ACKS:
        in_sync = sum(replica in context.cluster.nodes for replica in partition.replicas)
        if in_sync < min(topic.settings.min_insync_replicas, len(partition.replicas)):
            raise ApiError(f"{in_sync} replicas are in sync", ErrorCode.NOT_ENOUGH_REPLICAS)
    # Decoding returns a memoryview or None; record sets of several buffers occur only in clients that encode requests.
    assert data.records is None or isinstance(data.records, memoryview)
    batch, header = validate_batch(data.records, topic.settings.batches, context.clock.wall_ms(), request.version)
    log = context.log_of(topic, data.index)
    with _admitted(request, TopicPartition(topic.name, data.index), log, header) as guard:
        appended = log.append(batch, header, partition.leader_epoch, context.clock.wall_ms(), guard)
    return m.PartitionProduceResponse(
        data.index, ErrorCode.NONE, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


@contextmanager
def _admitted(
    request: ApiRequest[m.ProduceRequest], partition: TopicPartition, log: PartitionLog, header: BatchHeader
) -> Iterator[VerificationGuard | None]:
    """Verify with the coordinator that a transaction's first batch in *log* belongs to the transaction (KIP-890)."""
    if not header.is_transactional:
        yield None
        return
    context, transactional_id = request.broker, request.body.transactional_id
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
