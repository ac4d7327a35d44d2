"""Whether messages that were written by one schema can be read by another: what a field's number stands for must stay.

The registry in memory asks it when a schema is registered. Messages are compared by their names, fields by their
numbers. As in Confluent's registry a field may be added or removed at any time, unless it is required or in a oneof.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-protobuf.html,
https://protobuf.dev/programming-guides/proto3/#updating.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafka_sink.formats.protobuf.schema import Field, Message, Presence, Schema

#: Types that are read as each other; all others are read as themselves alone.
_READ_ALIKE: Final = (
    frozenset({"int32", "uint32", "int64", "uint64", "bool"}),
    frozenset({"sint32", "sint64"}),
    frozenset({"string", "bytes"}),
    frozenset({"fixed32", "sfixed32"}),
    frozenset({"fixed64", "sfixed64"}),
)
#: The package of messages that everybody has.
_WELL_KNOWN: Final = "google.protobuf."
_MANY: Final = (Presence.REPEATED, Presence.PACKED)


def problems(reader: Schema, writer: Schema) -> Iterator[str]:
    """Why messages of *writer* cannot be read by *reader*, each with the path of the field; nothing if they can."""
    for name, written in writer.messages.items():
        if name in reader.messages:
            yield from _of_messages(reader.messages[name], written)
        elif not written.is_map_entry and not name.startswith(_WELL_KNOWN):
            yield f"MESSAGE_REMOVED: the message at path '#/{name}' is missing"


def _of_messages(reader: Message, writer: Message) -> Iterator[str]:
    numbers = {field.number: field for field in writer.fields}
    for field in reader.fields:
        path = f"#/{reader.name}/{field.number}"
        written = numbers.get(field.number)
        if written is not None:
            yield from _of_fields(field, written, path)
        elif field.presence is Presence.REQUIRED:
            yield f"REQUIRED_FIELD_ADDED: the field '{field.name}' at path '{path}' is required, and was not there"
    kept = {field.number for field in reader.fields}
    for field in writer.fields:
        path = f"#/{reader.name}/{field.number}"
        if field.number in kept:
            continue
        if field.presence is Presence.REQUIRED:
            yield f"REQUIRED_FIELD_REMOVED: the required field '{field.name}' at path '{path}' is missing"
        elif field.oneof is not None:
            yield f"ONEOF_FIELD_REMOVED: the field '{field.name}' of a oneof at path '{path}' is missing"


def _of_fields(reader: Field, writer: Field, path: str) -> Iterator[str]:
    if (reader.kind, reader.type_name) != (writer.kind, writer.type_name) and not _is_read_alike(reader, writer):
        yield f"FIELD_KIND_CHANGED: the field at path '{path}' is {reader}, which does not read {writer}"
    elif (reader.presence in _MANY) != (writer.presence in _MANY) and reader.kind not in ("string", "bytes", "message"):
        yield f"FIELD_LABEL_CHANGED: the field at path '{path}' is {reader}, and was {writer}"
    if Presence.REQUIRED in (reader.presence, writer.presence) and reader.presence is not writer.presence:
        yield f"REQUIRED_FIELD_CHANGED: the field at path '{path}' is {reader.presence.value}, and was otherwise"


def _is_read_alike(reader: Field, writer: Field) -> bool:
    if "enum" in (reader.kind, writer.kind):
        reader, writer = _number(reader), _number(writer)
    return any(reader.kind in kinds and writer.kind in kinds for kinds in _READ_ALIKE)


def _number(field: Field) -> Field:
    """An enum as the number that is written."""
    return Field(field.name, field.number, "int32", field.presence) if field.kind == "enum" else field
