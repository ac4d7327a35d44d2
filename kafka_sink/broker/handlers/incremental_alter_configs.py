"""IncrementalAlterConfigs (key 44): changes single settings of topics, or options of all running brokers (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_sink.broker.cluster.cluster_state import ConfigChange
from kafka_sink.broker.cluster.config_entries import LIST_TYPE, broker_entries, topic_entries
from kafka_sink.broker.handlers.config_resources import TOPIC, alter, given, refuse_repeated
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)
_SET: Final = 0
_DELETE: Final = 1
_APPEND: Final = 2
_SUBTRACT: Final = 3


def handle(context: BrokerContext, request: ApiRequest[IncrementalAlterConfigsRequest]) -> None:
    """Change each resource, or only validate the changes."""
    body = request.body

    def change_of(resource: AlterConfigsResource) -> ConfigChange:
        return _change(context, resource)

    outcomes = alter(context, request, body.resources, change_of, validate_only=body.validate_only)
    request.respond(IncrementalAlterConfigsResponse(responses=outcomes))


def _change(context: BrokerContext, resource: AlterConfigsResource) -> ConfigChange:
    refuse_repeated([config.name for config in resource.configs])

    def change(configs: Mapping[str, str]) -> Mapping[str, str]:
        changed = dict(configs)
        for config in resource.configs:
            if config.config_operation in (_APPEND, _SUBTRACT):
                parts = _list_parts(context, resource, config.name, configs)
                changed[config.name] = ",".join(_changed_list(parts, config))
            else:
                _change_one(changed, config)
        return changed

    return change


def _list_parts(
    context: BrokerContext, resource: AlterConfigsResource, name: str, configs: Mapping[str, str]
) -> list[str]:
    """The present entries of the list *name*. :raises ApiError: INVALID_CONFIG if it is no list."""
    defaults = context.cluster.defaults
    is_topic = resource.resource_type == TOPIC
    entries = topic_entries(configs, defaults, {}) if is_topic else broker_entries(defaults, configs, {})
    values = {entry.name: entry.levels[0].value for entry in entries if entry.type == LIST_TYPE}
    if name not in values:
        text = f"{name} is not a list, so nothing can be appended to it or subtracted from it"
        raise ApiError(text, ErrorCode.INVALID_CONFIG)
    return [part for part in (values[name] or "").split(",") if part]


def _changed_list(parts: list[str], config: AlterableConfig) -> list[str]:
    given_parts = given(config.name, config.value).split(",")
    if config.config_operation == _SUBTRACT:
        return [part for part in parts if part not in given_parts]
    return parts + [part for part in given_parts if part not in parts]


def _change_one(configs: dict[str, str], config: AlterableConfig) -> None:
    if config.config_operation == _DELETE:
        configs.pop(config.name, None)
    elif config.config_operation == _SET:
        configs[config.name] = given(config.name, config.value)
    else:
        text = f"operation {config.config_operation} on {config.name} is not one of 0 to 3"
        raise ApiError(text, ErrorCode.INVALID_REQUEST)


API: Final = ApiHandler(ApiKey.INCREMENTAL_ALTER_CONFIGS, VERSIONS, handle)
