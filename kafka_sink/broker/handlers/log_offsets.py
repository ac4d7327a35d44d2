"""Offsets of logs: their lookup by time or leader epoch, and the deletion of records before an offset."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, once
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.log.segment import TimestampOffset
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import log_offsets as m

_FIRST_WITH_LEADER_EPOCH: Final = 4
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL_TIMESTAMP: Final = -4
#: Both refer to remote storage, which is empty: the last offset there, and the first offset that is only local.
_LATEST_TIERED_TIMESTAMP: Final = -5
_EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
#: Special timestamps → the first versions that support them (KIP-734, KIP-405, KIP-1005, KIP-1023).
_FIRST_WITH: Final = {
    m.EARLIEST_TIMESTAMP: 1,
    m.LATEST_TIMESTAMP: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL_TIMESTAMP: 8,
    _LATEST_TIERED_TIMESTAMP: 9,
    _EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_READ_COMMITTED: Final = 1
_NOT_FOUND: Final = TimestampOffset(NO_TIMESTAMP, NO_OFFSET)


@api_handler(ApiKey.LIST_OFFSETS, "1-11")
def list_offsets(request: ApiRequest[m.ListOffsetsRequest]) -> None:
    """ListOffsets (key 2): the start or end offset of a partition, or the offset for a time or the largest timestamp.
    Answers for each partition; a partition that is named twice is refused, as Kafka does."""
    body = request.body
    times_named = Counter((topic.name, part.partition_index) for topic in body.topics for part in topic.partitions)
    topics = [m.ListOffsetsTopicResponse(topic.name, _list_topic(request, topic, times_named)) for topic in body.topics]
    request.respond(m.ListOffsetsResponse(topics=topics))


def _list_topic(
    request: ApiRequest[m.ListOffsetsRequest], topic: m.ListOffsetsTopic, times_named: Counter[tuple[str, int]]
) -> list[m.ListOffsetsPartitionResponse]:
    if not request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
        code = request.refusal(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name).code
        return [m.ListOffsetsPartitionResponse(part.partition_index, code) for part in topic.partitions]
    return [
        m.ListOffsetsPartitionResponse(part.partition_index, ErrorCode.INVALID_REQUEST)
        if times_named[topic.name, part.partition_index] > 1
        else _list_partition(request, topic.name, part)
        for part in once(topic.partitions, lambda part: part.partition_index)
    ]


def _list_partition(
    request: ApiRequest[m.ListOffsetsRequest], name: str, part: m.ListOffsetsPartition
) -> m.ListOffsetsPartitionResponse:
    try:
        state = request.broker.led_partition(
            request.broker.topic(name), part.partition_index, part.current_leader_epoch
        )
        if part.timestamp < 0 and request.version < _FIRST_WITH.get(part.timestamp, list_offsets.versions.max + 1):
            raise ApiError(f"timestamp {part.timestamp} is not supported", ErrorCode.UNSUPPORTED_VERSION)
        committed = request.body.isolation_level == _READ_COMMITTED
        entry = _look_up(
            request.broker, TopicPartition(name, part.partition_index), part.timestamp, committed=committed
        )
    except ApiError as error:
        return m.ListOffsetsPartitionResponse(part.partition_index, error.code)
    has_epoch = request.version >= _FIRST_WITH_LEADER_EPOCH and entry.offset != NO_OFFSET
    leader_epoch = state.leader_epoch if has_epoch else -1
    return m.ListOffsetsPartitionResponse(
        part.partition_index, ErrorCode.NONE, entry.timestamp, entry.offset, leader_epoch
    )


def _look_up(context: BrokerContext, partition: TopicPartition, timestamp: int, *, committed: bool) -> TimestampOffset:
    log = context.logs.get(partition)
    if timestamp == m.LATEST_TIMESTAMP:
        return TimestampOffset(NO_TIMESTAMP, _end(log, committed=committed))
    if timestamp in (m.EARLIEST_TIMESTAMP, _EARLIEST_LOCAL_TIMESTAMP):
        return TimestampOffset(NO_TIMESTAMP, log.start_offset if log is not None else 0)
    if log is None or timestamp in (_LATEST_TIERED_TIMESTAMP, _EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _NOT_FOUND
    record = log.max_timestamp_record() if timestamp == _MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    # A read_committed consumer must not receive an offset that it cannot read yet.
    return record if record is not None and record.offset < _end(log, committed=committed) else _NOT_FOUND


def _end(log: PartitionLog | None, *, committed: bool) -> int:
    if log is None:
        return 0
    return log.last_stable_offset if committed else log.end_offset


_UNDEFINED: Final = (-1, -1)


@api_handler(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4")
def offset_for_leader_epoch(request: ApiRequest[m.OffsetForLeaderEpochRequest]) -> None:
    """OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, with which clients detect the truncation of a
    log (KIP-320). Answers for each partition."""
    topics = [
        m.OffsetForLeaderTopicResult(topic.topic, [_epoch_end(request, topic.topic, part) for part in topic.partitions])
        for topic in request.body.topics
    ]
    request.respond(m.OffsetForLeaderEpochResponse(topics=topics))


def _epoch_end(
    request: ApiRequest[m.OffsetForLeaderEpochRequest], name: str, part: m.OffsetForLeaderPartition
) -> m.EpochEndOffset:
    try:
        # Followers send this request as well, with the permission of brokers.
        if not request.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            request.require(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        state = request.broker.led_partition(request.broker.topic(name), part.partition, part.current_leader_epoch)
        epoch, end_offset = _end_of(
            request.broker, TopicPartition(name, part.partition), part.leader_epoch, state.leader_epoch
        )
    except ApiError as error:
        return m.EpochEndOffset(error.code, part.partition)
    return m.EpochEndOffset(ErrorCode.NONE, part.partition, epoch, end_offset)


def _end_of(context: BrokerContext, partition: TopicPartition, epoch: int, present: int) -> tuple[int, int]:
    if not 0 <= epoch <= present:
        return _UNDEFINED
    log = context.logs.get(partition)
    if log is None:
        return epoch, 0
    return (epoch, log.end_offset) if epoch == present else log.end_of_epoch(epoch)


#: Selects the end of the log.
_HIGH_WATERMARK: Final = -1


@api_handler(ApiKey.DELETE_RECORDS, "0-2")
def delete_records(request: ApiRequest[m.DeleteRecordsRequest]) -> None:
    """DeleteRecords (key 21): advances the start offset of logs (KIP-107)."""
    topics = [
        m.DeleteRecordsTopicResult(topic.name, [_delete(request, topic.name, part) for part in topic.partitions])
        for topic in request.body.topics
    ]
    request.respond(m.DeleteRecordsResponse(topics=topics))


def _delete(
    request: ApiRequest[m.DeleteRecordsRequest], name: str, part: m.DeleteRecordsPartition
) -> m.DeleteRecordsPartitionResult:
    try:
        request.require(AclOperation.DELETE, ResourceType.TOPIC, name)
        topic = request.broker.topic(name)
        request.broker.led_partition(topic, part.partition_index)
        if topic.settings.log.compaction is not None and not topic.settings.log.deletes:
            raise ApiError(f"records of {name} are compacted, and not deleted", ErrorCode.POLICY_VIOLATION)
        log = request.broker.logs.get(TopicPartition(name, part.partition_index))
        if log is not None:
            start = log.delete_records_before(part.offset)
        elif part.offset in (_HIGH_WATERMARK, 0):
            start = 0
        else:
            raise ApiError(f"offset {part.offset} is out of range: the log is empty", ErrorCode.OFFSET_OUT_OF_RANGE)
    except ApiError as error:
        return m.DeleteRecordsPartitionResult(part.partition_index, NO_OFFSET, error.code)
    return m.DeleteRecordsPartitionResult(part.partition_index, start, ErrorCode.NONE)
