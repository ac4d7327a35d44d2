"""Compiles declarations into closures that decode one version of a message.

:mod:`codec` requests a reader once per (class, version), on any thread; readers have no state and may be shared.
A reader must never allocate memory by an unchecked length, copy ``records``, or keep an unknown tagged field. If the
data ends too early it may raise IndexError or struct.error, which :mod:`codec` translates into ProtocolError.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct as Layout
from struct import calcsize, unpack_from
from typing import Any, Final, NamedTuple, TypeAlias

from kafka_sink.common.errors import ProtocolError
from kafka_sink.protocol import schema as s
from kafka_sink.protocol.primitives import (
    MAX_STRING_BYTES,
    end_of,
    read_compact_length,
    read_int16_length,
    read_int32_length,
    read_uvarint,
)

#: Arrays of numbers up to this length have precompiled layouts.
_SHORT_ARRAY: Final = 8

#: (data, position) → (value, next position)
Read: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
#: Called with the memory, in bytes, that the items of an array will take, before they are created.
Spend: TypeAlias = Callable[[int], None]

#: Estimates of the memory of an item and its part of the response: for an object, for each of its fields, and for a
#: bare number, which is often that of a partition.
_OBJECT_BYTES: Final = 256
_FIELD_BYTES: Final = 128
_NUMBER_BYTES: Final = 256


class _Step(NamedTuple):
    """Consecutive fixed-size fields, read at once (or None), then one field of another kind (or None)."""

    unpack: Callable[[memoryview, int], tuple[Any, ...]] | None
    size: int
    read: Read | None


def struct_reader(kind: type[s.Struct], version: int, flexible: bool, spend: Spend | None = None) -> Read:
    """A reader of *kind* in *version*, which calls *spend* before each array."""
    steps = tuple(_steps(kind, version, flexible, spend))
    read_tags = _tags_reader(kind, version, spend) if flexible else None

    def read(data: memoryview, pos: int) -> tuple[Any, int]:
        values: list[Any] = []
        for unpack, size, read_field in steps:
            if unpack is not None:
                values += unpack(data, pos)
                pos += size
            if read_field is not None:
                value, pos = read_field(data, pos)
                values.append(value)
        item = kind(*values)
        if read_tags is None:
            return item, pos
        if data[pos] == 0:
            return item, pos + 1
        return item, read_tags(data, pos, item)

    return read


def _steps(kind: type[s.Struct], version: int, flexible: bool, spend: Spend | None) -> Iterator[_Step]:
    run = ""
    for field in kind.SCHEMA.fields:
        travels = version in field.versions and field.tag is None
        if travels and isinstance(field.type, s.Primitive) and field.type.format:
            run += field.type.format
            continue
        layout = Layout(">" + run)
        read = _reader(field.type, version, flexible, version in field.nullable, spend) if travels else _absent(field)
        yield _Step(layout.unpack_from if run else None, layout.size, read)
        run = ""
    if run:
        layout = Layout(">" + run)
        yield _Step(layout.unpack_from, layout.size, None)


def _absent(field: s.StructField) -> Read:
    make_default = field.make_default

    def read(data: memoryview, pos: int) -> tuple[Any, int]:
        return make_default(), pos

    return read


def _tags_reader(kind: type[s.Struct], version: int, spend: Spend | None) -> Callable[[memoryview, int, s.Struct], int]:
    readers = {
        field.tag: (field.name, _reader(field.type, version, True, version in field.nullable, spend))
        for field in kind.SCHEMA.fields
        if field.tag is not None and version in field.versions
    }

    def read_tags(data: memoryview, pos: int, item: s.Struct) -> int:
        count, pos = read_uvarint(data, pos)
        for _ in range(count):
            tag, pos = read_uvarint(data, pos)
            size, pos = read_uvarint(data, pos)
            end = end_of(data, pos, size)
            reader = readers.get(tag)
            if reader is not None:
                name, read = reader
                value, pos = read(data, pos)
                if pos != end:
                    raise ProtocolError(f"tagged field {name} does not fill the {size} bytes that it announced")
                setattr(item, name, value)
            pos = end
        return pos

    return read_tags


def _reader(type: s.FieldType, version: int, flexible: bool, nullable: bool, spend: Spend | None) -> Read:
    if isinstance(type, s.Array):
        return _array_reader(type.element, version, flexible, nullable, spend)
    if not isinstance(type, s.Primitive):
        read_struct = struct_reader(type, version, flexible, spend)
        return _nullable_struct_reader(read_struct) if nullable else read_struct
    if type is s.STRING:
        return _string_reader(flexible, nullable)
    if type is s.BYTES or type is s.RECORDS:
        return _bytes_reader(flexible, nullable, copy=type is s.BYTES)
    return _read_uuid if type is s.UUID else _fixed_reader(type)


def _fixed_reader(type: s.Primitive) -> Read:
    layout = Layout(">" + type.format)

    def read(data: memoryview, pos: int) -> tuple[Any, int]:
        return layout.unpack_from(data, pos)[0], pos + layout.size

    return read


def _read_uuid(data: memoryview, pos: int) -> tuple[Any, int]:
    end = end_of(data, pos, 16)
    return _uuid_of(bytes(data[pos:end])), end


@lru_cache(maxsize=1024)
def _uuid_of(raw: bytes) -> uuid.UUID:
    # Cached: the same few topic ids recur, and creating a UUID costs more than decoding the rest of the field.
    return uuid.UUID(bytes=raw) if any(raw) else s.ZERO_UUID


def _string_reader(flexible: bool, nullable: bool) -> Read:
    read_length = read_compact_length if flexible else read_int16_length

    def read(data: memoryview, pos: int) -> tuple[Any, int]:
        length, pos = read_length(data, pos)
        if length < 0:
            _require_nullable(nullable)
            return None, pos
        if length > MAX_STRING_BYTES:
            # A longer string could not be encoded again.
            raise ProtocolError(f"a string of {length} bytes is longer than {MAX_STRING_BYTES}")
        end = end_of(data, pos, length)
        return str(data[pos:end], "utf-8"), end

    return read


def _bytes_reader(flexible: bool, nullable: bool, *, copy: bool) -> Read:
    read_length = read_compact_length if flexible else read_int32_length

    def read(data: memoryview, pos: int) -> tuple[Any, int]:
        length, pos = read_length(data, pos)
        if length < 0:
            _require_nullable(nullable)
            return None, pos
        end = end_of(data, pos, length)
        view = data[pos:end]
        return bytes(view) if copy else view, end

    return read


def _nullable_struct_reader(read_struct: Read) -> Read:
    def read(data: memoryview, pos: int) -> tuple[Any, int]:
        present = data[pos]
        if present == 0xFF:
            return None, pos + 1
        if present != 1:
            raise ProtocolError(f"{present} is not a valid presence byte")
        return read_struct(data, pos + 1)

    return read


def _array_reader(
    element: s.Primitive | type[s.Struct], version: int, flexible: bool, nullable: bool, spend: Spend | None
) -> Read:
    if isinstance(element, s.Primitive) and element.format:
        return _numbers_reader(element.format, flexible, nullable, spend)
    read_length = read_compact_length if flexible else read_int32_length
    smallest = max(1, _smallest_size(element, version, flexible))
    read_element = _reader(element, version, flexible, False, spend)
    fields = 1 if isinstance(element, s.Primitive) else len(element.SCHEMA.fields)
    item_bytes = _OBJECT_BYTES + fields * _FIELD_BYTES

    def read(data: memoryview, pos: int) -> tuple[Any, int]:
        count, pos = read_length(data, pos)
        if count < 0:
            _require_nullable(nullable)
            return None, pos
        end_of(data, pos, count * smallest)
        if spend is not None:
            spend(count * item_bytes)
        items: list[Any] = []
        for _ in range(count):
            item, pos = read_element(data, pos)
            items.append(item)
        return items, pos

    return read


def _numbers_reader(format: str, flexible: bool, nullable: bool, spend: Spend | None) -> Read:
    """A reader of an array of fixed-size values. Most are short: a partition in Metadata has three of them."""
    read_length = read_compact_length if flexible else read_int32_length
    size = calcsize(">" + format)
    short = [Layout(f">{count}{format}").unpack_from for count in range(_SHORT_ARRAY + 1)]

    def read(data: memoryview, pos: int) -> tuple[Any, int]:
        count, pos = read_length(data, pos)
        if spend is not None and count > 0:
            spend(count * _NUMBER_BYTES)
        if 0 <= count <= _SHORT_ARRAY:
            return list(short[count](data, pos)), pos + count * size
        if count < 0:
            _require_nullable(nullable)
            return None, pos
        end = end_of(data, pos, count * size)
        return list(unpack_from(f">{count}{format}", data, pos)), end

    return read


def _require_nullable(nullable: bool) -> None:
    if not nullable:
        raise ProtocolError("null where a value is required")


def _smallest_size(type: s.FieldType, version: int, flexible: bool) -> int:
    """The minimum size of a value of *type* in bytes, used to check array counts against the remaining data."""
    if isinstance(type, s.Array):
        return 1 if flexible else 4
    if isinstance(type, s.Primitive):
        if type is s.UUID:
            return 16
        if type.format:
            return calcsize(">" + type.format)
        return 1 if flexible else (2 if type is s.STRING else 4)
    own = (field for field in type.SCHEMA.fields if version in field.versions and field.tag is None)
    return int(flexible) + sum(_smallest_field_size(field, version, flexible) for field in own)


def _smallest_field_size(field: s.StructField, version: int, flexible: bool) -> int:
    if not isinstance(field.type, (s.Primitive, s.Array)) and version in field.nullable:
        return 1
    return _smallest_size(field.type, version, flexible)
