"""Serializers: convert a record's key and value to bytes.

:meth:`KafkaProducer.send` uses them on the calling threads, several at once, so a serializer must not keep state
between calls. Keys and values of columns are bytes already and are not serialized.

Source: apache/kafka ``org.apache.kafka.common.serialization``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import Header
from kafka_sink.common.plugins import load_plugin, name_of


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


class FieldSerializer:
    """The serializer of keys or of values; names the field, the type and the serializer in its errors."""

    def __init__(self, option: str, serializer: Any, configs: Mapping[str, Any]) -> None:
        """:raises ConfigError: if *serializer* cannot be loaded."""
        self._option = option
        self._field = option.partition(".")[0]
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
                f"{name_of(self._serializer)} ({self._option}): {error}"
            ) from error
        if serialized is None or isinstance(serialized, bytes):
            return serialized
        if isinstance(serialized, bytearray | memoryview):
            return bytes(serialized)
        raise SerializationError(
            f"{name_of(self._serializer)} ({self._option}) returned {type(serialized).__name__} for the record's "
            f"{self._field} of topic {topic}; a serializer must return bytes or None"
        )

    def close(self) -> None:
        close = getattr(self._serializer, "close", None)
        if close is not None:
            close()
