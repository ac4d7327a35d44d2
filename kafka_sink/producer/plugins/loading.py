"""Loads the plugins of a producer: partitioner, serializers and interceptors; and calls the serializers, which convert
a record's key and value to bytes, and the interceptors: user code that is called with every record before it is sent,
and with every outcome before the caller.

The constructing thread creates and configures the plugins; they are closed with the producer. A serializer is a
function of the object, or has ``serialize(topic, headers, data)``, which returns bytes, or None for null, and may add
to the headers. :meth:`KafkaProducer.send` uses serializers on the calling threads, several at once, so a serializer
must not keep state between calls. Keys and values of columns are bytes already and are not serialized.

An interceptor has some of the methods ``configure(configs)``, ``on_send(record)``, which returns the record to send
instead, ``on_acknowledgement(metadata, error)``, with an offset of -1 after an error, and ``close()``. ``on_send`` runs
on the calling threads and ``on_acknowledgement`` on the sender thread (on the calling thread for a record that was
never staged). An exception of an interceptor is logged and not propagated: the next interceptor is called with the same
arguments.

Source: apache/kafka ``org.apache.kafka.common.serialization``; KIP-42 and ``ProducerInterceptors``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kafka_sink.common.errors import SerializationError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Header, RecordMetadata
from kafka_sink.common.plugins import load_plugin, name_of
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import Delivery, DeliveryCallback
from kafka_sink.producer.plugins import partitioner as partitioners
from kafka_sink.producer.plugins.built_in_partitioner import BuiltInPartitioner
from kafka_sink.producer.producer_record import ProducerRecord


def _bytes(data: Any) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError("expected bytes")


def _text(data: Any) -> bytes:
    if not isinstance(data, str):
        raise TypeError("expected str")
    return data.encode()


def _number(layout: str, bits: int, data: Any) -> bytes:
    """Big-endian, like Java's serializers of integers."""
    if isinstance(data, bool) or not isinstance(data, int):
        raise TypeError("expected int")
    try:
        return struct.pack(layout, data)
    except struct.error:
        raise ValueError(f"{data} has more than {bits} bits") from None


def _json(data: Any) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


_JAVA: Final = "org.apache.kafka.common.serialization."
_integer, _long = partial(_number, ">i", 32), partial(_number, ">q", 64)

BUILT_IN: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "bytes": _bytes,
    "string": _text,
    "integer": _integer,
    "long": _long,
    "json": _json,
    _JAVA + "ByteArraySerializer": _bytes,
    _JAVA + "StringSerializer": _text,
    _JAVA + "IntegerSerializer": _integer,
    _JAVA + "LongSerializer": _long,
}


class FieldSerializer:
    """The serializer of keys or of values; names the field, the type and the serializer in its errors."""

    def __init__(self, option: str, serializer: Any, configs: Mapping[str, Any]) -> None:
        """:raises ConfigError: if *serializer* cannot be loaded."""
        self._option = option
        self._field = option.partition(".")[0]
        loaded = self.loaded = load_plugin(option, serializer, BUILT_IN)
        self._function = loaded if callable(loaded) and not hasattr(loaded, "serialize") else None
        if self._function is None:
            load_plugin(option, loaded, {}, "serialize")
        self._name = serializer if loaded in BUILT_IN.values() else name_of(loaded)
        #: Whether bytes are passed through unchanged.
        self.is_plain = loaded is _bytes
        _configure(loaded, configs, self._field == "key")

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        """The bytes of *data*; a serializer that is a function is not called with None.

        :raises SerializationError: if *data* cannot be serialized; the text names field, type and serializer.
        """
        try:
            if self._function is None:
                serialized = self.loaded.serialize(topic, headers, data)
            else:
                serialized = None if data is None else self._function(data)
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


_NO_PARTITION = -1
_NO_SIZE = -1


