"""Compiles declarations into closures that encode one version of a message.

:mod:`codec` requests a writer once per (class, version), on any thread; writers have no state and may be shared.
A writer must not silently drop a value that a version cannot represent (unless its field is ignorable), nor copy
``records``. A number that does not fit its type raises struct.error, which :mod:`codec` translates into ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

from kafka_sink.common.buffers import total_size
from kafka_sink.common.errors import UnsupportedVersionError
from kafka_sink.protocol.primitives import (
    MAX_STRING_BYTES,
    NULL,
    ByteWriter,
    write_compact_length,
    write_int16_length,
    write_int32_length,
    write_uvarint,
)
from kafka_sink.protocol.schema import BYTES, RECORDS, STRING, UUID, Array, FieldType, Primitive, Struct, StructField

Write: TypeAlias = Callable[[ByteWriter, Any], None]
_Get: TypeAlias = Callable[[Any], Any]


def struct_writer(kind: type[Struct], version: int, flexible: bool) -> Write:
    steps = tuple(_steps(kind, version, flexible))
    refuse_absent = _absent_check(kind, version)
    write_tags = _tags_writer(kind, version) if flexible else None

    def write(out: ByteWriter, value: Any) -> None:
        if refuse_absent is not None:
            refuse_absent(value)
        for get, write_part in steps:
            write_part(out, get(value))
        if write_tags is not None:
            write_tags(out, value)

    return write


def _is_fixed(field: StructField) -> bool:
    return isinstance(field.type, Primitive) and bool(field.type.format)


def _steps(kind: type[Struct], version: int, flexible: bool) -> Iterator[tuple[_Get, Write]]:
    """A getter and a writer for each field; consecutive fixed-size fields are one step."""
    own = [field for field in kind.SCHEMA.fields if version in field.versions and field.tag is None]
    for fixed, fields in groupby(own, _is_fixed):
        run = list(fields)
        if fixed and len(run) > 1:
            yield attrgetter(*(field.name for field in run)), _run_writer([field.type for field in run])
        else:
            for field in run:
                yield attrgetter(field.name), _field_writer(field, version, flexible)


def _absent_check(kind: type[Struct], version: int) -> Callable[[Any], None] | None:
    """A check that rejects values for which *version* has no field; None if no check is needed."""
    absent = [field for field in kind.SCHEMA.fields if version not in field.versions and not field.ignorable]
    if not absent:
        return None
    get = attrgetter(*(field.name for field in absent))
    defaults = get(kind())

    def refuse(value: Any) -> None:
        if get(value) != defaults:
            names = ", ".join(field.name for field in absent if getattr(value, field.name) != field.make_default())
            raise UnsupportedVersionError(f"{kind.__name__} version {version} cannot carry {names}")

    return refuse


def _tags_writer(kind: type[Struct], version: int) -> Write:
    tagged = sorted(
        (field.tag, attrgetter(field.name), field.make_default(), _field_writer(field, version, True))
        for field in kind.SCHEMA.fields
        if field.tag is not None and version in field.versions
    )

    def write(out: ByteWriter, value: Any) -> None:
        present = [entry for entry in tagged if entry[1](value) != entry[2]]
        write_uvarint(out, len(present))
        for tag, get, _, write_value in present:
            content = ByteWriter()
            write_value(content, get(value))
            write_uvarint(out, tag)
            write_uvarint(out, len(content))
            out += content

    return write


def _field_writer(field: StructField, version: int, flexible: bool) -> Write:
    nullable = version in field.nullable
    write = _writer(field.type, version, flexible)
    if isinstance(field.type, type):
        return _nullable_struct_writer(write) if nullable else write
    if _is_fixed(field) or field.type is UUID:
        return write
    return write if nullable else _required(field.name, write)


def _required(name: str, write: Write) -> Write:
    def write_required(out: ByteWriter, value: Any) -> None:
        if value is None:
            raise ValueError(f"{name} may not be null in this version")
        write(out, value)

    return write_required


def _writer(type: FieldType, version: int, flexible: bool) -> Write:
    if isinstance(type, Array):
        return _array_writer(type.element, version, flexible)
    if not isinstance(type, Primitive):
        return struct_writer(type, version, flexible)
    if type is STRING:
        return _string_writer(flexible)
    if type is BYTES or type is RECORDS:
        return _bytes_writer(flexible, is_spliced=type is RECORDS)
    return _write_uuid if type is UUID else _fixed_writer(type)


def _run_writer(types: list[FieldType]) -> Write:
    pack = struct.Struct(">" + "".join(type.format for type in types if isinstance(type, Primitive))).pack

    def write(out: ByteWriter, values: tuple[Any, ...]) -> None:
        out += pack(*values)

    return write


def _fixed_writer(type: Primitive) -> Write:
    pack = struct.Struct(">" + type.format).pack

    def write(out: ByteWriter, value: Any) -> None:
        out += pack(value)

    return write


def _write_uuid(out: ByteWriter, value: Any) -> None:
    out += value.bytes


def _string_writer(flexible: bool) -> Write:
    write_length = write_compact_length if flexible else write_int16_length

    def write(out: ByteWriter, value: Any) -> None:
        if value is None:
            write_length(out, NULL)
            return
        encoded = value.encode()
        if len(encoded) > MAX_STRING_BYTES:
            raise ValueError(f"a string of {len(encoded)} bytes is longer than {MAX_STRING_BYTES}")
        write_length(out, len(encoded))
        out += encoded

    return write


def _bytes_writer(flexible: bool, *, is_spliced: bool) -> Write:
    """*is_spliced*: the value is one buffer or several, which are not copied."""
    write_length = write_compact_length if flexible else write_int32_length

    def write(out: ByteWriter, value: Any) -> None:
        if value is None:
            write_length(out, NULL)
        elif is_spliced:
            buffers = value if isinstance(value, (list, tuple)) else (value,)
            write_length(out, total_size(buffers))
            for buffer in buffers:
                out.splice(buffer)
        else:
            write_length(out, len(value))
            out += value

    return write


def _nullable_struct_writer(write: Write) -> Write:
    def write_nullable(out: ByteWriter, value: Any) -> None:
        if value is None:
            out.append(0xFF)
            return
        out.append(1)
        write(out, value)

    return write_nullable


def _array_writer(element: Primitive | type[Struct], version: int, flexible: bool) -> Write:
    write_length = write_compact_length if flexible else write_int32_length
    layout = element.format if isinstance(element, Primitive) else ""
    write_element = _writer(element, version, flexible)

    def write(out: ByteWriter, value: Any) -> None:
        if value is None:
            write_length(out, NULL)
            return
        write_length(out, len(value))
        if layout:
            out += struct.pack(f">{len(value)}{layout}", *value)
            return
        for item in value:
            write_element(out, item)

    return write
