"""Finds the field of a message and the writer for each column; a mismatch is refused before any row is written.

Called on the driver, and once per task. Columns and fields match by their names. As in spark-protobuf a field without a
column is left out if it is not required, and a column without a field is an error.

Source: apache/spark ``ProtobufSerializer.scala``; https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from kafka_sink.formats.errors import FormatError, check_names, mismatch
from kafka_sink.formats.fields import PER_SECOND, is_bytes, is_list, is_text
from kafka_sink.formats.payloads import NothingWriter, PieceWriter
from kafka_sink.formats.protobuf import writers
from kafka_sink.formats.protobuf.schema import (
    BOOL,
    DOUBLE,
    DURATION,
    ENUM,
    FLOAT,
    GROUP,
    MESSAGE,
    TIMESTAMP,
    WRAPPERS,
    Message,
    MessageField,
    Presence,
    ProtobufSchema,
)

_STORED: Final[Mapping[pa.DataType, type[np.generic]]] = {
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
}
#: Type of integers → its wire type, and its lowest and highest number.
_INTEGERS: Final[Mapping[str, tuple[int, int, int]]] = {
    "int32": (writers.VARINT, -(1 << 31), (1 << 31) - 1),
    "sint32": (writers.VARINT, -(1 << 31), (1 << 31) - 1),
    "sfixed32": (writers.FIXED32, -(1 << 31), (1 << 31) - 1),
    "uint32": (writers.VARINT, 0, (1 << 32) - 1),
    "fixed32": (writers.FIXED32, 0, (1 << 32) - 1),
    "int64": (writers.VARINT, -(1 << 63), (1 << 63) - 1),
    "sint64": (writers.VARINT, -(1 << 63), (1 << 63) - 1),
    "sfixed64": (writers.FIXED64, -(1 << 63), (1 << 63) - 1),
    "uint64": (writers.VARINT, 0, (1 << 64) - 1),
    "fixed64": (writers.FIXED64, 0, (1 << 64) - 1),
}
_OTHER_WIRE_TYPES: Final[Mapping[str, int]] = {
    BOOL: writers.VARINT,
    ENUM: writers.VARINT,
    FLOAT: writers.FIXED32,
    DOUBLE: writers.FIXED64,
    GROUP: writers.START_GROUP,
}
# The years 1 to 9999.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
_LONGEST: Final = 315_576_000_000

_CAST: Final = "cast the column, or change the schema"


def fields_of_rows(schema: ProtobufSchema, kind: pa.DataType, path: str) -> writers.MessageFields:
    """The writers of column *path*, whose rows have the type *kind*, as the root of *schema*.

    :raises FormatError: if the column cannot be written as this message; the text names the column and both types.
    """
    return _Matching(schema).fields(schema.messages[schema.root], kind, path)


class _Matching:
    """The writers of the columns of one schema. A message may contain itself to the depth of the column."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema

    def fields(self, message: Message, kind: pa.DataType, path: str) -> writers.MessageFields:
        """:raises FormatError: if a struct of the type *kind* cannot be written as *message*."""
        if not pa.types.is_struct(kind):
            raise mismatch(message, kind, path, "make it a struct: struct('*')")
        names = [field.name for field in kind]
        check_names(names, [field.name for field in message.fields], message, path)
        columns, field_writers = [], []
        for field in message.fields:
            inner = f"{path}.{field.name}"
            if field.name in names:
                columns.append(names.index(field.name))
                field_writers.append(self._field_writer(field, kind[names.index(field.name)].type, inner))
            elif field.presence is Presence.REQUIRED:
                raise FormatError(
                    f"column '{inner}' is missing: the schema's field '{field.name}' is required; add the column, or "
                    "make the field optional"
                )
        return writers.MessageFields(path, tuple(columns), tuple(field_writers), _oneofs(message, names))

    def _field_writer(self, field: MessageField, kind: pa.DataType, path: str) -> PieceWriter:
        if pa.types.is_null(kind) and field.presence is not Presence.REQUIRED:
            return NothingWriter()
        entry = self._schema.messages.get(field.type_name)
        if entry is not None and entry.is_map_entry:
            return self._map_writer(field, entry, kind, path)
        if field.presence in (Presence.REPEATED, Presence.PACKED):
            if not is_list(kind):
                raise mismatch(field, kind, path, "make it an array: array(…)")
            is_packed = field.presence is Presence.PACKED
            tag = writers.tag_of(field.number, writers.LENGTH_DELIMITED) if is_packed else _tag(field)
            return writers.ListWriter(path, tag, self._value(field, kind.value_type, f"{path}[]"), is_packed)
        value = self._value(field, kind, path)
        if field.presence is Presence.REQUIRED:
            return writers.RequiredWriter(path, _tag(field), value)
        return writers.SingularWriter(_tag(field), value, field.presence is Presence.IMPLICIT)

    def _map_writer(self, field: MessageField, entry: Message, kind: pa.DataType, path: str) -> PieceWriter:
        if not pa.types.is_map(kind):
            raise mismatch(field, kind, path, "make it a map")
        key, value = entry.fields
        return writers.MapWriter(
            path,
            _tag(field),
            _tag(key),
            self._value(key, kind.key_type, f"{path}{{key}}"),
            _tag(value),
            self._value(value, kind.item_type, f"{path}{{}}"),
        )

    def _value(self, field: MessageField, kind: pa.DataType, path: str) -> writers.Value:
        """The writer of the values that are not null."""
        if field.kind == ENUM and (is_text(kind) or kind in _STORED):
            return writers.EnumWriter(path, self._schema.enums[field.type_name].numbers, is_text(kind))
        if field.kind == GROUP:
            return writers.GroupWriter(self._inside(field, kind, path), writers.tag_of(field.number, writers.END_GROUP))
        if field.kind == MESSAGE:
            writer = _well_known(field, kind, path)
            return writers.MessageWriter(self._inside(field, kind, path)) if writer is None else writer
        return _scalar(field, kind, path)

    def _inside(self, field: MessageField, kind: pa.DataType, path: str) -> writers.MessageFields:
        if not pa.types.is_struct(kind):
            raise mismatch(field, kind, path, _CAST)
        return self.fields(self._schema.messages[field.type_name], kind, path)


