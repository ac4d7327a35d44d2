"""DeleteGroups (key 42): deletes groups without members, and their offsets (KIP-229)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)


def handle(context: BrokerContext, request: ApiRequest[DeleteGroupsRequest]) -> None:
    """Delete each group; a failure does not affect the others."""
    groups = dict.fromkeys(request.body.groups_names)
    results = [DeletableGroupResult(group_id, _delete(context, request, group_id)) for group_id in groups]
    request.respond(DeleteGroupsResponse(results=results))


def _delete(context: BrokerContext, request: ApiRequest[DeleteGroupsRequest], group_id: str) -> ErrorCode:
    try:
        require(context, request, AclOperation.DELETE, ResourceType.GROUP, group_id)
        context.groups_for(group_id).delete(group_id)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


API: Final = ApiHandler(ApiKey.DELETE_GROUPS, VERSIONS, handle)
