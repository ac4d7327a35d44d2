"""ConsumerGroupDescribe (key 69): the members of groups, what they have and what they are to have (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from kafka_sink.broker.coordinator.assignors import TopicIdPartition
from kafka_sink.broker.coordinator.consumer_group import ConsumerGroup, ConsumerMember
from kafka_sink.broker.handlers.authorization import is_allowed, operations, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)
#: The type of a member that speaks the consumer protocol.
_CONSUMER: Final = 1


def handle(context: BrokerContext, request: ApiRequest[ConsumerGroupDescribeRequest]) -> None:
    """Describe each group that this node coordinates."""
    groups = [_described(context, request, group_id) for group_id in dict.fromkeys(request.body.group_ids)]
    request.respond(ConsumerGroupDescribeResponse(groups=groups))


def _described(
    context: BrokerContext, request: ApiRequest[ConsumerGroupDescribeRequest], group_id: str
) -> DescribedGroup:
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        group = context.groups_for(group_id).describe_consumers(group_id)
        described = _group(context, group)
        _require_topics(context, request, described)
    except ApiError as error:
        return DescribedGroup(error.code, str(error), group_id, "", 0, 0, "", [])
    if request.body.include_authorized_operations:
        described.authorized_operations = operations(context, request, ResourceType.GROUP, group_id)
    return described


def _require_topics(
    context: BrokerContext, request: ApiRequest[ConsumerGroupDescribeRequest], group: DescribedGroup
) -> None:
    """:raises ApiError: TOPIC_AUTHORIZATION_FAILED if the client may not know of a topic that a member has."""
    assignments = (each for member in group.members for each in (member.assignment, member.target_assignment))
    names = {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}
    if not all(is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        text = "The group has described topic(s) that the client is not authorized to describe."
        raise ApiError(text, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _group(context: BrokerContext, group: ConsumerGroup) -> DescribedGroup:
    members = [
        _member(context, member, group.targets.get(member.member_id, frozenset())) for member in group.members.values()
    ]
    return DescribedGroup(
        ErrorCode.NONE, None, group.group_id, group.state, group.epoch, group.assignment_epoch, group.assignor, members
    )


def _member(context: BrokerContext, member: ConsumerMember, target: Iterable[TopicIdPartition]) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.topic_names),
        member.topic_regex,
        # It has what it is to give up until it says that it has done so.
        _assignment(context, (*member.assigned, *member.revoking)),
        _assignment(context, target),
        _CONSUMER,
    )


def _assignment(context: BrokerContext, partitions: Iterable[TopicIdPartition]) -> Assignment:
    by_topic = groupby(sorted(partitions), key=lambda each: each.topic_id)
    found = [(context.cluster.topic_by_id(topic_id), [each.partition for each in mine]) for topic_id, mine in by_topic]
    return Assignment(
        [TopicPartitions(topic.topic_id, topic.name, indexes) for topic, indexes in found if topic is not None]
    )


API: Final = ApiHandler(ApiKey.CONSUMER_GROUP_DESCRIBE, VERSIONS, handle)
