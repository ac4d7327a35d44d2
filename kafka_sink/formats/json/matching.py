"""Finds the writer of each column; what ``to_json`` writes and this package does not is refused before any row.

Called on the driver, and once per task.

Source: apache/spark ``JacksonGenerator.scala``.
"""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.formats.errors import FormatError, shown_type
from kafka_sink.formats.fields import is_list, is_text
from kafka_sink.formats.json.moments import PER_SECOND, DateWriter, TimestampWriter
from kafka_sink.formats.json.tokens import Writer
from kafka_sink.formats.json.writers import (
    ArrayWriter,
    BinaryWriter,
    BooleanWriter,
    FloatWriter,
    MapWriter,
    NothingWriter,
    NumberWriter,
    QuotedWriter,
    StructWriter,
    TextWriter,
    escape,
)
from kafka_sink.formats.json.zones import known_zone


def writer_for(kind: pa.DataType, path: str, *, is_strict: bool) -> Writer:
    """The writer of column *path*, whose rows have the type *kind*; *is_strict*: what is no number is refused.

    :raises FormatError: if the column cannot be written as JSON; the text names it.
    """
    if pa.types.is_struct(kind):
        return _struct_writer(kind, path, is_strict)
    if is_list(kind):
        return ArrayWriter(writer_for(kind.value_type, f"{path}[]", is_strict=is_strict))
    if pa.types.is_map(kind):
        values = writer_for(kind.item_type, f"{path}{{}}", is_strict=is_strict)
        return MapWriter(_key_writer(kind.key_type, f"{path}{{key}}"), values)
    if pa.types.is_timestamp(kind):
        return TimestampWriter(PER_SECOND[kind.unit], None if kind.tz is None else known_zone(kind.tz, path))
    writer = _leaf_writer(kind, path, is_strict)
    if writer is None:
        raise FormatError(
            f"column '{path}' is {shown_type(kind)}, which has no counterpart in JSON; cast it to string, or drop it"
        )
    return writer


def _leaf_writer(kind: pa.DataType, path: str, is_strict: bool) -> Writer | None:
    is_of = pa.types
    if is_text(kind):
        return TextWriter(path)
    if is_of.is_integer(kind) or is_of.is_decimal128(kind):
        return NumberWriter()
    if is_of.is_float32(kind) or is_of.is_float64(kind):
        return FloatWriter(path, is_strict)
    if is_of.is_boolean(kind):
        return BooleanWriter()
    if is_of.is_binary(kind) or is_of.is_large_binary(kind):
        return BinaryWriter(path)
    if is_of.is_date32(kind):
        return DateWriter()
    return NothingWriter() if is_of.is_null(kind) else None


def _struct_writer(kind: pa.DataType, path: str, is_strict: bool) -> Writer:
    names = [field.name for field in kind]
    for name in names:
        if names.count(name) > 1:
            raise FormatError(f"column '{path}' has two fields named '{name}'; rename one of them")
    fields = [writer_for(field.type, f"{path}.{field.name}", is_strict=is_strict) for field in kind]
    return StructWriter(tuple(quoted(name) for name in names), tuple(fields))


def _key_writer(kind: pa.DataType, path: str) -> Writer:
    if is_text(kind):
        return TextWriter(path)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return QuotedWriter()
    raise FormatError(
        f"column '{path}' has the type {shown_type(kind)}, but the names of JSON's objects are texts; cast the keys: "
        "transform_keys(…, lambda key, _: key.cast('string'))"
    )


def quoted(name: str) -> bytes:
    """*name* as a text of JSON."""
    inside = b"".join(
        escape(code) if code < 0x20 or code in (34, 92) else bytes([code]) for code in name.encode("utf-8")
    )
    return b'"' + inside + b'"'
