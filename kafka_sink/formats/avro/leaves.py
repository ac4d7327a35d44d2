"""Writers of values without parts: numbers, texts, bytes, enums, decimals and times, a whole column at once.

Called on the task's thread. A writer gets the rows of one place in the schema, and where they are absent, and returns
the pieces of each row. :mod:`kafka_sink.formats.avro.matching` chooses the writer for a column and its type.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.columns.binary_column import Int64s
from kafka_sink.columns.gather import Field, Piece, column_pieces, constant_fields, varint_fields
from kafka_sink.formats.avro.decimals import decimal_fields, fixed_decimal_fields
from kafka_sink.formats.avro.schema import Decimal
from kafka_sink.formats.fields import Absent, numbers, only_present
from kafka_sink.formats.refusals import bytes_of, refuse_rows

_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ConstantWriter:
    """The same bytes in every row: the default of a field without a column."""

    data: bytes

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        return only_present(constant_fields(self.data), absent)


@dataclass(frozen=True, slots=True)
class BooleanWriter:
    """One byte, 0 or 1."""

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        words = numbers(array.cast(pa.uint8()), np.uint8).astype(np.uint64)
        return only_present([Field(words, 1, 1, 1)], absent)


@dataclass(frozen=True, slots=True)
class NumberWriter:
    """int and long, and what is a number of days or of units of time: *stored* in Arrow, times *factor*, divided by
    *divisor* and rounded down, as zig-zag varint.
    """

    path: str
    stored: type[np.generic]
    factor: int = 1
    divisor: int = 1

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        values: Int64s = numbers(array, self.stored).astype(np.int64, copy=False)
        if not len(values):
            return []
        if self.factor != 1:
            limit = _INT64_MAX // self.factor
            refuse_rows(
                (values > limit) | (values < -limit),
                absent,
                array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array,
                self.path,
                f"which times {self.factor} exceeds 64 bits; correct the row, or choose a coarser unit in the schema",
            )
            values = values * self.factor
        if self.divisor != 1:
            values = values // self.divisor
        return only_present(varint_fields(values), absent)


@dataclass(frozen=True, slots=True)
class FloatWriter:
    """float and double: *stored* in Arrow, written as *written*, little end first."""

    stored: type[np.generic]
    written: type[np.generic]

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        values = numbers(array, self.stored).astype(self.written, copy=False)
        size = np.dtype(self.written).itemsize
        words: Any = values.view(np.uint64) if size == 8 else values.view(np.uint32).astype(np.uint64)
        return only_present([Field(words, size, size, size)], absent)


@dataclass(frozen=True, slots=True)
class BytesWriter:
    """string and bytes: the length, then the bytes."""

    path: str

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        if not len(array):
            return []
        column = bytes_of(array, self.path)
        return only_present([*varint_fields(column.lengths), *column_pieces(column)], absent)


@dataclass(frozen=True, slots=True)
class FixedWriter:
    """fixed: *size* bytes."""

    path: str
    size: int

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        column = bytes_of(array, self.path)
        problem = f"but the schema has fixed of {self.size} bytes; fill or cut it to this length, or use bytes"
        refuse_rows(column.lengths != self.size, absent, array, self.path, problem)
        return only_present(column_pieces(column), absent)


@dataclass(frozen=True, slots=True)
class EnumWriter:
    """enum: the position of the text among *symbols*."""

    path: str
    symbols: tuple[str, ...]

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        if not len(array):
            return []
        found = pc.index_in(array, value_set=pa.array(self.symbols, array.type))
        problem = f"which is none of the enum's symbols ({', '.join(self.symbols)}); add it to the schema, or map it"
        refuse_rows(found.is_null().to_numpy(zero_copy_only=False), absent, array, self.path, problem)
        return only_present(varint_fields(numbers(found, np.int32).astype(np.int64)), absent)


#: Of Spark's decimals, and of Arrow's with 128 bits.
MOST_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class DecimalWriter:
    """The logical type decimal, on bytes or fixed."""

    path: str
    target: Decimal

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        if not len(array):
            return []
        target = pa.decimal128(min(self.target.precision, MOST_DIGITS), self.target.scale)
        if array.type != target:
            self._check_digits(array, absent)
            if absent is not None:
                array = pc.if_else(pa.array(absent), pa.scalar(None, array.type), array)
            array = array.cast(target)
        if self.target.size is None:
            return only_present(decimal_fields(array), absent)
        return only_present(fixed_decimal_fields(array, self.target.size), absent)

    def _check_digits(self, array: pa.Array, absent: Absent) -> None:
        """:raises RowSerializationError: if a value has more digits before the point than the schema allows."""
        digits = min(self.target.precision, MOST_DIGITS) - self.target.scale
        if array.type.precision - array.type.scale <= digits:
            return
        limit = pa.scalar(decimal.Decimal(10) ** digits, array.type)
        too_large = pc.fill_null(pc.greater_equal(pc.abs(array), limit), False).to_numpy(zero_copy_only=False)
        problem = f"which does not fit into the schema's {self.target}; correct the row, or widen the schema"
        refuse_rows(too_large, absent, array, self.path, problem)
