"""DeleteRecords (key 21): advances the start offset of logs (KIP-107)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import NO_OFFSET, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)
#: Selects the end of the log.
_HIGH_WATERMARK: Final = -1


def handle(context: BrokerContext, request: ApiRequest[DeleteRecordsRequest]) -> None:
    """Delete records of each partition; a failure does not affect the others."""
    topics = [
        DeleteRecordsTopicResult(
            topic.name, [_delete(context, request, topic.name, asked) for asked in topic.partitions]
        )
        for topic in request.body.topics
    ]
    request.respond(DeleteRecordsResponse(topics=topics))


def _delete(
    context: BrokerContext, request: ApiRequest[DeleteRecordsRequest], name: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        require(context, request, AclOperation.DELETE, ResourceType.TOPIC, name)
        topic = context.cluster.topic(name)
        if topic is None:
            raise ApiError("this topic does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        context.led_partition(topic, asked.partition_index)
        log = context.logs.get(TopicPartition(name, asked.partition_index))
        if log is not None:
            start = log.delete_records_before(asked.offset)
        elif asked.offset in (_HIGH_WATERMARK, 0):
            start = 0
        else:
            raise ApiError(f"offset {asked.offset} is out of range: the log is empty", ErrorCode.OFFSET_OUT_OF_RANGE)
    except ApiError as error:
        return DeleteRecordsPartitionResult(asked.partition_index, NO_OFFSET, error.code)
    return DeleteRecordsPartitionResult(asked.partition_index, start, ErrorCode.NONE)


API: Final = ApiHandler(ApiKey.DELETE_RECORDS, VERSIONS, handle)
