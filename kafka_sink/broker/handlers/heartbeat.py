"""Heartbeat (key 12): extends the session of a group member; the answer tells it whether it has to join again."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 4)


def handle(context: BrokerContext, request: ApiRequest[HeartbeatRequest]) -> None:
    """Pass the heartbeat to the group coordinator."""
    body = request.body
    code = ErrorCode.NONE
    try:
        require(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
        groups = context.groups_for(body.group_id)
        groups.heartbeat(body.group_id, body.member_id, body.group_instance_id, body.generation_id)
    except ApiError as error:
        code = error.code
    request.respond(HeartbeatResponse(error_code=code))


API: Final = ApiHandler(ApiKey.HEARTBEAT, VERSIONS, handle)
