"""ListConfigResources (key 74): topics and brokers; groups and client metrics have no settings here (KIP-1142)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.config_resources import BROKER, TOPIC
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)
_BROKER_LOGGER: Final = 8
_CLIENT_METRICS: Final = 16
_GROUP: Final = 32
_KINDS: Final = (TOPIC, BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)


def handle(context: BrokerContext, request: ApiRequest[ListConfigResourcesRequest]) -> None:
    """Answer with the names of the kinds that were asked for."""
    if is_refused(context, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return
    # Version 0 asks for client metrics only.
    kinds = (set(request.body.resource_types) or set(_KINDS)) if request.version else {_CLIENT_METRICS}
    if not kinds <= set(_KINDS):
        request.respond(ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    brokers = [str(node_id) for node_id in sorted(context.cluster.nodes)]
    names = {TOPIC: sorted(context.cluster.topics), BROKER: brokers, _BROKER_LOGGER: brokers}
    found = [ConfigResource(name, kind) for kind in _KINDS if kind in kinds for name in names.get(kind, ())]
    request.respond(ListConfigResourcesResponse(config_resources=found))


API: Final = ApiHandler(ApiKey.LIST_CONFIG_RESOURCES, VERSIONS, handle)
