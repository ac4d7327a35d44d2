"""DescribeConfigs (key 32): settings of topics, of this broker (its id), and of all running brokers (an empty name)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.cluster.config_entries import (
    ConfigEntry,
    broker_entries,
    changed_broker_entries,
    topic_entries,
)
from kafka_sink.broker.handlers.config_resources import BROKER, TOPIC, named_topic, require_settings, unsupported
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, once
from kafka_sink.common.acl import AclOperation
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(1, 4)


def handle(context: BrokerContext, request: ApiRequest[DescribeConfigsRequest]) -> None:
    """Answer for each resource."""
    asked = once(request.body.resources, lambda item: (item.resource_type, item.resource_name))
    request.respond(DescribeConfigsResponse(results=[_describe(context, request, item) for item in asked]))


def _describe(
    context: BrokerContext, request: ApiRequest[DescribeConfigsRequest], resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    body = request.body
    try:
        require_settings(context, request, AclOperation.DESCRIBE_CONFIGS, resource)
        entries = _entries(context, resource)
    except ApiError as error:
        return DescribeConfigsResult(error.code, str(error), resource.resource_type, resource.resource_name, [])
    wanted = resource.configuration_keys
    configs = [
        _shown(entry, synonyms=body.include_synonyms, documentation=body.include_documentation)
        for entry in entries
        if not wanted or entry.name in wanted
    ]
    return DescribeConfigsResult(ErrorCode.NONE, None, resource.resource_type, resource.resource_name, configs)


def _entries(context: BrokerContext, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    changed = context.cluster.image.broker_configs
    if resource.resource_type == TOPIC:
        topic = named_topic(context, resource.resource_name)
        return topic_entries(topic.configs, context.config, changed)
    if resource.resource_type != BROKER:
        raise unsupported(resource.resource_type)
    if not resource.resource_name:
        return changed_broker_entries(changed)
    if resource.resource_name != str(context.node_id):
        text = f"broker {context.node_id} does not know the configuration of broker {resource.resource_name!r}"
        raise ApiError(text, ErrorCode.INVALID_REQUEST)
    listeners = ",".join(map(str, context.cluster.nodes.get(context.node_id, {}).values()))
    return broker_entries(context.config, changed, {"advertised.listeners": listeners})


def _shown(entry: ConfigEntry, *, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.levels[0].value,
        read_only=entry.read_only,
        config_source=entry.levels[0].source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(level.name, level.value, level.source) for level in entry.levels]
        if synonyms
        else [],
        config_type=entry.type,
        documentation=entry.documentation if documentation else None,
    )


API: Final = ApiHandler(ApiKey.DESCRIBE_CONFIGS, VERSIONS, handle)
