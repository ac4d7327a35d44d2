"""JoinGroup (key 11): a client joins or rejoins a group; it is answered when all other members have joined too."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.coordinator.group_requests import JoinRequest, JoinResult
from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 9)
_FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
_FIRST_WITH_KNOWN_IDS: Final = 4
_FIRST_WITH_NULL_PROTOCOL: Final = 7
_FIRST_THAT_SKIPS_ASSIGNMENT: Final = 9


def handle(context: BrokerContext, request: ApiRequest[JoinGroupRequest]) -> None:
    """Pass the request to the group coordinator."""
    body, version = request.body, request.version
    longer = version >= _FIRST_WITH_REBALANCE_TIMEOUT
    asked = JoinRequest(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        request.client_id,
        request.client_host,
        body.rebalance_timeout_ms if longer else body.session_timeout_ms,
        body.session_timeout_ms,
        body.protocol_type,
        {protocol.name: bytes(protocol.metadata) for protocol in body.protocols},
        version >= _FIRST_WITH_KNOWN_IDS,
        version >= _FIRST_THAT_SKIPS_ASSIGNMENT,
        body.reason or "not provided",
    )

    def answer(result: JoinResult) -> None:
        request.respond(_response(result, version))

    try:
        require(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id)
    except ApiError as error:
        answer(JoinResult(error.code, ""))
        return
    try:
        groups = context.groups_for(body.group_id)
    except ApiError as error:
        answer(JoinResult(error.code, body.member_id))
        return
    groups.join(asked, answer)


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < _FIRST_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


API: Final = ApiHandler(ApiKey.JOIN_GROUP, VERSIONS, handle)
