"""Loads the plugins of a producer: partitioner, serializers and interceptors.

The constructing thread creates and configures them; they are closed with the producer. Their own modules say on which
threads they are called. This module never handles a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.plugins import load_plugin, name_of
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.plugins import partitioner as partitioners
from kafka_sink.producer.plugins.built_in_partitioner import BuiltInPartitioner
from kafka_sink.producer.plugins.interceptors import ProducerInterceptors
from kafka_sink.producer.plugins.serializers import FieldSerializer


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of a producer. Either ``built_in`` or ``partitioner`` chooses partitions; the other is None."""

    built_in: BuiltInPartitioner | None
    partitioner: Any
    key_serializer: FieldSerializer
    value_serializer: FieldSerializer
    #: None if there are no interceptors.
    interceptors: ProducerInterceptors | None
    #: Closes all plugins, the last created first, and logs failures. Calling it twice is harmless.
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class GivenPlugins:
    """The plugins that were passed to the producer as objects; None for those that the configuration names."""

    key_serializer: Any = None
    value_serializer: Any = None
    interceptors: Sequence[Any] | None = None
    partitioner: Any = None

    @property
    def are_any(self) -> bool:
        plugins = (self.key_serializer, self.value_serializer, self.interceptors, self.partitioner)
        return any(plugin is not None for plugin in plugins)


def make_plugins(
    config: ProducerConfig, configs: Mapping[str, Any], plugins: GivenPlugins, log: ContextLogger, undo: ExitStack
) -> Plugins:
    """The *plugins* that were passed, and those that *config* names for the others.

    :param configs: the properties that the plugins are configured with.
    :param undo: closes the plugins if the producer cannot be created.
    :raises ConfigError: if a plugin cannot be found or created.
    """
    closers = ExitStack()
    undo.callback(closers.close)
    built_in: BuiltInPartitioner | None = None
    chosen = config.partitioner_class if plugins.partitioner is None else plugins.partitioner
    if chosen is None:
        built_in = BuiltInPartitioner(config.batch_size_bytes, ignore_keys=config.partitioner_ignore_keys)
    else:
        chosen = load_plugin(config.option("partitioner.class"), chosen, partitioners.BUILT_IN, "partition")
        closers.callback(_close, chosen, log)
        configure = getattr(chosen, "configure", None)
        if configure is not None:
            configure(configs)

    def serializer(option: str, named: Any, passed: Any) -> FieldSerializer:
        made = FieldSerializer(option, named if passed is None else passed, configs)
        closers.callback(_close, made, log)
        return made

    keys = serializer("key.serializer", config.key_serializer, plugins.key_serializer)
    values = serializer("value.serializer", config.value_serializer, plugins.value_serializer)
    interceptors = config.interceptor_classes if plugins.interceptors is None else plugins.interceptors
    chain = ProducerInterceptors(interceptors, configs, log) if interceptors else None
    if chain is not None:
        closers.callback(_close, chain, log)
    return Plugins(built_in, chosen, keys, values, chain, closers.close)


def _close(plugin: Any, log: ContextLogger) -> None:
    close = getattr(plugin, "close", None)
    if not callable(close):
        return
    try:
        close()
    except Exception:
        log.warning("closing %s failed", name_of(plugin), exc_info=True)
