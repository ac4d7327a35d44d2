"""What the client of a request may do, and the errors that refuse the rest.

Called by handlers before they look at a resource, so that an answer does not disclose whether the resource exists.
Produce and Fetch name topics, or in later versions have their ids (KIP-516).

Source: apache/kafka ``AuthHelper``; ``KafkaApis`` and ``ControllerApis`` for the operation that each API needs.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias
from uuid import UUID

from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext
from kafka_sink.common.acl import CLUSTER_NAME, AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.protocol.messages.fetch import FetchRequest
from kafka_sink.protocol.messages.produce import ProduceRequest

#: The error for a resource that the client may not use.
_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_log: Final = ContextLogger(__name__, "")
#: First versions of Produce and of Fetch with topic ids.
_FIRST_WITH_TOPIC_IDS: Final = 13

_Request: TypeAlias = ApiRequest[ProduceRequest] | ApiRequest[FetchRequest]


def is_allowed(
    context: BrokerContext,
    request: ApiRequest[Any],
    operation: AclOperation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
) -> bool:
    """Whether the client may do *operation* on a resource."""
    return context.authorizer.allows(request.principal, request.client_address, operation, resource_type, name)


def require(
    context: BrokerContext,
    request: ApiRequest[Any],
    operation: AclOperation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
) -> None:
    """Return if the client may do *operation* on a resource.

    :raises ApiError: TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    if not is_allowed(context, request, operation, resource_type, name):
        raise refusal(request, operation, resource_type, name)


def permitted_groups(
    context: BrokerContext, request: ApiRequest[Any], operation: AclOperation, group_id: str
) -> GroupCoordinator:
    """The coordinator of a group on which the client may do *operation*.

    :raises ApiError: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR.
    """
    require(context, request, operation, ResourceType.GROUP, group_id)
    return context.groups_for(group_id)


def refusal(
    request: ApiRequest[Any], operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME
) -> ApiError:
    """The error for a client that may not do *operation* on a resource; the log says what is missing."""
    _log.info(
        "%r from %s may not %s %s %r, which %s needs: add an ACL, or make it one of super.users",
        request.principal,
        request.client_address,
        operation.name,
        resource_type.name,
        name,
        request.api_key.name,
    )
    return ApiError(f"{operation.name} on {resource_type.name} {name!r} is not allowed", _REFUSALS[resource_type])


def operations(context: BrokerContext, request: ApiRequest[Any], resource_type: ResourceType, name: str) -> int:
    """The operations that the client may do on a resource: bit n stands for the operation with code n (KIP-430)."""
    return context.authorizer.operations(request.principal, request.client_address, resource_type, name)


def cluster_operations(context: BrokerContext, request: ApiRequest[Any]) -> int:
    """As :func:`operations`, of the cluster: none for a client that may not describe it."""
    if not is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return operations(context, request, ResourceType.CLUSTER, CLUSTER_NAME)


def asked_topic(context: BrokerContext, request: _Request, name: str, topic_id: UUID) -> TopicState | ApiError:
    """The topic with *topic_id*, in versions without ids with *name*, or the error that there is none."""
    by_id = request.version >= _FIRST_WITH_TOPIC_IDS
    topic = context.cluster.topic_by_id(topic_id) if by_id else context.cluster.topic(name)
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic or ApiError("there is no such topic", code)


def permitted_topic(
    context: BrokerContext, request: _Request, operation: AclOperation, name: str, topic_id: UUID
) -> TopicState | ApiError:
    """As :func:`asked_topic`, or the error that the client may not do *operation* on it.

    An id that does not exist needs no permission.
    """
    topic = asked_topic(context, request, name, topic_id)
    known = topic.name if isinstance(topic, TopicState) else name
    if isinstance(topic, ApiError) and topic.code is ErrorCode.UNKNOWN_TOPIC_ID:
        return topic
    if is_allowed(context, request, operation, ResourceType.TOPIC, known):
        return topic
    refused = refusal(request, operation, ResourceType.TOPIC, known)
    return refused if known == name else without_name(operation)


def without_name(operation: AclOperation) -> ApiError:
    """The error for a client that asked with a topic's id, which is no secret as its name is."""
    return ApiError(f"{operation.name} on this topic is not allowed", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
