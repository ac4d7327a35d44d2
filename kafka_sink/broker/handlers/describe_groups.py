"""DescribeGroups (key 15): the members of groups and what they were assigned."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.coordinator.group_description import GroupDescription
from kafka_sink.broker.coordinator.group_metadata import GroupState
from kafka_sink.broker.handlers.authorization import operations, require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 6)
_FIRST_WITH_NOT_FOUND: Final = 6


def handle(context: BrokerContext, request: ApiRequest[DescribeGroupsRequest]) -> None:
    """Describe each group that this node coordinates."""
    groups = [_describe(context, group_id, request) for group_id in dict.fromkeys(request.body.groups)]
    request.respond(DescribeGroupsResponse(groups=groups))


def _describe(context: BrokerContext, group_id: str, request: ApiRequest[DescribeGroupsRequest]) -> DescribedGroup:
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        described = _described(context.groups_for(group_id).describe(group_id))
    except ApiError as error:
        described = DescribedGroup(error.code, None, group_id, "", "", "", [])
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            described.group_state = GroupState.DEAD.value
            if request.version >= _FIRST_WITH_NOT_FOUND:
                described.error_message = str(error)
            else:
                described.error_code = ErrorCode.NONE
    if request.body.include_authorized_operations and described.error_code == ErrorCode.NONE:
        described.authorized_operations = operations(context, request, ResourceType.GROUP, group_id)
    return described


def _described(group: GroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        error_code=ErrorCode.NONE,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
            for member in group.members
        ],
    )


API: Final = ApiHandler(ApiKey.DESCRIBE_GROUPS, VERSIONS, handle)
