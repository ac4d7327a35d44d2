"""Settings as DescribeConfigs reports them: values, sources, and whether they may be changed.

Handlers use it; all functions are pure. The entries are derived from the option tables, so a new option needs no change
here.

Source: KIP-226 (sources and synonyms), KIP-569 (types and documentation), apache/kafka ``ConfigHelper``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from kafka_sink.broker.cluster.topic_config import (
    BROKER_SYNONYMS,
    CLEANER_OPTIONS,
    INERT_BROKER_OPTIONS,
    INERT_SYNONYMS,
    InertTopicConfig,
    TopicConfig,
)
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common import config as c
from kafka_sink.common.errors import ApiError, ErrorCode

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


class ConfigSource(IntEnum):
    """The source of a value, with the protocol's codes."""

    TOPIC = 1
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigLevel:
    """The value at one level, None if it must not be shown."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting: *levels* are in order of precedence, from the effective level to the built-in default."""

    name: str
    levels: tuple[ConfigLevel, ...]
    read_only: bool
    sensitive: bool
    type: int
    documentation: str


def topic_entries(configs: Mapping[str, str], config: BrokerConfig, changed: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a topic with topic-level *configs*, on brokers with *config* and dynamic options *changed*."""
    entries = []
    for name, (key, _) in c.keys(TopicConfig).items():
        levels = _broker_levels(BROKER_SYNONYMS[name], config, changed)
        if name in configs:
            levels = (ConfigLevel(name, configs[name], ConfigSource.TOPIC), *levels)
        entries.append(_entry(name, key, levels, read_only=False))
    for name, (key, item) in c.keys(InertTopicConfig).items():
        levels = (ConfigLevel(INERT_SYNONYMS.get(name, name), _shown(item.default), ConfigSource.DEFAULT),)
        if name in configs:
            levels = (ConfigLevel(name, configs[name], ConfigSource.TOPIC), *levels)
        entries.append(_entry(name, key, levels, read_only=False))
    return entries


def broker_entries(config: BrokerConfig, changed: Mapping[str, str], effective: Mapping[str, str]) -> list[ConfigEntry]:
    """Every option of a broker with *config* and the dynamic options in *changed*; *effective* are values that it had
    to choose when it started."""
    entries = []
    for name, (key, _) in c.keys(BrokerConfig).items():
        levels = _broker_levels(name, config, changed)
        if name in effective:
            levels = (ConfigLevel(name, effective[name], ConfigSource.STATIC_BROKER), levels[-1])
        entries.append(_entry(name, key, levels, read_only=name not in DYNAMIC_OPTIONS))
    return entries + [_inert(name, changed) for name in INERT_BROKER_OPTIONS]


def changed_broker_entries(changed: Mapping[str, str]) -> list[ConfigEntry]:
    """Only the dynamic options in *changed*, which apply to all brokers."""
    table = c.keys(BrokerConfig)
    return [
        _entry(name, table[name][0], (ConfigLevel(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER),), read_only=False)
        for name, value in changed.items()
        if name in table
    ] + [_inert(name, changed) for name in changed if name in INERT_BROKER_OPTIONS]


def _inert(name: str, changed: Mapping[str, str]) -> ConfigEntry:
    levels = [ConfigLevel(name, INERT_BROKER_OPTIONS[name], ConfigSource.DEFAULT)]
    if name in changed:
        levels.insert(0, ConfigLevel(name, changed[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
    return ConfigEntry(
        name, tuple(levels), read_only=False, sensitive=False, type=_STRING, documentation="of compaction"
    )


def validate_dynamic(configs: Mapping[str, str]) -> None:
    """:raises ApiError: INVALID_CONFIG if an option is unknown; INVALID_REQUEST if it cannot be changed dynamically."""
    table = c.keys(BrokerConfig)
    for name in configs:
        if name in INERT_BROKER_OPTIONS:
            continue
        if name not in table:
            raise ApiError(f"unknown option {name}{c.nearest(name, table)}", ErrorCode.INVALID_CONFIG)
        if name not in DYNAMIC_OPTIONS:
            text = f"option {name} cannot be changed while brokers run; set it in their configuration file"
            raise ApiError(text, ErrorCode.INVALID_REQUEST)


def _entry(name: str, key: c.ConfigKey, levels: tuple[ConfigLevel, ...], *, read_only: bool) -> ConfigEntry:
    if key.sensitive:
        levels = tuple(ConfigLevel(level.name, None, level.source) for level in levels)
    return ConfigEntry(name, levels, read_only, key.sensitive, _TYPES.get(key.type, _STRING), key.doc)


def _broker_levels(name: str, config: BrokerConfig, changed: Mapping[str, str]) -> tuple[ConfigLevel, ...]:
    item = c.keys(BrokerConfig)[name][1]
    value = getattr(config, item.name)
    levels = []
    if name in changed:
        levels.append(ConfigLevel(name, changed[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
    if value != item.default:
        levels.append(ConfigLevel(name, _shown(value), ConfigSource.STATIC_BROKER))
    levels.append(ConfigLevel(name, _shown(item.default), ConfigSource.DEFAULT))
    return tuple(levels)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
