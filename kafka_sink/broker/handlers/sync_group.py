"""SyncGroup (key 14): the leader sends the assignments, and every member receives its own."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.coordinator.group_requests import SyncRequest, SyncResult
from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 5)
_FIRST_WITH_PROTOCOL: Final = 5


def handle(context: BrokerContext, request: ApiRequest[SyncGroupRequest]) -> None:
    """Pass the request to the group coordinator, which answers when the leader has sent the assignments."""
    body = request.body

    def answer(result: SyncResult) -> None:
        request.respond(
            SyncGroupResponse(
                error_code=result.error,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    if request.version >= _FIRST_WITH_PROTOCOL and None in (body.protocol_type, body.protocol_name):
        answer(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    try:
        require(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        groups = context.groups_for(body.group_id)
    except ApiError as error:
        answer(SyncResult(error.code))
        return
    asked = SyncRequest(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id,
        body.protocol_type,
        body.protocol_name,
        {each.member_id: bytes(each.assignment) for each in body.assignments},
    )
    groups.sync(asked, answer)


API: Final = ApiHandler(ApiKey.SYNC_GROUP, VERSIONS, handle)