def _well_known(field: MessageField, kind: pa.DataType, path: str) -> writers.Value | None:
    """The writer of a message from a column without parts; None if there is none."""
    if field.type_name == TIMESTAMP and pa.types.is_timestamp(kind) and kind.tz is not None:
        allowed = "google.protobuf.Timestamp takes the years 1 to 9999"
        return writers.MomentWriter(path, PER_SECOND[kind.unit], _FIRST_SECOND, _LAST_SECOND, allowed, is_signed=False)
    if field.type_name == DURATION and pa.types.is_duration(kind):
        allowed = "google.protobuf.Duration takes 10,000 years"
        return writers.MomentWriter(path, PER_SECOND[kind.unit], -_LONGEST, _LONGEST, allowed, is_signed=True)
    if field.type_name in WRAPPERS and not pa.types.is_struct(kind):
        inside = MessageField("value", 1, WRAPPERS[field.type_name], Presence.IMPLICIT)
        return writers.WrapperWriter(_wire_type(inside), _scalar(inside, kind, path))
    return None


def _scalar(field: MessageField, kind: pa.DataType, path: str) -> writers.Value:
    if field.kind in _INTEGERS:
        return _integer(field, kind, path)
    match field.kind:
        case "bool" if pa.types.is_boolean(kind):
            return writers.BooleanWriter()
        case "float" if pa.types.is_float32(kind):
            return writers.FloatWriter(np.float32, np.float32)
        case "double" if pa.types.is_float32(kind) or pa.types.is_float64(kind):
            return writers.FloatWriter(np.float32 if pa.types.is_float32(kind) else np.float64, np.float64)
        case "string" if is_text(kind):
            return writers.BytesWriter(path, is_text=True)
        case "bytes" if is_text(kind) or is_bytes(kind):
            return writers.BytesWriter(path, is_text=False)
    raise mismatch(field, kind, path, _CAST)


def _integer(field: MessageField, kind: pa.DataType, path: str) -> writers.Value:
    wire_type, low, high = _INTEGERS[field.kind]
    is_zigzag = field.kind in ("sint32", "sint64")
    if pa.types.is_decimal128(kind) and kind.scale == 0 and high == (1 << 64) - 1:
        return writers.DecimalWriter(path, field.kind, wire_type)
    if pa.types.is_date32(kind) and high == (1 << 31) - 1:
        return writers.IntegerWriter(path, field.kind, np.int32, wire_type, is_zigzag)
    # As to_protobuf: the nanoseconds since midnight, in 64 bits.
    stored = np.int64 if kind == pa.time64("ns") and high >> 32 else _STORED.get(kind)
    if stored is None:
        raise mismatch(field, kind, path, _CAST)
    held = np.iinfo(stored)  # type: ignore[type-var]
    if low == -(1 << 31) and held.max > high:
        # Values of a bigint beyond the range of int would only be found in the rows.
        raise mismatch(field, kind, path, "cast the column to int, or make the field int64")
    bounds = None if low <= held.min and held.max <= high else (low, high)
    return writers.IntegerWriter(path, field.kind, stored, wire_type, is_zigzag, bounds)


def _oneofs(message: Message, names: list[str]) -> tuple[writers.Oneof, ...]:
    """The oneofs with several fields that have a column."""
    oneofs: dict[str, list[str]] = {}
    for field in message.fields:
        if field.oneof is not None and field.name in names:
            oneofs.setdefault(field.oneof, []).append(field.name)
    return tuple(
        writers.Oneof(name, tuple(names.index(member) for member in members), tuple(members))
        for name, members in oneofs.items()
        if len(members) > 1
    )


def _tag(field: MessageField) -> bytes:
    return writers.tag_of(field.number, _wire_type(field))


def _wire_type(field: MessageField) -> int:
    if field.kind in _INTEGERS:
        return _INTEGERS[field.kind][0]
    return _OTHER_WIRE_TYPES.get(field.kind, writers.LENGTH_DELIMITED)
