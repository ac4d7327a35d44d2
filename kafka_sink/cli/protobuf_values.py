"""Keys and values of Protobuf, one at a time, as the JSON that Google's libraries have for messages.

Runs on the main thread. Each schema is compiled once. Fields have the names of the schema, and those without presence
are shown with their default values.

Source: https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kafka_sink.cli.json_records import Read, Shown
from kafka_sink.cli.value_schemas import TypedColumn, registered
from kafka_sink.common.errors import SerializationError
from kafka_sink.formats.column_format import PROTOBUF, ColumnFormat
from kafka_sink.formats.protobuf.descriptors import check_installed, pool_of, read_schema
from kafka_sink.formats.protobuf.parsing import message_names, parse_schema
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.subjects import message_position, split_position, split_wire, wire_header


def shown(column: str, registry: RegistryClient) -> Shown:
    """What makes JSON of the keys or values, called *column*.

    :raises FormatError: if a package is missing.
    """
    check_installed()

    @cache
    def messages(schema_id: int) -> tuple[str, dict[tuple[int, ...], str]]:
        text = registry.schema(schema_id, PROTOBUF.upper())
        return text, {position: name for name, position in message_names(text)}

    def decoded(payload: bytes | None) -> str:
        if payload is None:
            return "null"
        schema_id, data = split_wire(payload)
        text, names = messages(schema_id)
        position, data = split_position(data)
        if position not in names:
            raise SerializationError(f"the {column} is of a message that schema {schema_id} does not have: {position}")
        return _as_json(text, names[position], data, f"the {column} is no Protobuf of schema {schema_id}")

    return decoded


def _as_json(text: str, name: str, data: bytes, problem: str) -> str:
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError

    try:
        message = _class(text, name).FromString(data)
        found: str = json_format.MessageToJson(
            message,
            always_print_fields_with_no_presence=True,
            preserving_proto_field_name=True,
            indent=None,
            ensure_ascii=False,
            descriptor_pool=pool_of(text),
        )
    except (DecodeError, json_format.Error, ValueError) as error:
        raise SerializationError(f"{problem} ({error})") from None
    return found


def writer(registry: RegistryClient, written: TypedColumn) -> Read:
    """What makes Protobuf payloads of JSON, as :func:`kafka_sink.cli.typed_values.payload_writer` says.

    :raises FormatError: if the schema is invalid or lacks the message, or if a package is missing.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    given = None
    if written.schema_file is not None:
        text = read_schema(written.schema_file)
        given = ColumnFormat(written.column, PROTOBUF, text, messages=parse_schema(text, written.message))
    found = registered(registry, written, given)
    schema = parse_schema(found.schema, written.message)
    header = wire_header(found.schema_id) + message_position(schema.position)

    def encoded(value: Any, field: str) -> bytes | None:
        if value is None:
            return None
        return header + _from_json(found.schema, schema.root, value, field)

    return encoded


def _from_json(text: str, name: str, value: Any, field: str) -> bytes:
    from google.protobuf import json_format
    from google.protobuf.message import EncodeError

    try:
        parsed = json_format.ParseDict(value, _class(text, name)(), descriptor_pool=pool_of(text))
        data: bytes = parsed.SerializeToString()
    except (json_format.Error, EncodeError, TypeError, AttributeError, ValueError) as error:
        raise SerializationError(f"field {field}: {error}") from None
    return data


@cache
def _class(text: str, name: str) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(pool_of(text).FindMessageTypeByName(name))
