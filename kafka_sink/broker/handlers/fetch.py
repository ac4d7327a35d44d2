"""Fetch (key 1): reads batches from logs.

A fetch that needs more data than there is waits in the purgatory, not on a thread. Clients that request a session
(KIP-227) get none, as from Kafka if its session cache is full, and send all their partitions each time.

Versions 13 and up identify topics by id; answers of versions 16 and up include a new leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.delays import DelayedOperation
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, leaders_named
from kafka_sink.broker.handlers.topics import asked_topic, permitted_topic
from kafka_sink.broker.log.partition_log import LogRead
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import fetch as m
from kafka_sink.protocol.messages.metadata import LeaderIdAndEpoch

_NOWHERE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
_FIRST_WITH_NEW_LEADER: Final = 12
#: The epochs of requests with all their partitions: one that requests a session, and one that does not.
_WHOLE: Final = (0, -1)
#: Replica id of all clients that are not followers.
_CONSUMER: Final = -1
_FIRST_WITH_ENDPOINTS: Final = 16
_READ_COMMITTED: Final = 1
#: Limit on max_wait_ms: a delayed fetch outlives its connection, so clients must not make it wait for days.
_LONGEST_WAIT_MS: Final = 60_000
_log: Final = ContextLogger(__name__, "")


@dataclass(slots=True)
class _Reading:
    """One pass over the partitions of a fetch."""

    responses: list[m.FetchableTopicResponse]
    size: int
    failed: bool
    #: Whether it read from a segment that will not grow, for which Kafka does not delay readers.
    closed: bool
    #: Appended bytes of each log at the time it was read, to detect later appends.
    appended: dict[TopicPartition, int]
    #: Whether records of open transactions are excluded (read_committed).
    committed: bool


@api_handler(ApiKey.FETCH, "4-18")
def fetch(request: ApiRequest[m.FetchRequest]) -> None:
    """Answer at once if there are enough bytes or there is an error, else when there are, or after the maximum wait."""
    body = request.body
    if body.session_epoch not in _WHOLE:
        request.respond(m.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return
    reading = _read(request)
    min_bytes = min(body.min_bytes, _most_bytes(request))
    is_complete = reading.failed or reading.closed or reading.size >= min_bytes
    if is_complete or body.max_wait_ms <= 0 or not reading.appended:
        _respond(request, reading)
        return
    _delay(request, min_bytes - reading.size, reading)


def _most_bytes(request: ApiRequest[m.FetchRequest]) -> int:
    # More bytes than the quota allows would only throttle the client again and again.
    quota = request.broker.consumer_quota.most_bytes(request.client_id, request.user)
    return min(request.body.max_bytes, request.broker.config.fetch_max_bytes, quota)


def _delay(request: ApiRequest[m.FetchRequest], missing: int, reading: _Reading) -> None:
    seen, committed = reading.appended, reading.committed

    # The bytes read so far are not kept; they are read again for the answer.
    def satisfied() -> bool:
        return _more_than(request.broker, seen, missing, committed=committed) or not _still_led(request)

    def finish() -> None:
        try:
            _respond(request, _read(request))
        except Exception:
            # This runs on the appending thread, which must not be affected by an error here.
            _log.exception("a delayed fetch of %s failed, closing its connection", request.client_id)
            request.close_connection()

    due_ms = request.broker.clock.monotonic_ms() + min(request.body.max_wait_ms, _LONGEST_WAIT_MS)
    request.broker.purgatory.watch(DelayedOperation(satisfied, finish), list(seen), due_ms)


def _more_than(context: BrokerContext, seen: dict[TopicPartition, int], missing: int, *, committed: bool) -> bool:
    """Whether *missing* bytes were appended since the read, or a log was deleted."""
    more = 0
    for partition, before in seen.items():
        log = context.logs.get(partition)
        if log is None:
            if before:
                return True
            continue
        more += log.appended_bytes(committed=committed) - before
    return more >= missing


def _still_led(request: ApiRequest[m.FetchRequest]) -> bool:
    try:
        for data in request.body.topics:
            topic = asked_topic(request, data.topic, data.topic_id)
            if isinstance(topic, ApiError):
                return False
            for part in data.partitions:
                request.broker.led_partition(topic, part.partition)
    except ApiError:
        return False
    return True


def _read(request: ApiRequest[m.FetchRequest]) -> _Reading:
    committed = request.body.isolation_level == _READ_COMMITTED
    reading = _Reading([], 0, failed=False, closed=False, appended={}, committed=committed)
    budget = min(_most_bytes(request), request.broker.response_budget.available_bytes)
    for data in request.body.topics:
        topic = _readable_topic(request, data)
        parts = []
        for partition in data.partitions:
            if isinstance(topic, ApiError):
                reading.failed = True
                parts.append(_failed(partition, topic))
                continue
            try:
                part = _read_partition(request.broker, topic, partition, budget - reading.size, reading)
            except ApiError as error:
                reading.failed = True
                part = _failed(partition, error)
                if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= _FIRST_WITH_NEW_LEADER:
                    state = topic.partitions[part.partition_index]
                    part.current_leader = LeaderIdAndEpoch(state.leader, state.leader_epoch)
            parts.append(part)
        reading.responses.append(m.FetchableTopicResponse(data.topic, data.topic_id, parts))
    return reading


def _readable_topic(request: ApiRequest[m.FetchRequest], data: m.FetchTopic) -> TopicState | ApiError:
    if max(request.body.replica_id, request.body.replica_state.replica_id) == _CONSUMER:
        return permitted_topic(request, AclOperation.READ, data.topic, data.topic_id)
    if not request.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        # A follower gets the error of topics, for each topic.
        return ApiError("followers need CLUSTER_ACTION on CLUSTER", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return asked_topic(request, data.topic, data.topic_id)


def _read_partition(
    context: BrokerContext, topic: TopicState, partition: m.FetchPartition, budget: int, reading: _Reading
) -> m.PartitionData:
    committed = reading.committed
    context.led_partition(topic, partition.partition, partition.current_leader_epoch)
    key = TopicPartition(topic.name, partition.partition)
    log = context.logs.get(key)
    if log is not None:
        # The first batch of an answer is complete whatever the limits, so that readers make progress.
        limit = max(min(budget, partition.partition_max_bytes), 0)
        log_read = log.read(partition.fetch_offset, limit, whole_first_batch=reading.size == 0, committed=committed)
    elif partition.fetch_offset == 0:
        log_read = LogRead(b"", 0, 0, 0, 0)
    else:
        text = f"offset {partition.fetch_offset} is out of range: the log is empty"
        raise ApiError(text, ErrorCode.OFFSET_OUT_OF_RANGE)
    reading.appended[key] = log_read.appended_bytes
    reading.size += len(log_read.records)
    reading.closed = reading.closed or (log_read.is_closed and len(log_read.records) > 0)
    aborted = [m.AbortedTransaction(entry.producer_id, entry.first_offset) for entry in log_read.aborted]
    return m.PartitionData(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log_read.end_offset,
        last_stable_offset=log_read.last_stable_offset,
        log_start_offset=log_read.start_offset,
        aborted_transactions=aborted if committed else None,
        records=log_read.records,
    )


def _failed(partition: m.FetchPartition, error: ApiError) -> m.PartitionData:
    return m.PartitionData(
        partition_index=partition.partition,
        error_code=error.code,
        high_watermark=-1,
        # As in Kafka: empty if there is no log, null if reading it failed.
        aborted_transactions=[] if error.code in _NOWHERE else None,
        records=b"",
    )


def _respond(request: ApiRequest[m.FetchRequest], reading: _Reading) -> None:
    quota, budget = request.broker.consumer_quota, request.broker.response_budget
    now_ms = request.broker.clock.monotonic_ms()
    throttle_ms = quota.record(request.client_id, reading.size, now_ms, user=request.user)
    request.throttle(throttle_ms, now_ms)
    if throttle_ms and reading.size <= quota.most_bytes(request.client_id, request.user):
        # KIP-219: the client fetches again after the throttle time. A batch larger than any quota is sent now;
        # otherwise it would never be sent.
        quota.unrecord(request.client_id, reading.size, user=request.user)
        request.respond(m.FetchResponse(throttle_time_ms=throttle_ms))
        return
    named = reading.failed and request.version >= _FIRST_WITH_ENDPOINTS
    parts = [part for topic in reading.responses for part in topic.partitions] if named else []
    leaders = leaders_named(request, (part.current_leader.leader_id for part in parts))
    response = m.FetchResponse(throttle_ms, ErrorCode.NONE, responses=reading.responses, node_endpoints=leaders)
    budget.reserve(reading.size)
    try:
        request.respond(response, lambda: budget.release(reading.size))
    except BaseException:
        budget.release(reading.size)
        raise
