"""What users may plug into a producer: partitioner, serializers and interceptors.

Made and configured by the constructing thread and closed with the producer; from then on called on whichever threads
their own modules say. It never looks at a record.
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
    """One of ``built_in`` and ``partitioner`` chooses, the other is None."""

    built_in: BuiltInPartitioner | None
    partitioner: Any
    key_serializer: FieldSerializer
    value_serializer: FieldSerializer
    #: None where there are none.
    interceptors: ProducerInterceptors | None
    #: Closes each of them, the last made first; what fails is logged. Calling it twice is harmless.
    close: Callable[[], None]


def make_plugins(
    config: ProducerConfig,
    configs: Mapping[str, Any],
    log: ContextLogger,
    undo: ExitStack,
    *,
    partitioner: Any,
    key_serializer: Any,
    value_serializer: Any,
    interceptors: Sequence[Any] | None,
) -> Plugins:
    """What was handed over as objects, and for the rest (None) what *config* names.

    :param configs: the properties that each of them is configured with.
    :param undo: closes what was made, if the producer cannot be made after all.
    :raises ConfigError: one of them cannot be found or made.
    """
    closers = ExitStack()
    undo.callback(closers.close)
    built_in: BuiltInPartitioner | None = None
    chosen = config.partitioner_class if partitioner is None else partitioner
    if chosen is None:
        built_in = BuiltInPartitioner(config.batch_size_bytes, ignore_keys=config.partitioner_ignore_keys)
    else:
        chosen = load_plugin(config.option("partitioner.class"), chosen, partitioners.BUILT_IN, "partition")
        closers.callback(_close, chosen, log)
        configure = getattr(chosen, "configure", None)
        if configure is not None:
            configure(configs)
    keys = FieldSerializer(
        "key.serializer", config.key_serializer if key_serializer is None else key_serializer, configs
    )
    closers.callback(_close, keys, log)
    values = FieldSerializer(
        "value.serializer", config.value_serializer if value_serializer is None else value_serializer, configs
    )
    closers.callback(_close, values, log)
    given = config.interceptor_classes if interceptors is None else interceptors
    chain = ProducerInterceptors(given, configs, log) if given else None
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
