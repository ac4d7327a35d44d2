"""Loads the plugins of a producer: partitioner, serializers and interceptors; and the serializers, which convert a
record's key and value to bytes.

The constructing thread creates and configures the plugins; they are closed with the producer.
:meth:`KafkaProducer.send` uses serializers on the calling threads, several at once, so a serializer must not keep state
between calls. Keys and values of columns are bytes already and are not serialized.

Source: apache/kafka ``org.apache.kafka.common.serialization``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.common.errors import SerializationError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Header
from kafka_sink.common.plugins import load_plugin, name_of
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.plugins import partitioner as partitioners
from kafka_sink.producer.plugins.built_in_partitioner import BuiltInPartitioner
from kafka_sink.producer.plugins.interceptors import ProducerInterceptors


class Serializer:
    """Converts objects to bytes; base class of serializers. Any object with these methods is accepted."""

    def configure(self, configs: Mapping[str, Any], is_key: bool) -> None:
        """Called once, before anything is sent, with the producer's properties; *is_key* says whether it serializes
        keys.
        """

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        """Return the bytes of *data*, None for null; may add to *headers*."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the producer is closed."""


class BytesSerializer(Serializer):
    """Passes bytes through; the default."""

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise TypeError("expected bytes")


class StringSerializer(Serializer):
    """Encodes text as UTF-8."""

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, str):
            raise TypeError("expected str")
        return data.encode()


class _NumberSerializer(Serializer):
    def __init__(self, layout: str, bits: int) -> None:
        self._pack: Callable[[int], bytes] = struct.Struct(layout).pack
        self._bits = bits

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        if data is None:
            return None
        if isinstance(data, bool) or not isinstance(data, int):
            raise TypeError("expected int")
        try:
            return self._pack(data)
        except struct.error:
            raise ValueError(f"{data} has more than {self._bits} bits") from None


class IntegerSerializer(_NumberSerializer):
    """Encodes integers as four bytes, big-endian, like Java's ``IntegerSerializer``."""

    def __init__(self) -> None:
        super().__init__(">i", 32)


class LongSerializer(_NumberSerializer):
    """Encodes integers as eight bytes, big-endian, like Java's ``LongSerializer``."""

    def __init__(self) -> None:
        super().__init__(">q", 64)


class JsonSerializer(Serializer):
    """Encodes what :mod:`json` can write as UTF-8 without spaces; None is null, not the text ``null``."""

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        if data is None:
            return None
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


_JAVA: Final = "org.apache.kafka.common.serialization."

BUILT_IN: Final[Mapping[str, type[Serializer]]] = {
    "bytes": BytesSerializer,
    "string": StringSerializer,
    "integer": IntegerSerializer,
    "long": LongSerializer,
    "json": JsonSerializer,
    _JAVA + "ByteArraySerializer": BytesSerializer,
    _JAVA + "StringSerializer": StringSerializer,
    _JAVA + "IntegerSerializer": IntegerSerializer,
    _JAVA + "LongSerializer": LongSerializer,
}


class _FunctionSerializer(Serializer):
    """Converts with a function of the object; null stays null."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        return None if data is None else self.function(data)


class FieldSerializer:
    """The serializer of keys or of values; names the field, the type and the serializer in its errors."""

    def __init__(self, option: str, serializer: Any, configs: Mapping[str, Any]) -> None:
        """:raises ConfigError: if *serializer* cannot be loaded."""
        self._option = option
        self._field = option.partition(".")[0]
        if callable(serializer) and not hasattr(serializer, "serialize"):
            serializer = _FunctionSerializer(serializer)
        self._serializer = load_plugin(option, serializer, BUILT_IN, "serialize")
        #: Whether bytes are passed through unchanged.
        self.is_plain = type(self._serializer) is BytesSerializer
        configure = getattr(self._serializer, "configure", None)
        if configure is not None:
            configure(configs, self._field == "key")

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        """:raises SerializationError: if *data* cannot be serialized; the text names field, type and serializer."""
        try:
            serialized = self._serializer.serialize(topic, headers, data)
        except Exception as error:
            raise SerializationError(
                f"the record's {self._field} ({type(data).__name__}) for topic {topic} cannot be serialized by "
                f"{self._name} ({self._option}): {error}"
            ) from error
        if serialized is None or isinstance(serialized, bytes):
            return serialized
        if isinstance(serialized, bytearray | memoryview):
            return bytes(serialized)
        raise SerializationError(
            f"{self._name} ({self._option}) returned {type(serialized).__name__} for the record's "
            f"{self._field} of topic {topic}; a serializer must return bytes or None"
        )

    @property
    def _name(self) -> str:
        made = self._serializer
        return repr(made.function) if isinstance(made, _FunctionSerializer) else name_of(made)

    def close(self) -> None:
        close = getattr(self._serializer, "close", None)
        if close is not None:
            close()


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
