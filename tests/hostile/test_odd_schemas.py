"""Schemas that libraries stumble over: the records of one are refused with the reason, and no error of a library's."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from kafka_sink.cli.values.typed_values import shown, shown_by_schema
from kafka_sink.common.errors import SerializationError
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.parsing import parse_schema as parse_json_schema
from kafka_sink.formats.schema_text import SchemaText, is_too_deep
from tests.hostile.records import WIRE, OneSchema
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour("Schema registry", "What is read is bounded: no schema, record or answer does harm")

Field = descriptor_pb2.FieldDescriptorProto


def file(name: str = "s.proto", **parts: Any) -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, **{"syntax": "proto3", **parts})


def message(*fields: Any, name: str = "M", **parts: Any) -> Any:
    return descriptor_pb2.DescriptorProto(name=name, field=fields, **parts)


def field(kind: int, number: int = 1, name: str = "a", *, label: int = 1, type_name: str | None = None) -> Any:
    return Field(name=name, number=number, type=kind, label=label, type_name=type_name)


TEXT, INT32, MESSAGE, ENUM = Field.TYPE_STRING, Field.TYPE_INT32, Field.TYPE_MESSAGE, Field.TYPE_ENUM
LONG = descriptor_pb2.EnumDescriptorProto(name="E")
LONG.value.add(name="Q" * 60_000, number=0)
OPEN_OPTION = descriptor_pb2.FileOptions()
OPEN_OPTION.uninterpreted_option.add().name.add()
MAP = descriptor_pb2.MessageOptions(map_entry=True)


def of_googles(name: str, *fields: Any) -> list[Any]:
    own = file("google/protobuf/own.proto", package="google.protobuf", message_type=[message(*fields, name=name)])
    user = message(field(MESSAGE, type_name=f".google.protobuf.{name}"))
    return [own, file(dependency=[own.name], message_type=[user])]


def of_entry(*fields: Any) -> list[Any]:
    entry = message(*fields, name="AEntry", options=MAP)
    outer = message(field(MESSAGE, label=3, type_name=".M.AEntry"), nested_type=[entry])
    return [file(message_type=[outer], enum_type=[LONG])]


ODD = {
    "an own Timestamp": (of_googles("Timestamp"), b"\x0a\0", "which is missing"),
    "an own Struct": (of_googles("Struct", field(TEXT)), b"\x0a\3\x0a\1x", "which is missing"),
    "names in google.protobuf": (
        [file(package="google.protobuf", message_type=[message(field(TEXT), name="Any")])],
        b"\x0a\1x",
        "names in 'google.protobuf', which are Google's",
    ),
    "an option that was not read": (
        [file(message_type=[message(field(TEXT))], options=OPEN_OPTION)],
        b"",
        "EncodeError",
    ),
    "entries of a map with other names": (
        of_entry(field(TEXT, name="x"), field(TEXT, 2, name="y")),
        b"\x0a\0",
        "schema",
    ),
    "a deep import": (
        [file(message_type=[message()], dependency=["google/protobuf/" + "a/" * 5_000 + "b.proto"])],
        b"",
        "which is missing",
    ),
    "an import with a zero": ([file(message_type=[message()], dependency=["google/protobuf/\0"])], b"", "is missing"),
    "a module of Google's": (
        [file(message_type=[message()], dependency=["google/protobuf/internal/python_message.proto"])],
        b"",
        "which is missing",
    ),
    "a MessageSet": (
        [
            file(
                syntax="proto2",
                message_type=[
                    message(
                        options=descriptor_pb2.MessageOptions(message_set_wire_format=True),
                        extension_range=[descriptor_pb2.DescriptorProto.ExtensionRange(start=4, end=9)],
                    )
                ],
            )
        ],
        b"",
        "MessageSet",
    ),
    "many enums with a long name": (
        [
            file(
                message_type=[message(*(field(ENUM, at, f"a{at}", type_name=".E") for at in range(1, 300)))],
                enum_type=[LONG],
            )
        ],
        b"",
        "more than 200000 values",
    ),
    "entries without a value": (
        of_entry(field(TEXT, name="key"), field(ENUM, 2, "value", type_name=".E")),
        b"".join(b"\x0a\3\x0a\1" + bytes([each]) for each in range(97, 97 + 25)) * 20,
        "more than 200000 values",
    ),
    "a long name of an extension": (
        [
            file(
                syntax="proto2",
                message_type=[message(extension_range=[descriptor_pb2.DescriptorProto.ExtensionRange(start=4, end=9)])],
                extension=[Field(name="x" * 60_000, number=5, type=INT32, label=1, extendee=".M")],
            )
        ],
        b"\x28\1" * 1_000,
        "more than 200000 values",
    ),
}


@with_each("name", ODD)
def test_odd_descriptors_are_refused_with_the_reason(name: str) -> None:
    files, data, expected = ODD[name]
    given = descriptor_pb2.FileDescriptorSet(file=files).SerializePartialToString()
    registry = OneSchema(base64.b64encode(given).decode(), "PROTOBUF")
    for show in (shown("protobuf", "value", registry), shown_by_schema(registry)):  # type: ignore[arg-type]
        with pytest.raises(SerializationError) as caught:
            show(WIRE + b"\0" + data)
        assert expected.replace("200000 values", "") in str(caught.value).replace("10000 values", "")
        assert len(str(caught.value)) < 1_200


@with_each("depth", [99, 401, 985, 990, 5_000, 100_000])
@with_each("nest", ["[]", '{"a":}'])
def test_schemas_are_as_deep_as_can_be_shown(depth: int, nest: str) -> None:
    deep = nest[:-1] * depth + "1" + nest[-1] * depth
    for text in (deep, f'{{"type": {deep}}}', f'{{"type": "record", "name": "A", "fields": [{{"name": {deep}}}]}}'):
        with pytest.raises(FormatError):
            parse_schema(text)
    try:
        parse_json_schema(SchemaText(f'{{"default": {deep}}}'))
    except FormatError:
        assert depth > 99


def test_brackets_in_texts_are_no_levels() -> None:
    assert not is_too_deep('{"doc": "%s\\"["}' % ("[" * 10_000))
