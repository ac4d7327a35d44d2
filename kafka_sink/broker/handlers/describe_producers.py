"""DescribeProducers (key 61): the producers of a partition, and the start offsets of their transactions (KIP-664)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 0)


def handle(context: BrokerContext, request: ApiRequest[DescribeProducersRequest]) -> None:
    """Answer for each partition."""
    request.respond(
        DescribeProducersResponse(
            topics=[
                TopicResponse(name, [_describe(context, request, name, index) for index in indexes])
                for name, indexes in _asked(request.body).items()
            ]
        )
    )


def _asked(body: DescribeProducersRequest) -> dict[str, dict[int, None]]:
    """The partitions of each topic, once each."""
    asked: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return asked


def _describe(
    context: BrokerContext, request: ApiRequest[DescribeProducersRequest], name: str, index: int
) -> PartitionResponse:
    try:
        require(context, request, AclOperation.READ, ResourceType.TOPIC, name)
        topic = context.cluster.topic(name)
        if topic is None:
            raise ApiError(f"topic {name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        context.led_partition(topic, index)
    except ApiError as error:
        return PartitionResponse(index, error.code, str(error))
    log = context.logs.get(TopicPartition(name, index))
    producers = log.producers() if log is not None else {}
    return PartitionResponse(
        index,
        ErrorCode.NONE,
        None,
        [
            ProducerState(
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


API: Final = ApiHandler(ApiKey.DESCRIBE_PRODUCERS, VERSIONS, handle)
