"""Finds the type in an Avro schema and the writer for each column; a mismatch is refused before any row is written.

Called on the driver, and once per task. Columns and fields match by their names. As in spark-avro a field without a
column must be nullable or have a default, and a column without a field is an error. A default is encoded once, and
ignores logical types, because it is declared as the type below.

Source: apache/spark ``AvroSerializer.scala``; https://avro.apache.org/docs/1.12.0/specification/#schema-resolution,
#schema-record (field default values).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafka_sink.columns.varint import encode_varint
from kafka_sink.formats.avro import writers
from kafka_sink.formats.avro.schema import (
    NO_DEFAULT,
    NULL,
    Array,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    RecordField,
    Union,
)
from kafka_sink.formats.errors import FormatError, check_names, mismatch
from kafka_sink.formats.fields import PER_SECOND, is_bytes, is_list, is_text
from kafka_sink.formats.payloads import NothingWriter, PieceWriter

#: Defaults of nested records are expanded, and their number may grow exponentially.
MOST_VALUES: Final = 5_000
_SHOWN: Final = 200
_INTS: Final[Mapping[pa.DataType, type[np.generic]]] = {pa.int8(): np.int8, pa.int16(): np.int16, pa.int32(): np.int32}
_FLOATS: Final[Mapping[pa.DataType, type[np.generic]]] = {pa.float32(): np.float32, pa.float64(): np.float64}
# The Arrow types that each number of Avro can be written from, with no more loss than Avro's promotions allow.
_NUMBERS: Final[Mapping[str, Mapping[pa.DataType, type[np.generic]]]] = {
    "int": _INTS,
    "long": {**_INTS, pa.int64(): np.int64},
    "float": {**_INTS, pa.int64(): np.int64, pa.float32(): np.float32},
    "double": {**_INTS, pa.int64(): np.int64, **_FLOATS},
}
#: A decimal of fixed is written in passes over eight bytes each.
_MOST_DECIMAL_BYTES: Final = 512
#: A default is written into each row.
_MOST_DEFAULT_BYTES: Final = 1 << 16
#: The functions of Spark that convert numbers to the type that they represent: only the user knows their unit.
_FROM_NUMBERS: Final[Mapping[str, str]] = {
    "date": "make it a date: date_from_unix_date(…)",
    "timestamp-millis": "make it a timestamp: timestamp_millis(…), timestamp_micros(…) or timestamp_seconds(…)",
    "timestamp-micros": "make it a timestamp: timestamp_micros(…), timestamp_millis(…) or timestamp_seconds(…)",
}
_UNIT_NAMES: Final[Mapping[str, str]] = {"millis": "ms", "micros": "us", "nanos": "ns"}


def _has_more(avro: AvroType, most: int) -> bool:
    """Whether *avro* has more than *most* types, with all names written out."""
    waiting = [avro]
    while waiting and most >= 0:
        most -= 1
        match waiting.pop():
            case Array(inner) | Map(inner):
                waiting.append(inner)
            case Record() as record:
                waiting += [field.type for field in record.fields]
            case Union() as union:
                waiting += union.branches
    return most < 0


def _encoded(avro: AvroType, value: Any) -> bytes:
    """Encode *value*, which is JSON, as *avro*; as the first matching type of a union.

    :raises ValueError: if it is no value of the type, or (OverflowError) has more bits.
    """
    match avro, value:
        case Array(), list():
            return _block([_encoded(avro.items, item) for item in value])
        case Map(), dict():
            return _block([_with_length(key.encode()) + _encoded(avro.values, item) for key, item in value.items()])
        case Record(), dict():
            return b"".join(_encoded(field.type, value.get(field.name, field.default)) for field in avro.fields)
        case Enum(), str() if value in avro.symbols:
            return encode_varint(avro.symbols.index(value))
        case Union(), _:
            for index, branch in enumerate(avro.branches):
                with suppress(ValueError, OverflowError):
                    return encode_varint(index) + _encoded(branch, value)
    return _encoded_leaf(avro, value)


def _encoded_leaf(avro: AvroType, value: Any) -> bytes:
    """Encode *value* without regard to logical types: defaults of bytes and decimals are declared as text."""
    match avro, value:
        case Primitive("null"), None:
            return b""
        case Primitive("boolean"), bool():
            return bytes([value])
        case Primitive("int" | "long" as name), int() if not isinstance(value, bool):
            bits = 31 if name == "int" else 63
            if -(1 << bits) <= value < 1 << bits:
                return encode_varint(value)
        case Primitive("float" | "double" as name), int() | float() if not isinstance(value, bool):
            return struct.pack("<f" if name == "float" else "<d", value)
        case Primitive("string"), str():
            return _with_length(value.encode())
        case ((Primitive("bytes") | Decimal(size=None)), str()):
            return _with_length(value.encode("latin-1"))
        case ((Fixed() | Decimal()), str()) if len(value) == avro.size:
            return value.encode("latin-1")
    raise ValueError


def _with_length(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return (encode_varint(len(items)) + b"".join(items) if items else b"") + b"\0"


def writer_for(avro: AvroType, kind: pa.DataType, path: str) -> PieceWriter:
    """The writer of column *path*, whose rows have the type *kind*, as *avro*.

    :raises FormatError: if the column cannot be written as this type; the text names the column and both types.
    """
    if isinstance(avro, Union):
        return _union_writer(avro, kind, path)
    if avro == NULL:
        if not pa.types.is_null(kind):
            raise mismatch(avro, kind, path, "drop the column, or change the schema")
        return NothingWriter()
    return writers.RequiredWriter(path, _value_writer(avro, kind, path))


def _union_writer(avro: Union, kind: pa.DataType, path: str) -> PieceWriter:
    null_index = next((index for index, branch in enumerate(avro.branches) if branch == NULL), None)
    if null_index is not None and (pa.types.is_null(kind) or not avro.others):
        if not pa.types.is_null(kind):
            raise mismatch(avro, kind, path, "drop the column, or change the schema")
        return writers.ConstantWriter(encode_varint(null_index))
    if len(avro.others) > 1:
        raise mismatch(avro, kind, path, "only unions of null and one other type are written: change the schema")
    if null_index is None:
        return writers.OnlyBranchWriter(writer_for(avro.others[0], kind, path))
    return writers.NullableWriter(_value_writer(avro.others[0], kind, path), null_index)


def _value_writer(avro: AvroType, kind: pa.DataType, path: str) -> PieceWriter:
    """The writer of the values that are not null."""
    match avro:
        case Record():
            return _record_writer(avro, kind, path)
        case Array() if is_list(kind):
            return writers.ItemsWriter(writer_for(avro.items, kind.value_type, f"{path}[]"))
        case Map() if pa.types.is_map(kind) and is_text(kind.key_type):
            key = writers.RequiredWriter(f"{path}{{key}}", writers.BytesWriter(f"{path}{{key}}"))
            value = writer_for(avro.values, kind.item_type, f"{path}{{}}")
            return writers.ItemsWriter(writers.RecordWriter((0, 1), (key, value)))
        case Decimal() if pa.types.is_decimal128(kind):
            if kind.scale > avro.scale:
                raise mismatch(avro, kind, path, f"round it: cast('decimal({avro.precision},{avro.scale})')")
            if avro.scale > writers.MOST_DIGITS or (avro.size or 0) > _MOST_DECIMAL_BYTES:
                limits = f"a scale is at most {writers.MOST_DIGITS} and a fixed {_MOST_DECIMAL_BYTES} bytes"
                raise mismatch(avro, kind, path, f"{limits}: change the schema")
            return writers.DecimalWriter(path, avro)
        case Fixed() if is_bytes(kind):
            return writers.FixedWriter(path, avro.size)
        case Enum() if is_text(kind):
            return writers.EnumWriter(path, avro.symbols)
        case Primitive():
            return _primitive_writer(avro, kind, path)
    raise mismatch(avro, kind, path, "cast the column, or change the schema")


def _record_writer(avro: Record, kind: pa.DataType, path: str) -> PieceWriter:
    if not pa.types.is_struct(kind):
        raise mismatch(avro, kind, path, "make it a struct: struct('*')")
    names = [field.name for field in kind]
    check_names(names, [field.name for field in avro.fields], avro, path)
    columns, field_writers = [], []
    for field in avro.fields:
        inner = f"{path}.{field.name}"
        index = names.index(field.name) if field.name in names else None
        columns.append(index)
        field_writers.append(
            _writer_without_column(field, inner) if index is None else writer_for(field.type, kind[index].type, inner)
        )
    return writers.RecordWriter(tuple(columns), tuple(field_writers))


def _writer_without_column(field: RecordField, path: str) -> PieceWriter:
    if field.default is not NO_DEFAULT:
        return writers.ConstantWriter(_default_bytes(field, path))
    if isinstance(field.type, Union) and NULL in field.type.branches:
        return writers.ConstantWriter(encode_varint(field.type.branches.index(NULL)))
    raise FormatError(
        f"column '{path}' is missing: the schema's field '{field.name}' ({field.type}) has no default and may not be "
        "null; add the column, or a default to the schema"
    )


def _default_bytes(field: RecordField, path: str) -> bytes:
    branches = field.type.branches if isinstance(field.type, Union) else (field.type,)
    if any(_has_more(branch, MOST_VALUES) for branch in branches):
        raise FormatError(
            f"column '{path}' is missing, and the default of the schema's field has more than {MOST_VALUES} values "
            "with all named types expanded; add the column, or change the schema"
        )
    try:
        data = _encoded(field.type, field.default)
    except (ValueError, OverflowError):
        raise FormatError(
            f"column '{path}' is missing, and the default {repr(field.default)[:_SHOWN]} of the schema's field is no "
            f"{field.type}; correct the schema, or add the column"
        ) from None
    if len(data) > _MOST_DEFAULT_BYTES:
        raise FormatError(
            f"column '{path}' is missing, and the default of the schema's field has {len(data)} bytes, more than "
            f"{_MOST_DEFAULT_BYTES}; add the column, or change the schema"
        )
    return data


def _primitive_writer(avro: Primitive, kind: pa.DataType, path: str) -> PieceWriter:
    if avro.logical is None and kind in _NUMBERS.get(avro.name, {}):
        stored = _NUMBERS[avro.name][kind]
        if avro.name in ("int", "long"):
            return writers.NumberWriter(path, stored)
        return writers.FloatWriter(stored, np.float32 if avro.name == "float" else np.float64)
    match avro.name:
        case "boolean" if pa.types.is_boolean(kind):
            return writers.BooleanWriter()
        case "string" if is_text(kind):
            return writers.BytesWriter(path)
        case "bytes" if is_text(kind) or is_bytes(kind):
            return writers.BytesWriter(path)
        case "int" if pa.types.is_date32(kind) and avro.logical in (None, "date"):
            return writers.NumberWriter(path, np.int32)
        case "int" | "long":
            return _time_writer(avro, kind, path)
    raise mismatch(avro, kind, path, "cast the column, or change the schema")


def _time_writer(avro: Primitive, kind: pa.DataType, path: str) -> PieceWriter:
    stored: type[np.generic] = np.int32 if pa.types.is_time32(kind) else np.int64
    logical = avro.logical or ""
    if pa.types.is_duration(kind) and avro == Primitive("long"):
        unit = "us"
    elif pa.types.is_timestamp(kind) and avro.name == "long":
        # A long without a logical type takes milliseconds, as in spark-avro.
        expected = "timestamp-" if kind.tz is not None else "local-timestamp-"
        if logical and not logical.startswith(expected):
            raise mismatch(avro, kind, path, f"use {expected}micros in the schema, or cast the column")
        unit = _UNIT_NAMES[logical.rpartition("-")[2]] if logical else "ms"
    elif pa.types.is_time(kind) and logical.startswith("time-"):
        unit = _UNIT_NAMES[logical.rpartition("-")[2]]
    else:
        made = _FROM_NUMBERS.get(logical) if pa.types.is_integer(kind) else None
        raise mismatch(avro, kind, path, f"{made or 'cast the column'}, or change the schema")
    have, want = PER_SECOND[kind.unit], PER_SECOND[unit]
    return writers.NumberWriter(path, stored, max(want // have, 1), max(have // want, 1))
