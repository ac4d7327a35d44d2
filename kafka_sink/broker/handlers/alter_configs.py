"""AlterConfigs (key 33): replaces all settings of a topic, or all dynamic options of brokers."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.cluster.cluster_state import ConfigChange
from kafka_sink.broker.handlers.config_resources import alter, given, refuse_repeated
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)


def handle(context: BrokerContext, request: ApiRequest[AlterConfigsRequest]) -> None:
    """Replace the settings of each resource, or only validate them."""
    body = request.body
    outcomes = alter(context, request, body.resources, _replacement, validate_only=body.validate_only)
    request.respond(AlterConfigsResponse(responses=outcomes))


def _replacement(resource: AlterConfigsResource) -> ConfigChange:
    refuse_repeated([config.name for config in resource.configs])
    return lambda _: {config.name: given(config.name, config.value) for config in resource.configs}


API: Final = ApiHandler(ApiKey.ALTER_CONFIGS, VERSIONS, handle)
