"""A column in Protobuf, see :class:`kafka_sink.formats.column_format.Format`: its encoder, and the message derived from
its type, with its text as a ``.proto`` file in proto3.

Messages are derived on the driver, before any task, without a library of Protobuf. A field has the number of its
position, so a new column at the end is a compatible change. Nullable fields have presence (``optional``). The type of a
struct is a separate message nested in the message that contains it, with the name of its field in upper camel case.

Source: https://protobuf.dev/programming-guides/encoding/, https://protobuf.dev/programming-guides/proto3/, apache/spark
``SchemaConverters.scala`` of spark-protobuf.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from kafka_sink.formats.column_format import PROTOBUF, TOP_LEVEL, ColumnEncoder, ColumnFormat, Format
from kafka_sink.formats.errors import FormatError, check_unique, shown_type
from kafka_sink.formats.fields import is_list
from kafka_sink.formats.payloads import FieldsEncoder
from kafka_sink.formats.protobuf.matching import fields_of_rows
from kafka_sink.formats.protobuf.schema import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    FLOAT,
    MESSAGE,
    STRING,
    TIMESTAMP,
    Message,
    MessageField,
    Presence,
    ProtobufSchema,
)
from kafka_sink.formats.schema_text import SchemaText

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_FIELDS: Final = 18_999

_SCALARS: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): BOOL,
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.time64("ns"): "int64",
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
}
_KEYS: Final = ("int32", "int64", BOOL, STRING)
_FILES: Final = {TIMESTAMP: "google/protobuf/timestamp.proto", DURATION: "google/protobuf/duration.proto"}
_REMEDIES: Final = (
    (pa.types.is_decimal, "cast it to string, or to double"),
    (pa.types.is_date, "cast it to timestamp, or to string"),
    (pa.types.is_timestamp, "cast it to timestamp, which has a time zone"),
    (pa.types.is_null, "cast it to a type, or drop it"),
)


class Derived(NamedTuple):
    """A schema and its text."""

    schema: ProtobufSchema
    text: str


def derive_schema(kind: pa.DataType, column: str) -> Derived:
    """The message for *column*, whose rows have the type *kind*. Null rows have no payload.

    :raises FormatError: if the rows are no structs, if a type has no counterpart in Protobuf, or if a field has a name
        that Protobuf does not allow; the text names the column.
    """
    if not pa.types.is_struct(kind):
        raise FormatError(
            f"column '{column}' is {shown_type(kind)}, but a payload of Protobuf is a message; make it a struct: "
            "struct('*')"
        )
    derivation = _Derivation()
    lines = derivation.message(TOP_LEVEL, TOP_LEVEL, kind, column, "")
    files = "".join(f'import "{_FILES[path]}";\n' for path in sorted(derivation.imported))
    text = 'syntax = "proto3";\n\n' + (f"{files}\n" if files else "") + "\n".join(lines) + "\n"
    return Derived(ProtobufSchema(TOP_LEVEL, (0,), derivation.messages, {}), text)


class _Derivation:
    """The messages derived so far, by their full names, and the well-known types that they need."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.imported: set[str] = set()

    def message(self, name: str, full: str, kind: pa.DataType, path: str, indent: str) -> list[str]:
        """The lines of the message *name* for a struct of the type *kind*."""
        _check_names(kind, path)
        taken = {field.name for field in kind} | {_entry(field.name) for field in kind if pa.types.is_map(field.type)}
        fields, declared, lines = [], [], []
        for number, part in enumerate(kind, 1):
            field_path = f"{path}.{part.name}"
            struct, inside = _struct_in(part.type, field_path)
            if struct is None:
                type_name = ""
            else:
                own = _camel_case(part.name) or "Message"
                while own in taken:
                    own += "Message"
                taken.add(own)
                type_name = f"{full}.{own}"
                declared += self.message(own, type_name, struct, inside, f"{indent}  ")
            field, shown = self._field(part, number, full, type_name, field_path)
            fields.append(field)
            lines.append(f"{indent}  {shown} {part.name} = {number};")
        self.messages[full] = Message(full, tuple(fields))
        return [f"{indent}message {name} {{", *declared, *lines, f"{indent}}}"]

    def _field(self, field: pa.Field, number: int, scope: str, type_name: str, path: str) -> tuple[MessageField, str]:
        """The field, and its type in the text."""
        kind = field.type
        if is_list(kind):
            name, of_items = self._type(kind.value_type, type_name, f"{path}[]")
            is_packed = name not in (STRING, BYTES, MESSAGE)
            presence = Presence.PACKED if is_packed else Presence.REPEATED
            return MessageField(field.name, number, name, presence, of_items), f"repeated {_shown(name, of_items)}"
        if pa.types.is_map(kind):
            return self._map(field, number, scope, type_name, path)
        name, of_value = self._type(kind, type_name, path)
        # A field with a message always has presence.
        is_implicit = not field.nullable and name != MESSAGE
        presence = Presence.IMPLICIT if is_implicit else Presence.EXPLICIT
        label = "optional " if field.nullable and name != MESSAGE else ""
        return MessageField(field.name, number, name, presence, of_value), f"{label}{_shown(name, of_value)}"

    def _map(self, field: pa.Field, number: int, scope: str, type_name: str, path: str) -> tuple[MessageField, str]:
        key, _ = self._type(field.type.key_type, "", f"{path}{{key}}")
        if key not in _KEYS:
            raise FormatError(
                f"column '{path}' is a map with keys of type {field.type.key_type}, but Protobuf's maps have integers, "
                "booleans or strings; cast them: transform_keys(…, lambda key, _: key.cast('string'))"
            )
        value, of_values = self._type(field.type.item_type, type_name, f"{path}{{}}")
        entry = f"{scope}.{_entry(field.name)}"
        presence = Presence.EXPLICIT if value == MESSAGE else Presence.IMPLICIT
        parts = (MessageField("key", 1, key, Presence.IMPLICIT), MessageField("value", 2, value, presence, of_values))
        self.messages[entry] = Message(entry, parts, is_map_entry=True)
        shown = f"map<{key}, {_shown(value, of_values)}>"
        return MessageField(field.name, number, MESSAGE, Presence.REPEATED, entry), shown

    def _type(self, kind: pa.DataType, type_name: str, path: str) -> tuple[str, str]:
        """The type of a value, and the full name if it is a message."""
        if kind in _SCALARS:
            return _SCALARS[kind], ""
        if pa.types.is_struct(kind):
            return MESSAGE, type_name
        if pa.types.is_duration(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None):
            well_known = DURATION if pa.types.is_duration(kind) else TIMESTAMP
            self.imported.add(well_known)
            seconds = MessageField("seconds", 1, "int64", Presence.IMPLICIT)
            nanos = MessageField("nanos", 2, "int32", Presence.IMPLICIT)
            self.messages[well_known] = Message(well_known, (seconds, nanos))
            return MESSAGE, well_known
        if is_list(kind) or pa.types.is_map(kind):
            raise FormatError(
                f"column '{path}' is {shown_type(kind)}, and Protobuf has no lists and maps within these; put it into "
                "a struct"
            )
        remedy = next((text for fits, text in _REMEDIES if fits(kind)), "cast it to string, or drop it")
        raise FormatError(f"column '{path}' is {shown_type(kind)}, which has no counterpart in Protobuf; {remedy}")


