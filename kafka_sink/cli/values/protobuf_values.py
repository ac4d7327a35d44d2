"""Keys and values of Protobuf, one at a time, as the JSON that Google's libraries have for messages.

Runs on the main thread. Each schema is compiled once. Fields have the names of the schema, and those without presence
are shown with their default values.

Source: https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from kafka_sink.cli.values.json_records import Read
from kafka_sink.cli.values.value_schemas import KeptSchemas, TypedColumn, given_form, registered
from kafka_sink.common.errors import CorruptRecordError, SerializationError
from kafka_sink.common.text import without_controls
from kafka_sink.formats.column_format import PROTOBUF
from kafka_sink.formats.protobuf.descriptors import check_installed, linked, pool_of
from kafka_sink.formats.protobuf.parsing import message_names, parse_file, parse_schema
from kafka_sink.formats.protobuf.weighing import Scale
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.subjects import message_position, split_position, split_wire, wire_header


def shown(column: str, registry: RegistryClient, most_values: int) -> Callable[[bytes], Iterator[str]]:
    """What makes JSON of the keys or values, called *column*, with at most *most_values* values each.

    :raises FormatError: if a package is missing.
    """
    check_installed()
    schemas = KeptSchemas(
        lambda schema_id: registry.schema(schema_id, PROTOBUF.upper()), lambda schema: _ReadSchema(linked(schema))
    )

    def decoded(payload: bytes) -> Iterator[str]:
        schema_id, data = split_wire(payload)
        schema = schemas.of(schema_id)
        position, data = split_position(data)
        if position not in schema.names:
            raise SerializationError(f"the {column} is of a message that schema {schema_id} does not have: {position}")
        try:
            yield schema.as_json(schema.names[position], data, most_values)
        except CorruptRecordError as error:
            raise SerializationError(f"the {column} is not valid Protobuf of schema {schema_id}: {error}") from None

    return decoded


class _ReadSchema:
    """The messages of the schema *text*."""

    def __init__(self, text: str) -> None:
        """:raises FormatError: if it is no valid schema."""
        self.names = {position: name for name, position in message_names(text)}
        self._scale = Scale(parse_file(text))
        self._pool = pool_of(text)

    def as_json(self, name: str, data: bytes, most_values: int) -> str:
        """The JSON of the message *name*, which is *data*.

        :raises CorruptRecordError: if it is none, or has too many values.
        """
        from google.protobuf import json_format, message_factory

        self._scale.check(name, data, most_values)
        try:
            text: str = json_format.MessageToJson(
                message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name)).FromString(data),
                always_print_fields_with_no_presence=True,
                preserving_proto_field_name=True,
                indent=None,
                ensure_ascii=False,
                descriptor_pool=self._pool,
            )
        except MemoryError:
            raise
        except Exception as error:
            # The library's errors are of many kinds, and a schema chooses among them.
            raise CorruptRecordError(f"{type(error).__name__}: {error!s:.200}") from None
        return without_controls(text)


def writer(registry: RegistryClient, written: TypedColumn) -> Read:
    """What makes Protobuf payloads of JSON, as :func:`kafka_sink.cli.values.typed_values.payload_writer` says.

    :raises FormatError: if the schema is invalid or lacks the message, or if a package is missing.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    schema_id, text = registered(registry, written, given_form(written))
    schema = parse_schema(text, written.message)
    header = wire_header(schema_id) + message_position(schema.position)

    def encoded(value: Any, field: str) -> bytes | None:
        if value is None:
            return None
        return header + _from_json(text, schema.root, value, field)

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
