"""ListOffsets (key 2): the start or end offset of a partition, or the offset for a time or the largest timestamp."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kafka_sink.broker.handlers.authorization import is_allowed, refusal
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, once
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.log.segment import TimestampOffset
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(1, 11)
_FIRST_WITH_LEADER_EPOCH: Final = 4
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL_TIMESTAMP: Final = -4
#: Both refer to remote storage, which is empty: the last offset there, and the first offset that is only local.
_LATEST_TIERED_TIMESTAMP: Final = -5
_EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
#: Special timestamps → the first versions that support them (KIP-734, KIP-405, KIP-1005, KIP-1023).
_FIRST_WITH: Final = {
    EARLIEST_TIMESTAMP: 1,
    LATEST_TIMESTAMP: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL_TIMESTAMP: 8,
    _LATEST_TIERED_TIMESTAMP: 9,
    _EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_READ_COMMITTED: Final = 1
_NOT_FOUND: Final = TimestampOffset(NO_TIMESTAMP, NO_OFFSET)


def handle(context: BrokerContext, request: ApiRequest[ListOffsetsRequest]) -> None:
    """Answer for each partition; a partition that is named twice is refused, as Kafka does."""
    times_named = Counter(
        (topic.name, asked.partition_index) for topic in request.body.topics for asked in topic.partitions
    )
    request.respond(
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [
                        ListOffsetsPartitionResponse(asked.partition_index, ErrorCode.INVALID_REQUEST)
                        if times_named[topic.name, asked.partition_index] > 1
                        else _list_partition(context, request, topic.name, asked)
                        for asked in once(topic.partitions, lambda asked: asked.partition_index)
                    ]
                    if is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
                    else _refused(request, topic),
                )
                for topic in request.body.topics
            ]
        )
    )


def _refused(request: ApiRequest[ListOffsetsRequest], topic: ListOffsetsTopic) -> list[ListOffsetsPartitionResponse]:
    code = refusal(request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name).code
    return [ListOffsetsPartitionResponse(asked.partition_index, code) for asked in topic.partitions]


def _list_partition(
    context: BrokerContext, request: ApiRequest[ListOffsetsRequest], name: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    try:
        topic = context.cluster.topic(name)
        if topic is None:
            raise ApiError("this topic does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = context.led_partition(topic, asked.partition_index, asked.current_leader_epoch)
        if asked.timestamp < 0 and request.version < _FIRST_WITH.get(asked.timestamp, VERSIONS.max + 1):
            raise ApiError(f"timestamp {asked.timestamp} is not supported", ErrorCode.UNSUPPORTED_VERSION)
        committed = request.body.isolation_level == _READ_COMMITTED
        found = _look_up(context, TopicPartition(name, asked.partition_index), asked.timestamp, committed=committed)
    except ApiError as error:
        return ListOffsetsPartitionResponse(asked.partition_index, error.code)
    told = request.version >= _FIRST_WITH_LEADER_EPOCH and found.offset != NO_OFFSET
    leader_epoch = state.leader_epoch if told else -1
    return ListOffsetsPartitionResponse(
        asked.partition_index, ErrorCode.NONE, found.timestamp, found.offset, leader_epoch
    )


def _look_up(context: BrokerContext, partition: TopicPartition, timestamp: int, *, committed: bool) -> TimestampOffset:
    log = context.logs.get(partition)
    if timestamp == LATEST_TIMESTAMP:
        return TimestampOffset(NO_TIMESTAMP, _end(log, committed=committed))
    if timestamp in (EARLIEST_TIMESTAMP, _EARLIEST_LOCAL_TIMESTAMP):
        return TimestampOffset(NO_TIMESTAMP, log.start_offset if log is not None else 0)
    if log is None or timestamp in (_LATEST_TIERED_TIMESTAMP, _EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _NOT_FOUND
    found = log.max_timestamp_record() if timestamp == _MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    # A read_committed consumer must not be given an offset that it cannot read yet.
    return found if found is not None and found.offset < _end(log, committed=committed) else _NOT_FOUND


def _end(log: PartitionLog | None, *, committed: bool) -> int:
    if log is None:
        return 0
    return log.last_stable_offset if committed else log.end_offset


API: Final = ApiHandler(ApiKey.LIST_OFFSETS, VERSIONS, handle)