def _struct_in(kind: pa.DataType, path: str) -> tuple[pa.DataType | None, str]:
    """The struct of *kind*, of its items or of its values, and its path."""
    if is_list(kind):
        kind, path = kind.value_type, f"{path}[]"
    elif pa.types.is_map(kind):
        kind, path = kind.item_type, f"{path}{{}}"
    return (kind if pa.types.is_struct(kind) else None), path


def _camel_case(field: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field.split("_"))


def _entry(field: str) -> str:
    """The name of the message of a map's entries, which is the same in all compilers."""
    return f"{_camel_case(field)}Entry"


def _shown(kind: str, type_name: str) -> str:
    """A type in the text: a nested message by its own name, other messages by their full names."""
    if type_name in _FILES or not type_name:
        return type_name or kind
    return type_name.rpartition(".")[2]


def _check_names(kind: pa.DataType, path: str) -> None:
    """:raises FormatError: if a name is invalid in Protobuf, or two fields would have the same name in JSON."""
    if kind.num_fields > _MOST_FIELDS:
        raise FormatError(
            f"column '{path}' has {kind.num_fields} fields, and only {_MOST_FIELDS} get a number; give a schema"
        )
    entries = [_entry(field.name) for field in kind if pa.types.is_map(field.type)]
    check_unique(entries, path)
    seen: dict[str, str] = {}
    for field in kind:
        if field.name in entries:
            raise FormatError(
                f"column '{path}.{field.name}' has the name that Protobuf gives to the entries of a map beside it; "
                "rename one of them"
            )
        if not _NAME.fullmatch(field.name):
            raise FormatError(
                f"column '{path}.{field.name}' has a name that Protobuf does not allow: only letters, digits and _, "
                "and no digit first; rename it"
            )
        in_json = re.sub(r"_+(.?)", lambda match: match[1].upper(), field.name)
        if in_json in seen:
            raise FormatError(
                f"column '{path}' has the fields '{seen[in_json]}' and '{field.name}', which have the same name in "
                "Protobuf's JSON; rename one of them"
            )
        seen[in_json] = field.name


class ProtobufFormat(Format):
    """Schemas are texts of proto files, compiled on the driver; the tasks get the messages."""

    def encoder(self, form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
        return FieldsEncoder(fields_of_rows(messages_of(form), kind, form.column))

    def derived(self, kind: pa.DataType, column: str) -> ColumnFormat:
        derived = derive_schema(kind, column)
        return ColumnFormat(column, PROTOBUF, derived.text, messages=derived.schema)

    def given(self, schema: SchemaText, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        from kafka_sink.formats.protobuf.parsing import parse_schema

        text = self.linked(schema)
        source = schema if schema.references else None
        return ColumnFormat(column, PROTOBUF, text, messages=parse_schema(text, message), source=source)

    def linked(self, schema: SchemaText) -> str:
        from kafka_sink.formats.protobuf.descriptors import linked

        return linked(schema)

    def record_name(self, form: ColumnFormat) -> str | None:
        return messages_of(form).root

    def registered_schema(self, form: ColumnFormat) -> SchemaText:
        from kafka_sink.formats.protobuf.parsing import registered_text

        return form.source or registered_text(form.schema, messages_of(form).root)


def messages_of(form: ColumnFormat) -> ProtobufSchema:
    """The messages that the schema declares. :raises ValueError: if the column was not made by this format."""
    if not isinstance(form.messages, ProtobufSchema):
        raise ValueError(f"column {form.column!r} has no messages of Protobuf")
    return form.messages


FORMAT: Final = ProtobufFormat()
