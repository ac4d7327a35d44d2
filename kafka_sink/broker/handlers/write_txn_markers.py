"""WriteTxnMarkers (key 27): the outcome of transactions, for partitions that this node leads.

Brokers send it to each other; operators use it to end a transaction that no coordinator has any longer (KIP-664).
"""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import is_allowed, is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka_sink.protocol.schema import VersionRange
from kafka_sink.records.control import EndTransactionMarker

VERSIONS: Final = VersionRange(1, 2)


def handle(context: BrokerContext, request: ApiRequest[WriteTxnMarkersRequest]) -> None:
    """Write all valid markers, and answer for each partition."""
    is_operator = is_allowed(context, request, AclOperation.ALTER, ResourceType.CLUSTER)
    if not is_operator and is_refused(context, request, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return
    results = [_write(context, marker) for marker in request.body.markers]
    request.respond(WriteTxnMarkersResponse(markers=results))


def _write(context: BrokerContext, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = EndTransactionMarker(
        asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch
    )
    return WritableTxnMarkerResult(
        asked.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(
                        index, _write_partition(context, topic.name, index, marker, asked.transaction_version)
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


def _write_partition(
    context: BrokerContext, name: str, index: int, marker: EndTransactionMarker, version: int
) -> ErrorCode:
    try:
        topic = context.cluster.topic(name)
        if topic is None:
            raise ApiError(f"topic {name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        context.led_partition(topic, index)
        context.markers.write_partition(TopicPartition(name, index), marker, version)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


API: Final = ApiHandler(ApiKey.WRITE_TXN_MARKERS, VERSIONS, handle)
