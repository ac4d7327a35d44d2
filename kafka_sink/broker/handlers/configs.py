"""Alters and describes the settings of topics and brokers: values, sources, and whether they may be changed.

Open logs apply a change at once. Of the broker options only those can be changed that are defaults of topic settings,
and only for all brokers together (an empty name), because brokers share topics and data. The answer of DescribeConfigs
is derived from the option tables, so a new option needs no change here.

Source: KIP-339; KIP-226 (sources and synonyms), KIP-569 (types and documentation); apache/kafka ``ConfigHelper``,
``ConfigAdminManager`` and ``ConfigurationControlManager``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from kafka_sink.broker.cluster.cluster_state import ConfigChange
from kafka_sink.broker.cluster.topic_state import (
    BROKER_SYNONYMS,
    CLEANER_OPTIONS,
    INERT_SYNONYMS,
    InertTopicConfig,
    TopicConfig,
    TopicState,
    validate_topic_name,
)
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, once, stored_together
from kafka_sink.common import config as c
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import configs as m

#: Options that can be changed on running brokers.
DYNAMIC_OPTIONS: Final = frozenset(BROKER_SYNONYMS.values()) | CLEANER_OPTIONS
_STRING: Final = 2
LIST_TYPE: Final = 7
#: Kafka's codes of types; a type that a single option has is text. Integers have no width here and are reported as the
#: larger of Kafka's two integer types.
_TYPES: Final = {
    c.BOOLEAN: 1,
    c.STRING: _STRING,
    c.INT: 5,
    c.DOUBLE: 6,
    c.LIST: LIST_TYPE,
    c.PLUGIN: 8,
    c.PLUGINS: LIST_TYPE,
}
#: The source of a value: the topic, all brokers while they run, a broker's configuration, or Kafka's default.
_OF_TOPIC, _OF_ALL_BROKERS, _OF_BROKER, _BY_DEFAULT = 1, 3, 4, 5

#: The value at one level; None if it must not be shown.
Level = m.DescribeConfigsSynonym
#: A setting with its levels, from the effective one to the built-in default.
Setting = m.DescribeConfigsResourceResult


def topic_entries(configs: Mapping[str, str], config: BrokerConfig, changed: Mapping[str, str]) -> list[Setting]:
    """Every setting of a topic with topic-level *configs*, on brokers with *config* and dynamic options *changed*."""
    settings = [
        (name, key, _broker_levels(BROKER_SYNONYMS[name], config, changed))
        for name, (key, _) in c.keys(TopicConfig).items()
    ]
    settings += [
        (name, key, [Level(INERT_SYNONYMS.get(name, name), _text(item.default), _BY_DEFAULT)])
        for name, (key, item) in c.keys(InertTopicConfig).items()
    ]
    return [
        _setting(name, key, [Level(name, configs[name], _OF_TOPIC), *levels] if name in configs else levels)
        for name, key, levels in settings
    ]


def broker_entries(config: BrokerConfig, changed: Mapping[str, str], effective: Mapping[str, str]) -> list[Setting]:
    """Every option of a broker with *config* and the dynamic options in *changed*; *effective* are the values that it
    determined at its start."""
    entries = []
    for name, (key, _) in c.keys(BrokerConfig).items():
        levels = _broker_levels(name, config, changed)
        if name in effective:
            levels = [Level(name, effective[name], _OF_BROKER), levels[-1]]
        entries.append(_setting(name, key, levels, read_only=name not in DYNAMIC_OPTIONS))
    return entries


def validate_dynamic(configs: Mapping[str, str]) -> None:
    """:raises ApiError: INVALID_CONFIG if an option is unknown; INVALID_REQUEST if it cannot be changed dynamically."""
    table = c.keys(BrokerConfig)
    for name in configs:
        if name not in table:
            raise ApiError(f"unknown option {name}{c.nearest(name, table)}", ErrorCode.INVALID_CONFIG)
        if name not in DYNAMIC_OPTIONS:
            text = f"option {name} cannot be changed while brokers run; set it in their configuration file"
            raise ApiError(text, ErrorCode.INVALID_REQUEST)


def _setting(name: str, key: c.ConfigKey, levels: list[Level], *, read_only: bool = False) -> Setting:
    if key.sensitive:
        levels = [Level(level.name, None, level.source) for level in levels]
    first, kind = levels[0], _TYPES.get(key.type, _STRING)
    return Setting(name, first.value, read_only, first.source, key.sensitive, levels, kind, key.doc)


def _broker_levels(name: str, config: BrokerConfig, changed: Mapping[str, str]) -> list[Level]:
    item = c.keys(BrokerConfig)[name][1]
    value = getattr(config, item.name)
    levels = [Level(name, changed[name], _OF_ALL_BROKERS)] if name in changed else []
    if value != item.default:
        levels.append(Level(name, _text(value), _OF_BROKER))
    return [*levels, Level(name, _text(item.default), _BY_DEFAULT)]


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


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
    return context.topic(name)


def unsupported(resource_type: int) -> ApiError:
    """The error for a resource type that has no settings in this broker."""
    return ApiError(f"resources of type {resource_type} have no configuration here", ErrorCode.INVALID_REQUEST)


def require_settings(request: ApiRequest[Any], operation: AclOperation, resource: Resource) -> None:
    """Return if the client may do *operation* on the settings of *resource*; for brokers, the cluster's ACLs apply.

    :raises ApiError: TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED.
    """
    if resource.resource_type == TOPIC:
        request.require(operation, ResourceType.TOPIC, resource.resource_name)
    elif resource.resource_type == BROKER:
        request.require(operation, ResourceType.CLUSTER)


def alter(
    request: ApiRequest[Any], resources: Sequence[R], change_of: Callable[[R], ConfigChange], *, validate_only: bool
) -> list[m.AlterConfigsResourceResponse]:
    """Change each of *resources*; a failure does not affect the others. Returns the result of each."""
    times_named = Counter((item.resource_type, item.resource_name) for item in resources)

    def outcome(item: R, error: ApiError | None = None) -> m.AlterConfigsResourceResponse:
        code, message = (ErrorCode.NONE, None) if error is None else (error.code, str(error))
        return m.AlterConfigsResourceResponse(code, message, item.resource_type, item.resource_name)

    def change(item: R) -> m.AlterConfigsResourceResponse:
        if times_named[item.resource_type, item.resource_name] > 1:
            raise ApiError("the request names this resource twice", ErrorCode.INVALID_REQUEST)
        require_settings(request, AclOperation.ALTER_CONFIGS, item)
        _alter_one(request.broker, item, change_of(item), validate_only=validate_only)
        return outcome(item)

    return stored_together(request.broker, resources, change, outcome)


def _alter_one(context: BrokerContext, resource: Resource, change: ConfigChange, *, validate_only: bool) -> None:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        named_topic(context, name)
        context.cluster.alter_topic_configs(name, change, validate_only=validate_only)
    elif resource.resource_type != BROKER:
        raise unsupported(resource.resource_type)
    elif name:
        text = "brokers can only be configured together: leave out the broker's id (kafka-configs --entity-default)"
        raise ApiError(text, ErrorCode.INVALID_REQUEST)
    else:

        def checked(configs: Mapping[str, str]) -> Mapping[str, str]:
            changed = change(configs)
            validate_dynamic(changed)
            return changed

        context.cluster.alter_broker_configs(checked, validate_only=validate_only)


def refuse_repeated(names: Sequence[str]) -> None:
    """:raises ApiError: INVALID_REQUEST if a setting is named twice."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ApiError(f"the request names {', '.join(repeated)} twice", ErrorCode.INVALID_REQUEST)


