"""LeaveGroup (key 13): removes members, at their own or an administrator's request (version 3 and up)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.coordinator.group_requests import Leaving
from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 5)
_FIRST_WITH_SEVERAL: Final = 3


def handle(context: BrokerContext, request: ApiRequest[LeaveGroupRequest]) -> None:
    """Remove each member; a failure does not affect the others."""
    body = request.body
    several = request.version >= _FIRST_WITH_SEVERAL
    members = body.members if several else [MemberIdentity(member_id=body.member_id)]
    leaving = [
        Leaving(member.member_id, member.group_instance_id, member.reason or "not provided") for member in members
    ]
    try:
        require(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        outcomes = context.groups_for(body.group_id).leave(body.group_id, leaving)
    except ApiError as error:
        request.respond(LeaveGroupResponse(error_code=error.code))
        return
    if not several:
        request.respond(LeaveGroupResponse(error_code=outcomes[0]))
        return
    results = [
        MemberResponse(member.member_id, member.group_instance_id, code)
        for member, code in zip(members, outcomes, strict=True)
    ]
    request.respond(LeaveGroupResponse(members=results))


API: Final = ApiHandler(ApiKey.LEAVE_GROUP, VERSIONS, handle)
