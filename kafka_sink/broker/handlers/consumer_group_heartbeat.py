"""ConsumerGroupHeartbeat (key 68): a member of a group joins, stays in it or leaves it (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from kafka_sink.broker.coordinator.assignors import TopicIdPartition
from kafka_sink.broker.coordinator.consumer_groups import ConsumerHeartbeat
from kafka_sink.broker.handlers.authorization import is_allowed, refusal, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)
_FIRST_WITH_OWN_IDS: Final = 1


def handle(context: BrokerContext, request: ApiRequest[ConsumerGroupHeartbeatRequest]) -> None:
    """Pass the heartbeat to the group coordinator."""
    try:
        request.respond(_answer(context, request))
    except ApiError as error:
        request.respond(ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error)))


def _answer(
    context: BrokerContext, request: ApiRequest[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse:
    body = request.body
    require(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id)

    def may_describe(topic: str) -> bool:
        return is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)

    for name in body.subscribed_topic_names or ():
        if not may_describe(name):
            raise refusal(request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    heartbeat = ConsumerHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topic_names=frozenset(body.subscribed_topic_names) if body.subscribed_topic_names is not None else None,
        topic_regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=_owned(body.topic_partitions) if body.topic_partitions is not None else None,
        client_id=request.client_id,
        client_host=request.client_host,
        may_describe=may_describe,
        names_itself=request.version >= _FIRST_WITH_OWN_IDS,
    )
    result = context.groups_for(body.group_id).consumer_heartbeat(heartbeat)
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.epoch,
        # A member that leaves sends no more of them.
        heartbeat_interval_ms=context.config.group_consumer_heartbeat_interval_ms if result.epoch >= 0 else 0,
        assignment=Assignment(_by_topic(result.assignment)) if result.assignment is not None else None,
    )


def _owned(topics: Iterable[TopicPartitions]) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic.topic_id, index) for topic in topics for index in topic.partitions)


def _by_topic(partitions: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id, [each.partition for each in of_topic])
        for topic_id, of_topic in groupby(sorted(partitions), key=lambda each: each.topic_id)
    ]


API: Final = ApiHandler(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSIONS, handle)