def non_null(name: str, value: str | None) -> str:
    """:raises ApiError: INVALID_REQUEST if there is no value."""
    if value is None:
        raise ApiError(f"{name} cannot be set to null", ErrorCode.INVALID_REQUEST)
    return value


_SET: Final = 0
_DELETE: Final = 1
_APPEND: Final = 2
_SUBTRACT: Final = 3


@api_handler(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1")
def incremental_alter_configs(request: ApiRequest[m.IncrementalAlterConfigsRequest]) -> None:
    """IncrementalAlterConfigs (key 44): changes single settings of topics, or options of all brokers (KIP-339)."""
    body = request.body

    def change_of(resource: m.IncrementalAlterConfigsResource) -> ConfigChange:
        return _change(request.broker, resource)

    outcomes = alter(request, body.resources, change_of, validate_only=body.validate_only)
    request.respond(m.IncrementalAlterConfigsResponse(responses=outcomes))


def _change(context: BrokerContext, resource: m.IncrementalAlterConfigsResource) -> ConfigChange:
    refuse_repeated([config.name for config in resource.configs])

    def change(configs: Mapping[str, str]) -> Mapping[str, str]:
        changed = dict(configs)
        for config in resource.configs:
            if config.config_operation in (_APPEND, _SUBTRACT):
                parts, named = _list_parts(context, resource, config.name, configs), non_null(config.name, config.value)
                others = [part for part in parts if part not in named.split(",")]
                added = [part for part in named.split(",") if part not in parts]
                changed[config.name] = ",".join(parts + added if config.config_operation == _APPEND else others)
            else:
                _change_one(changed, config)
        return changed

    return change


def _list_parts(
    context: BrokerContext, resource: m.IncrementalAlterConfigsResource, name: str, configs: Mapping[str, str]
) -> list[str]:
    """The current entries of the list *name*. :raises ApiError: INVALID_CONFIG if it is not a list."""
    defaults = context.cluster.defaults
    is_topic = resource.resource_type == TOPIC
    entries = topic_entries(configs, defaults, {}) if is_topic else broker_entries(defaults, configs, {})
    values = {entry.name: entry.value for entry in entries if entry.config_type == LIST_TYPE}
    if name not in values:
        text = f"{name} is not a list, so nothing can be appended to it or subtracted from it"
        raise ApiError(text, ErrorCode.INVALID_CONFIG)
    return [part for part in (values[name] or "").split(",") if part]


def _change_one(configs: dict[str, str], config: m.IncrementalAlterableConfig) -> None:
    if config.config_operation == _DELETE:
        configs.pop(config.name, None)
    elif config.config_operation == _SET:
        configs[config.name] = non_null(config.name, config.value)
    else:
        text = f"operation {config.config_operation} on {config.name} is not one of 0 to 3"
        raise ApiError(text, ErrorCode.INVALID_REQUEST)


@api_handler(ApiKey.ALTER_CONFIGS, "0-2")
def alter_configs(request: ApiRequest[m.AlterConfigsRequest]) -> None:
    """AlterConfigs (key 33): replaces all settings of a topic, or all dynamic options of brokers."""
    body = request.body
    outcomes = alter(request, body.resources, _replacement, validate_only=body.validate_only)
    request.respond(m.AlterConfigsResponse(responses=outcomes))


def _replacement(resource: m.AlterConfigsResource) -> ConfigChange:
    refuse_repeated([config.name for config in resource.configs])
    return lambda _: {config.name: non_null(config.name, config.value) for config in resource.configs}


@api_handler(ApiKey.DESCRIBE_CONFIGS, "1-4")
def describe_configs(request: ApiRequest[m.DescribeConfigsRequest]) -> None:
    """DescribeConfigs (key 32): settings of topics, of this broker (its id), and of all running brokers (an empty
    name). Answers for each resource."""
    resources = once(request.body.resources, lambda item: (item.resource_type, item.resource_name))
    request.respond(m.DescribeConfigsResponse(results=[_describe(request, item) for item in resources]))


def _describe(
    request: ApiRequest[m.DescribeConfigsRequest], resource: m.DescribeConfigsResource
) -> m.DescribeConfigsResult:
    body = request.body
    try:
        require_settings(request, AclOperation.DESCRIBE_CONFIGS, resource)
        entries = _entries(request.broker, resource)
    except ApiError as error:
        return m.DescribeConfigsResult(error.code, str(error), resource.resource_type, resource.resource_name, [])
    wanted = resource.configuration_keys
    configs = [entry for entry in entries if not wanted or entry.name in wanted]
    for entry in configs:
        entry.synonyms = entry.synonyms if body.include_synonyms else []
        entry.documentation = entry.documentation if body.include_documentation else None
    return m.DescribeConfigsResult(ErrorCode.NONE, None, resource.resource_type, resource.resource_name, configs)


def _entries(context: BrokerContext, resource: m.DescribeConfigsResource) -> list[Setting]:
    changed = context.cluster.image.broker_configs
    if resource.resource_type == TOPIC:
        topic = named_topic(context, resource.resource_name)
        return topic_entries(topic.configs, context.config, changed)
    if resource.resource_type != BROKER:
        raise unsupported(resource.resource_type)
    if not resource.resource_name:
        table = c.keys(BrokerConfig)
        options = [(name, value) for name, value in changed.items() if name in table]
        return [_setting(name, table[name][0], [Level(name, value, _OF_ALL_BROKERS)]) for name, value in options]
    if resource.resource_name != str(context.node_id):
        text = f"broker {context.node_id} does not know the configuration of broker {resource.resource_name!r}"
        raise ApiError(text, ErrorCode.INVALID_REQUEST)
    listeners = ",".join(map(str, context.cluster.nodes.get(context.node_id, {}).values()))
    return broker_entries(context.config, changed, {"advertised.listeners": listeners})


_BROKER_LOGGER: Final = 8
_CLIENT_METRICS: Final = 16
_GROUP: Final = 32
_KINDS: Final = (TOPIC, BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)


@api_handler(ApiKey.LIST_CONFIG_RESOURCES, "0-1")
def list_config_resources(request: ApiRequest[m.ListConfigResourcesRequest]) -> None:
    """ListConfigResources (key 74): topics and brokers; groups and client metrics have no settings here (KIP-1142)."""
    request.require(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    # Version 0 selects client metrics only.
    kinds = (set(request.body.resource_types) or set(_KINDS)) if request.version else {_CLIENT_METRICS}
    if not kinds <= set(_KINDS):
        request.respond(m.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    brokers = [str(node_id) for node_id in sorted(request.broker.cluster.nodes)]
    names = {TOPIC: sorted(request.broker.cluster.topics), BROKER: brokers, _BROKER_LOGGER: brokers}
    resources = [m.ConfigResource(name, kind) for kind in _KINDS if kind in kinds for name in names.get(kind, ())]
    request.respond(m.ListConfigResourcesResponse(config_resources=resources))
