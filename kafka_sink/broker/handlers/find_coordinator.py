"""FindCoordinator (key 10): the node that coordinates a group or a transactional id."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, endpoint_of
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.find_coordinator import (
    GROUP,
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 6)
_FIRST_WITH_SEVERAL_KEYS: Final = 4
_RESOURCES: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def handle(context: BrokerContext, request: ApiRequest[FindCoordinatorRequest]) -> None:
    """Answer for each key."""
    body = request.body
    if request.version >= _FIRST_WITH_SEVERAL_KEYS:
        keys = dict.fromkeys(body.coordinator_keys)
        request.respond(FindCoordinatorResponse(coordinators=[_find(context, request, key) for key in keys]))
        return
    found = _find(context, request, body.key)
    request.respond(
        FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    )


def _find(context: BrokerContext, request: ApiRequest[FindCoordinatorRequest], key: str) -> Coordinator:
    resource_type = _RESOURCES.get(request.body.key_type)
    if resource_type is None:
        message = f"coordinators of type {request.body.key_type} do not exist"
        return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, message)
    try:
        require(context, request, AclOperation.DESCRIBE, resource_type, key)
    except ApiError as error:
        return Coordinator(key, -1, "", -1, error.code, str(error))
    node_id = context.cluster.coordinator_for(key)
    endpoint = endpoint_of(context, node_id, request.listener_name)
    if endpoint is None:
        message = f"broker {node_id} has no listener {request.listener_name}"
        return Coordinator(key, -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    return Coordinator(key, node_id, endpoint.host, endpoint.port, ErrorCode.NONE, None)


API: Final = ApiHandler(ApiKey.FIND_COORDINATOR, VERSIONS, handle)
