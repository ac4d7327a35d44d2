"""The resources of requests about settings, and changes of their settings.

Shared by the handlers of IncrementalAlterConfigs, AlterConfigs and DescribeConfigs; called by handler threads. Open
logs apply a change at once. Of the broker options only those can be changed that are defaults of topic settings, and
only for all brokers together (an empty name), because brokers share topics and data.

Source: KIP-339; apache/kafka ``ConfigAdminManager`` and ``ConfigurationControlManager`` for the validation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from kafka_sink.broker.cluster.cluster_state import ConfigChange
from kafka_sink.broker.cluster.config_entries import validate_dynamic
from kafka_sink.broker.cluster.topic_config import CLEANER_OPTIONS, INERT_BROKER_OPTIONS
from kafka_sink.broker.cluster.topic_state import TopicState, validate_topic_name
from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.messages.alter_configs import AlterConfigsResourceResponse

TOPIC: Final = 2
BROKER: Final = 4


class Resource(Protocol):
    """The fields that identify the resource in both requests."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


def named_topic(context: BrokerContext, name: str) -> TopicState:
    """:raises ApiError: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION."""
    validate_topic_name(name)
    topic = context.cluster.topic(name)
    if topic is None:
        raise ApiError(f"topic {name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def unsupported(resource_type: int) -> ApiError:
    """The error for a resource type that has no settings in this broker."""
    return ApiError(f"resources of type {resource_type} have no configuration here", ErrorCode.INVALID_REQUEST)


def require_settings(
    context: BrokerContext, request: ApiRequest[Any], operation: AclOperation, resource: Resource
) -> None:
    """Return if the client may do *operation* on the settings of *resource*; the cluster's ACLs are for brokers.

    :raises ApiError: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
    """
    if resource.resource_type == TOPIC:
        require(context, request, operation, ResourceType.TOPIC, resource.resource_name)
    elif resource.resource_type == BROKER:
        require(context, request, operation, ResourceType.CLUSTER)


def alter(
    context: BrokerContext,
    request: ApiRequest[Any],
    resources: Sequence[R],
    change_of: Callable[[R], ConfigChange],
    *,
    validate_only: bool,
) -> list[AlterConfigsResourceResponse]:
    """Change each of *resources*; a failure does not affect the others. Returns the result of each."""
    times_named = Counter((item.resource_type, item.resource_name) for item in resources)

    def outcome(item: R, error: ApiError | None = None) -> AlterConfigsResourceResponse:
        code, message = (ErrorCode.NONE, None) if error is None else (error.code, str(error))
        return AlterConfigsResourceResponse(code, message, item.resource_type, item.resource_name)

    def change(item: R) -> AlterConfigsResourceResponse:
        if times_named[item.resource_type, item.resource_name] > 1:
            raise ApiError("the request names this resource twice", ErrorCode.INVALID_REQUEST)
        require_settings(context, request, AclOperation.ALTER_CONFIGS, item)
        _alter_one(context, item, change_of(item), validate_only=validate_only)
        return outcome(item)

    return stored_together(context, resources, change, outcome)


def _alter_one(context: BrokerContext, resource: Resource, change: ConfigChange, *, validate_only: bool) -> None:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        named_topic(context, name)
        context.cluster.alter_topic_configs(name, change, validate_only=validate_only)
    elif resource.resource_type != BROKER:
        raise unsupported(resource.resource_type)
    else:

        def checked(configs: Mapping[str, str]) -> Mapping[str, str]:
            changed = change(configs)
            names = {key for key, _ in changed.items() ^ configs.items()}
            if name and not names <= INERT_BROKER_OPTIONS.keys() | CLEANER_OPTIONS:
                text = "brokers can only be configured together: leave out the broker's id"
                raise ApiError(f"{text} (kafka-configs --entity-default)", ErrorCode.INVALID_REQUEST)
            validate_dynamic(changed)
            return changed

        context.cluster.alter_broker_configs(checked, validate_only=validate_only)


def refuse_repeated(names: Sequence[str]) -> None:
    """:raises ApiError: INVALID_REQUEST if a setting is named twice."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ApiError(f"the request names {', '.join(repeated)} twice", ErrorCode.INVALID_REQUEST)


def given(name: str, value: str | None) -> str:
    """:raises ApiError: INVALID_REQUEST if there is no value."""
    if value is None:
        raise ApiError(f"{name} cannot be set to null", ErrorCode.INVALID_REQUEST)
    return value
