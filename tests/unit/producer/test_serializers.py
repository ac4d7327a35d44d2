"""Serializers produce the same bytes as Kafka's own, and errors name field and serializer."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.common.errors import ConfigError, SerializationError
from kafka_sink.producer.plugins.loading import FieldSerializer
from tests.support.cases import with_each


def make(given: Any, option: str = "value.serializer") -> FieldSerializer:
    return FieldSerializer(option, given, {})


@with_each(
    ("name", "data", "expected"),
    [
        ("bytes", b"\x00", b"\x00"),
        ("bytes", bytearray(b"a"), b"a"),
        ("bytes", memoryview(b"b"), b"b"),
        ("string", "grün", b"gr\xc3\xbcn"),
        ("integer", -2, b"\xff\xff\xff\xfe"),
        ("long", 2**40, b"\x00\x00\x01\x00\x00\x00\x00\x00"),
        ("json", {"a": [1, "ü", None, True]}, '{"a":[1,"ü",null,true]}'.encode()),
        ("org.apache.kafka.common.serialization.StringSerializer", "x", b"x"),
        ("org.apache.kafka.common.serialization.LongSerializer", 1, b"\x00" * 7 + b"\x01"),
        (str.encode, "x", b"x"),
    ],
)
def test_built_in_serializers_encode_values_and_keep_null(name: Any, data: Any, expected: bytes) -> None:
    serializer = make(name)
    assert serializer.serialize("t", [], data) == expected
    assert serializer.serialize("t", [], None) is None
    assert serializer.is_plain == (name == "bytes")


@with_each(
    ("name", "data", "text"),
    [
        ("bytes", "a", r"value \(str\) for topic t cannot be serialized by bytes \(value.serializer\): exp"),
        ("string", b"a", r"value \(bytes\).*by string \(value.*expected str"),
        ("string", "\ud800", r"string.*surrogates not allowed"),
        ("integer", True, r"integer.*expected int"),
        ("integer", 2**31, r"2147483648 has more than 32 bits"),
        ("long", 1.0, r"long.*expected int"),
        ("json", {1, 2}, r"value \(set\).*json.*not JSON serializable"),
        (str.encode, 5, r"cannot be serialized by str.encode \(value.serializer\): "),
        ("json.dumps", 5, r"dumps \(value.serializer\) returned str"),
        ("json", float("inf"), r"json.*Out of range float"),
    ],
)
def test_unserializable_value_is_named(name: Any, data: Any, text: str) -> None:
    with pytest.raises(SerializationError, match=text):
        make(name).serialize("t", [], data)


class Odd:
    """A minimal serializer."""

    def serialize(self, topic: str, headers: Any, data: Any) -> Any:
        return data


def test_any_object_that_serializes_to_bytes_is_accepted() -> None:
    serializer = make(Odd, "key.serializer")
    assert serializer.serialize("t", [], bytearray(b"x")) == b"x"
    with pytest.raises(
        SerializationError, match=r"Odd \(key.serializer\) returned str for the record's key of topic t"
    ):
        serializer.serialize("t", [], "text")
    with pytest.raises(ConfigError, match=r"option key.serializer: int has no method serialize"):
        make(5, "key.serializer")