class ProducerInterceptors:
    """A chain of interceptors, called in the order of the configuration."""

    def __init__(self, interceptors: Iterable[Any], configs: Mapping[str, Any], log: ContextLogger) -> None:
        """:raises ConfigError: if one of *interceptors* cannot be loaded."""
        self._log = log
        self.interceptors = [load_plugin("interceptor.classes", item, {}) for item in interceptors]
        for interceptor in self.interceptors:
            _configure(interceptor, configs)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Apply the chain to *record* and return the result."""
        for interceptor in self.interceptors:
            on_send = getattr(interceptor, "on_send", None)
            if on_send is None:
                continue
            try:
                record = on_send(record)
            except Exception:
                self._log.warning(
                    "on_send of %s raised; its record is sent as if the interceptor were absent",
                    name_of(interceptor),
                    exc_info=True,
                )
        return record

    def acknowledging(
        self, timestamp: int, key: bytes | None, value: bytes | None, callback: DeliveryCallback | None
    ) -> DeliveryCallback:
        """A delivery callback of a record, which calls the chain and then *callback*."""
        key_size = _NO_SIZE if key is None else len(key)
        value_size = _NO_SIZE if value is None else len(value)

        def acknowledge(delivery: Delivery) -> None:
            topic, partition = delivery.topic_partition
            if delivery.error is not None:
                metadata = _unknown(topic, partition)
            else:
                stored_at = timestamp if delivery.log_append_time == NO_TIMESTAMP else delivery.log_append_time
                metadata = RecordMetadata(topic, partition, delivery.base_offset, stored_at, key_size, value_size)
            self._on_acknowledgement(metadata, delivery.error, caught=BaseException)
            if callback is not None:
                callback(delivery)

        return acknowledge

    def on_send_error(self, record: ProducerRecord, partition: int | None, error: Exception) -> None:
        """Report that *record* was never staged; *partition* is its destination, if known."""
        destination = record.partition if partition is None else partition
        metadata = _unknown(record.topic, _NO_PARTITION if destination is None else destination)
        self._on_acknowledgement(metadata, error, caught=Exception)

    def _on_acknowledgement(
        self, metadata: RecordMetadata, error: Exception | None, *, caught: type[BaseException]
    ) -> None:
        """:param caught: BaseException on the sender thread, because sys.exit() would end it; Exception on calling
        threads, which may be interrupted."""
        for interceptor in self.interceptors:
            on_acknowledgement = getattr(interceptor, "on_acknowledgement", None)
            if on_acknowledgement is None:
                continue
            try:
                on_acknowledgement(metadata, error)
            except caught as raised:
                self._log.warning("on_acknowledgement of %s raised %r", name_of(interceptor), raised, exc_info=True)


def _unknown(topic: str, partition: int) -> RecordMetadata:
    return RecordMetadata(topic, partition, NO_OFFSET, NO_TIMESTAMP, _NO_SIZE, _NO_SIZE)


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
    if chosen in (None, partitioners.FORMER_DEFAULT):
        chosen = None
        built_in = BuiltInPartitioner(config.batch_size_bytes, ignore_keys=config.partitioner_ignore_keys)
    else:
        chosen = load_plugin(config.option("partitioner.class"), chosen, partitioners.BUILT_IN, "partition")
        closers.callback(_close, chosen, log)
        _configure(chosen, configs)

    def serializer(option: str, named: Any, passed: Any) -> FieldSerializer:
        made = FieldSerializer(option, named if passed is None else passed, configs)
        closers.callback(_close, made.loaded, log)
        return made

    keys = serializer("key.serializer", config.key_serializer, plugins.key_serializer)
    values = serializer("value.serializer", config.value_serializer, plugins.value_serializer)
    interceptors = config.interceptor_classes if plugins.interceptors is None else plugins.interceptors
    chain = ProducerInterceptors(interceptors, configs, log) if interceptors else None
    for interceptor in reversed(chain.interceptors if chain is not None else ()):
        closers.callback(_close, interceptor, log)
    return Plugins(built_in, chosen, keys, values, chain, closers.close)


def _configure(plugin: Any, *arguments: Any) -> None:
    configure = getattr(plugin, "configure", None)
    if configure is not None:
        configure(*arguments)


def _close(plugin: Any, log: ContextLogger) -> None:
    close = getattr(plugin, "close", None)
    if not callable(close):
        return
    try:
        close()
    except Exception:
        log.warning("closing %s failed", name_of(plugin), exc_info=True)
