"""Whether data that was written by one schema can be read by another, by Avro's rules of resolution.

The registry in memory asks it when a schema is registered. Types are compared, no data.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kafka_sink.formats.avro.schema import (
    NO_DEFAULT,
    Array,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)

# What each type may be read as, besides itself.
_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def problems(reader: AvroType, writer: AvroType, path: str = "") -> Iterator[str]:
    """Why data of *writer* cannot be read as *reader*, each with its path in the reader's JSON; nothing if it can."""
    if isinstance(writer, Union):
        for branch in writer.branches:
            yield from problems(reader, branch, path)
    elif isinstance(reader, Union):
        if not any(next(problems(branch, writer), None) is None for branch in reader.branches):
            yield f"TYPE_MISMATCH: the union at path '{path or '/'}' has no type that reads {writer}"
    elif isinstance(reader, Record) and isinstance(writer, Record):
        yield from _of_records(reader, writer, path)
    elif isinstance(reader, Array) and isinstance(writer, Array):
        yield from problems(reader.items, writer.items, f"{path}/items")
    elif isinstance(reader, Map) and isinstance(writer, Map):
        yield from problems(reader.values, writer.values, f"{path}/values")
    elif isinstance(reader, Enum) and isinstance(writer, Enum):
        missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
        if missing:
            yield f"MISSING_ENUM_SYMBOLS: the enum at path '{path}/symbols' lacks {', '.join(missing)}"
    elif not _is_read_as(reader, writer):
        yield f"TYPE_MISMATCH: the type at path '{path or '/'}' is {reader}, which does not read {writer}"


def _of_records(reader: Record, writer: Record, path: str) -> Iterator[str]:
    if reader.name.rpartition(".")[2] != writer.name.rpartition(".")[2]:
        yield f"NAME_MISMATCH: the record at path '{path}/name' is {reader.name}, and was {writer.name}"
        return
    written = {field.name: field.type for field in writer.fields}
    for index, field in enumerate(reader.fields):
        if field.name in written:
            yield from problems(field.type, written[field.name], f"{path}/fields/{index}/type")
        elif field.default is NO_DEFAULT:
            yield (
                f"READER_FIELD_MISSING_DEFAULT_VALUE: the field '{field.name}' at path '{path}/fields/{index}' has no "
                "default value and is missing in what was written"
            )


def _is_read_as(reader: AvroType, writer: AvroType) -> bool:
    # A logical type does not change what can be read.
    if isinstance(reader, Decimal):
        reader = Primitive("bytes") if reader.size is None else Fixed("", reader.size)
    if isinstance(writer, Decimal):
        writer = Primitive("bytes") if writer.size is None else Fixed("", writer.size)
    if isinstance(reader, Fixed) and isinstance(writer, Fixed):
        return reader.size == writer.size
    if isinstance(reader, Primitive) and isinstance(writer, Primitive):
        return reader.name == writer.name or reader.name in _PROMOTIONS.get(writer.name, ())
    return False
