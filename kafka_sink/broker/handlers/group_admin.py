"""Lists, describes and deletes groups, for operators."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from kafka_sink.broker.coordinator.consumer_group import ConsumerGroup, ConsumerMember, TopicIdPartition
from kafka_sink.broker.coordinator.group_metadata import GroupState
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import group_admin as m


@api_handler(ApiKey.LIST_GROUPS, "0-5")
def list_groups(request: ApiRequest[m.ListGroupsRequest]) -> None:
    """ListGroups (key 16): the groups that this node coordinates, filtered by state and type (KIP-518, KIP-848)."""
    states = {state.strip().lower() for state in request.body.states_filter}
    types = {kind.strip().lower() for kind in request.body.types_filter}
    sees_all = request.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    listed = [
        m.ListedGroup(group.group_id, group.protocol_type, group.state, group.kind)
        for group in request.broker.groups.all()
        if request.broker.cluster.coordinator_for(group.group_id) == request.broker.node_id
        and (not states or group.state.lower() in states)
        and (not types or group.kind in types)
        and (sees_all or request.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id))
    ]
    request.respond(m.ListGroupsResponse(groups=listed))


_FIRST_WITH_NOT_FOUND: Final = 6


@api_handler(ApiKey.DESCRIBE_GROUPS, "0-6")
def describe_groups(request: ApiRequest[m.DescribeGroupsRequest]) -> None:
    """DescribeGroups (key 15): the members of groups and their assignments."""
    groups = [_describe(group_id, request) for group_id in dict.fromkeys(request.body.groups)]
    request.respond(m.DescribeGroupsResponse(groups=groups))


def _describe(group_id: str, request: ApiRequest[m.DescribeGroupsRequest]) -> m.DescribedGroup:
    try:
        request.require(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        group = request.broker.groups_for(group_id).describe(group_id)
        described = m.DescribedGroup(
            group_id=group.group_id,
            error_code=ErrorCode.NONE,
            group_state=group.state.value,
            protocol_type=group.protocol_type,
            protocol_data=group.protocol_name,
            members=[m.DescribedGroupMember(*member) for member in group.members],
        )
    except ApiError as error:
        described = m.DescribedGroup(error.code, None, group_id, "", "", "", [])
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            described.group_state = GroupState.DEAD.value
            if request.version >= _FIRST_WITH_NOT_FOUND:
                described.error_message = str(error)
            else:
                described.error_code = ErrorCode.NONE
    if request.body.include_authorized_operations and described.error_code == ErrorCode.NONE:
        described.authorized_operations = request.operations(ResourceType.GROUP, group_id)
    return described


#: The type of a member that speaks the consumer protocol.
_CONSUMER: Final = 1


@api_handler(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1")
def consumer_group_describe(request: ApiRequest[m.ConsumerGroupDescribeRequest]) -> None:
    """ConsumerGroupDescribe (key 69): the members of groups, their assignments and targets (KIP-848)."""
    groups = [_described_consumers(request, group_id) for group_id in dict.fromkeys(request.body.group_ids)]
    request.respond(m.ConsumerGroupDescribeResponse(groups=groups))


def _described_consumers(
    request: ApiRequest[m.ConsumerGroupDescribeRequest], group_id: str
) -> m.DescribedConsumerGroup:
    try:
        group = request.permitted_groups(AclOperation.DESCRIBE, group_id).describe_consumers(group_id)
        described = _group(request.broker, group)
        _require_topics(request, described)
    except ApiError as error:
        return m.DescribedConsumerGroup(error.code, str(error), group_id, "", 0, 0, "", [])
    if request.body.include_authorized_operations:
        described.authorized_operations = request.operations(ResourceType.GROUP, group_id)
    return described


def _require_topics(request: ApiRequest[m.ConsumerGroupDescribeRequest], group: m.DescribedConsumerGroup) -> None:
    """:raises ApiError: TOPIC_AUTHORIZATION_FAILED if the client may not describe a topic of a member."""
    assignments = (part for member in group.members for part in (member.assignment, member.target_assignment))
    names = {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}
    if not all(request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        text = "The group has described topic(s) that the client is not authorized to describe."
        raise ApiError(text, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _group(context: BrokerContext, group: ConsumerGroup) -> m.DescribedConsumerGroup:
    members = [
        _member(context, member, group.targets.get(member.member_id, frozenset())) for member in group.members.values()
    ]
    return m.DescribedConsumerGroup(
        ErrorCode.NONE, None, group.group_id, group.state, group.epoch, group.assignment_epoch, group.assignor, members
    )


def _member(context: BrokerContext, member: ConsumerMember, target: Iterable[TopicIdPartition]) -> m.Member:
    return m.Member(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.topic_names),
        member.topic_regex,
        # It owns the partitions that it has to revoke until it acknowledges the revocation.
        _assignment(context, (*member.assigned, *member.revoking)),
        _assignment(context, target),
        _CONSUMER,
    )


def _assignment(context: BrokerContext, partitions: Iterable[TopicIdPartition]) -> m.Assignment:
    by_topic = groupby(sorted(partitions), key=lambda partition: partition.topic_id)
    topics = [(context.cluster.topic_by_id(topic_id), [part.partition for part in mine]) for topic_id, mine in by_topic]
    return m.Assignment(
        [m.TopicPartitions(topic.topic_id, topic.name, indexes) for topic, indexes in topics if topic is not None]
    )


@api_handler(ApiKey.DELETE_GROUPS, "0-2")
def delete_groups(request: ApiRequest[m.DeleteGroupsRequest]) -> None:
    """DeleteGroups (key 42): deletes groups without members, and their offsets (KIP-229)."""
    groups = dict.fromkeys(request.body.groups_names)
    results = [m.DeletableGroupResult(group_id, _delete(request, group_id)) for group_id in groups]
    request.respond(m.DeleteGroupsResponse(results=results))


def _delete(request: ApiRequest[m.DeleteGroupsRequest], group_id: str) -> ErrorCode:
    try:
        request.permitted_groups(AclOperation.DELETE, group_id).delete(group_id)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
