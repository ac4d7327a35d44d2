"""IncrementalAlterConfigs (key 44): changes single settings of topics, or options of all running brokers (KIP-339)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_sink.broker.cluster.cluster_state import ConfigChange
from kafka_sink.broker.handlers.config_resources import alter, given, refuse_repeated
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
    outcomes = alter(context, request, body.resources, _change, validate_only=body.validate_only)
    request.respond(IncrementalAlterConfigsResponse(responses=outcomes))


def _change(resource: AlterConfigsResource) -> ConfigChange:
    refuse_repeated([config.name for config in resource.configs])

    def change(configs: Mapping[str, str]) -> Mapping[str, str]:
        changed = dict(configs)
        for config in resource.configs:
            _change_one(changed, config)
        return changed

    return change


def _change_one(configs: dict[str, str], config: AlterableConfig) -> None:
    if config.config_operation == _DELETE:
        configs.pop(config.name, None)
    elif config.config_operation == _SET:
        configs[config.name] = given(config.name, config.value)
    elif config.config_operation in (_APPEND, _SUBTRACT):
        raise ApiError(
            f"{config.name} is not a list, so nothing can be appended to it or subtracted from it",
            ErrorCode.INVALID_CONFIG,
        )
    else:
        text = f"operation {config.config_operation} on {config.name} is not one of 0 to 3"
        raise ApiError(text, ErrorCode.INVALID_REQUEST)


API: Final = ApiHandler(ApiKey.INCREMENTAL_ALTER_CONFIGS, VERSIONS, handle)
