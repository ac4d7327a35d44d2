"""Writers of values without parts: numbers, texts, bytes and enums, a whole column at once.

Called on the task's thread. A writer gets the rows of one place in the schema, where they are absent, and the tag that
stands before each value. :mod:`kafka_sink.formats.protobuf.matching` chooses the writer for a column and its field.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.columns.binary_column import Bools, Int64s
from kafka_sink.columns.gather import Field, Piece, UInt64s, column_pieces, unsigned_varint_fields, varint_fields
from kafka_sink.formats.fields import Absent, decimal_halves, either, numbers
from kafka_sink.formats.protobuf.wire import FIXED32, FIXED64, tagged
from kafka_sink.formats.refusals import bytes_of, refuse_other_than_utf8, refuse_rows

_INT64_MAX: Final = (1 << 63) - 1
_LOW_32_BITS: Final = np.uint64(0xFFFF_FFFF)


class Value(Protocol):
    """Writes the values of one column at one place in the schema."""

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        """*tag* and value of each row of *array*; rows that are *absent*, among them all null ones, have no bytes. With
        *is_implicit* neither have rows with the default value of the type.

        :raises RowSerializationError: about all rows whose values cannot be written for the first reason that was
            found; the text names the column, and the value.
        """


def without_defaults(absent: Absent, is_default: Bools) -> Absent:
    """Where a row is *absent* or has the default value."""
    return either(absent, is_default) if is_default.any() else absent


@dataclass(frozen=True, slots=True)
class BooleanWriter:
    """One byte, 0 or 1."""

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        words = numbers(array.cast(pa.uint8()), np.uint8).astype(np.uint64)
        if is_implicit:
            absent = without_defaults(absent, words == 0)
        return tagged(tag, [Field(words, 1, 1, 1)], absent)


@dataclass(frozen=True, slots=True)
class IntegerWriter:
    """Integers of any type: *stored* in Arrow; *wire_type*, and *is_zigzag* for sint32 and sint64. Values outside of
    *bounds* are refused.
    """

    path: str
    kind: str
    stored: type[np.generic]
    wire_type: int
    is_zigzag: bool = False
    bounds: tuple[int, int] | None = None

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        values: Int64s = numbers(array, self.stored).astype(np.int64, copy=False)
        if self.bounds is not None:
            low, high = self.bounds
            problem = f"but {self.kind} takes {low} to {high}; correct the row, or choose another type in the schema"
            refuse_rows((values < low) | (values > min(high, _INT64_MAX)), absent, array, self.path, problem)
        if is_implicit:
            absent = without_defaults(absent, values == 0)
        if self.is_zigzag:
            return tagged(tag, varint_fields(values), absent)
        return tagged(tag, unsigned_fields(values.view(np.uint64), self.wire_type), absent)


@dataclass(frozen=True, slots=True)
class DecimalWriter:
    """uint64 and fixed64 from a decimal without digits behind the point, which Spark has for them."""

    path: str
    kind: str
    wire_type: int

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        low, high = decimal_halves(array)
        problem = f"but {self.kind} takes 0 to {(1 << 64) - 1}; correct the row, or choose another type in the schema"
        refuse_rows(high != 0, absent, array, self.path, problem)
        if is_implicit:
            absent = without_defaults(absent, low == 0)
        return tagged(tag, unsigned_fields(low, self.wire_type), absent)


def unsigned_fields(words: UInt64s, wire_type: int) -> list[Field]:
    """Each number as a varint or of fixed size."""
    if wire_type == FIXED64:
        return [Field(words, 8, 8, 8)]
    return [Field(words & _LOW_32_BITS, 4, 4, 4)] if wire_type == FIXED32 else unsigned_varint_fields(words)


@dataclass(frozen=True, slots=True)
class FloatWriter:
    """float and double: *stored* in Arrow, written as *written*, little end first. The default has no bit set, so -0.0
    is written.
    """

    stored: type[np.generic]
    written: type[np.generic]

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        values = numbers(array, self.stored).astype(self.written, copy=False)
        size = np.dtype(self.written).itemsize
        words: Any = values.view(np.uint64) if size == 8 else values.view(np.uint32).astype(np.uint64)
        if is_implicit:
            absent = without_defaults(absent, words == 0)
        return tagged(tag, [Field(words, size, size, size)], absent)


@dataclass(frozen=True, slots=True)
class BytesWriter:
    """string and bytes: the length, then the bytes; *is_text* must be UTF-8."""

    path: str
    is_text: bool

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        if self.is_text:
            remedy = "cast the column to binary, and make the field bytes"
            refuse_other_than_utf8(array, absent, self.path, remedy)
        column = bytes_of(array, self.path)
        if is_implicit:
            absent = without_defaults(absent, column.lengths == 0)
        lengths = unsigned_varint_fields(column.lengths.view(np.uint64))
        return [*tagged(tag, lengths, absent), *tagged(b"", column_pieces(column), absent)]


@dataclass(frozen=True, slots=True)
class EnumWriter:
    """enum: the number of a name of *numbers*, or one of these numbers itself."""

    path: str
    numbers: tuple[tuple[str, int], ...]
    is_named: bool

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        known: list[Any] = [name if self.is_named else number for name, number in self.numbers]
        array = array if self.is_named else array.cast(pa.int64())
        found = pc.index_in(array, value_set=pa.array(known, array.type))
        problem = (
            f"which is not one of the enum's {'names' if self.is_named else 'numbers'} ({', '.join(map(str, known))}); "
            "add it to the schema, or map it"
        )
        refuse_rows(found.is_null().to_numpy(zero_copy_only=False), absent, array, self.path, problem)
        values = np.array([number for _, number in self.numbers], np.int64)[numbers(found.fill_null(0), np.int32)]
        if is_implicit:
            absent = without_defaults(absent, values == 0)
        return tagged(tag, unsigned_varint_fields(values.view(np.uint64)), absent)
