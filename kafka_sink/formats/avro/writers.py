"""Writers of values without parts (numbers, texts, bytes, enums, decimals and times) and with parts (records, arrays,
maps, and values that may be null), a whole column at once.

Called on the task's thread. A writer gets the rows of one place in the schema, and where they are absent, and returns
the pieces of each row. :mod:`kafka_sink.formats.avro.matching` chooses the writer for a column and its type. A record's
pieces are its fields' pieces. The items of arrays and maps are encoded as rows of their own; those of one row then are
one piece, because they are adjacent.

Decimals are two's complement numbers, big-endian, of as few bytes as possible, or of a given number; Arrow has 16
bytes for each, little-endian.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding, #complex-types-1, #decimal;
java.math.BigInteger.toByteArray.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import Int64s
from kafka_sink.columns.gather import (
    Piece,
    UInt64s,
    WordField,
    Words,
    column_pieces,
    constant_field,
    constant_fields,
    varint_fields,
)
from kafka_sink.formats.avro.schema import Decimal
from kafka_sink.formats.fields import Absent, after, decimal_halves, either, nulls_of, numbers, only_present
from kafka_sink.formats.payloads import PieceWriter, bytes_of, encode_items, refuse_nulls, refuse_rows

_WORD_BYTES: Final = 8
_BYTES: Final = 16
_INT64_MAX: Final = (1 << 63) - 1
#: The maximum precision of Spark's decimals, and of Arrow's with 128 bits.
MOST_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class RequiredWriter:
    """A value that the schema does not allow to be null."""

    path: str
    value: PieceWriter

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        problem = "which the schema does not allow; fill it, or make the field a union with null"
        refuse_nulls(array, absent, self.path, problem)
        return self.value.pieces(array, absent)


@dataclass(frozen=True, slots=True)
class NullableWriter:
    """A union of null and one other type: the position of the branch, then the value."""

    value: PieceWriter
    null_index: int

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        nulls = nulls_of(array)
        # A position is a varint: 0 is the byte 0, and 1 the byte 2.
        of_null, of_value = 2 * self.null_index, 2 * (1 - self.null_index)
        if nulls is None:
            branch = constant_field(bytes([of_value]))
        else:
            branch = WordField(np.where(nulls, np.uint64(of_null), np.uint64(of_value)), 1, 1, 1)
        (position,) = only_present([branch], absent)
        return after(position, self.value.pieces(array, either(nulls, absent)))


@dataclass(frozen=True, slots=True)
class OnlyBranchWriter:
    """A branch of a union that can only have this one: its position, then the value."""

    value: PieceWriter

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        return [*only_present([constant_field(b"\x00")], absent), *self.value.pieces(array, absent)]


@dataclass(frozen=True, slots=True)
class RecordWriter:
    """The fields in turn, or key and value of an entry; *columns* are their positions in the struct, None for a field
    without a column."""

    columns: tuple[int | None, ...]
    fields: tuple[PieceWriter, ...]

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        pieces: list[Piece] = []
        for column, writer in zip(self.columns, self.fields, strict=True):
            pieces += writer.pieces(array if column is None else array.field(column), absent)
        return pieces


@dataclass(frozen=True, slots=True)
class ItemsWriter:
    """Arrays and maps: one block with the number of items and the items, then the number 0."""

    items: PieceWriter

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        if not len(array):
            return []
        items, counts = encode_items(array, absent, self.items.pieces)
        # An empty array is a single 0, which is its number of items, too.
        closing = WordField(0, (counts != 0).astype(np.uint64), 0, 1)
        return [*only_present(varint_fields(counts), absent), *column_pieces(items), closing]


def decimal_fields(array: pa.Array) -> list[WordField]:
    """For ``bytes``: the length, then the value in as few bytes as it needs."""
    low, high = decimal_halves(array)
    size, least, most = _sizes(low, high)
    length = (
        WordField(size << np.uint64(1), 1, 1, 1) if isinstance(size, np.ndarray) else constant_field(bytes([2 * size]))
    )
    return [length, *_big_endian(low, high, size, least, most)]


def fixed_decimal_fields(array: pa.Array, size: int) -> list[WordField]:
    """For ``fixed``: the value in *size* bytes, which are enough for it."""
    low, high = decimal_halves(array)
    fields = _big_endian(low, high, min(size, _BYTES), min(size, _BYTES), min(size, _BYTES))
    sign = _sign(high)
    for taken in range(_BYTES, size, _WORD_BYTES):
        width = min(size - taken, _WORD_BYTES)
        fields.insert(0, WordField(sign >> np.uint64(8 * (_WORD_BYTES - width)), width, width, width))
    return fields


def _sign(high: UInt64s) -> UInt64s:
    """All bits set for a negative value, none for another."""
    return (high.view(np.int64) >> np.int64(63)).view(np.uint64) if high.flags.c_contiguous else _sign(high.copy())


def _sizes(low: UInt64s, high: UInt64s) -> tuple[Words, int, int]:
    """The fewest bytes that each value needs, and their minimum and maximum."""
    sign = _sign(high)
    # The bits that are 0 determine the size of a negative value: the sign is the bit before the highest of them.
    low, high = low ^ sign, high ^ sign
    most_high, most_low = int(high.max(initial=0)), int(low.max(initial=0))
    if most_high == 0:
        least, most = _bytes_of(int(low.min(initial=0))), _bytes_of(most_low)
    else:
        least, most = 1, _bytes_of(most_high << 64 | most_low)
    if least == most:
        return least, least, most
    size = np.full(len(low), least, dtype=np.uint64)
    for count in range(least, most):
        bits = 8 * count - 1
        if bits < 64:
            size += (low >= np.uint64(1 << bits)) | (high != 0)
        else:
            size += high >= np.uint64(1 << (bits - 64))
    return size, least, most


def _bytes_of(magnitude: int) -> int:
    return magnitude.bit_length() // 8 + 1


def _big_endian(low: UInt64s, high: UInt64s, size: Words, least: int, most: int) -> list[WordField]:
    """The lowest *size* bytes of each value, the highest of them first."""
    fields = []
    if most > _WORD_BYTES:
        rest = _at_most(size, _WORD_BYTES, above=True)
        fields.append(_word(high, rest, max(least - _WORD_BYTES, 0), most - _WORD_BYTES))
    here = _at_most(size, _WORD_BYTES, above=False)
    fields.append(_word(low, here, min(least, _WORD_BYTES), min(most, _WORD_BYTES)))
    return fields


def _at_most(size: Words, limit: int, *, above: bool) -> Words:
    """The part of *size* that is within *limit*, or *above* it."""
    if isinstance(size, int):
        return max(size - limit, 0) if above else min(size, limit)
    within: NDArray[Any] = np.minimum(size, np.uint64(limit))
    return size - within if above else within


def _word(half: UInt64s, size: Words, least: int, most: int) -> WordField:
    # Shifted to the top and reversed, the required bytes come first. numpy shifts by 64 bits to 0.
    shift = np.uint64(64) - (np.asarray(size, dtype=np.uint64) << np.uint64(3))
    shifted: UInt64s = half << shift
    return WordField(shifted.byteswap(), size, least, most)


@dataclass(frozen=True, slots=True)
class ConstantWriter:
    """The same bytes in every row: the default of a field without a column; and the branch null of a union, for such a
    field and for a column that only has nulls."""

    data: bytes

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        return only_present(constant_fields(self.data), absent)


@dataclass(frozen=True, slots=True)
class BooleanWriter:
    """One byte, 0 or 1."""

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        words = numbers(array.cast(pa.uint8()), np.uint8).astype(np.uint64)
        return only_present([WordField(words, 1, 1, 1)], absent)


@dataclass(frozen=True, slots=True)
class NumberWriter:
    """int and long, and numbers of days or of units of time: *stored* in Arrow, times *factor*, divided by *divisor*
    and rounded down, as zig-zag varint."""

    path: str
    stored: type[np.generic]
    factor: int = 1
    divisor: int = 1

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
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
    """float and double: *stored* in Arrow, written as *written*, little-endian."""

    stored: type[np.generic]
    written: type[np.generic]

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        values = numbers(array, self.stored).astype(self.written, copy=False)
        size = np.dtype(self.written).itemsize
        words: Any = values.view(np.uint64) if size == 8 else values.view(np.uint32).astype(np.uint64)
        return only_present([WordField(words, size, size, size)], absent)


@dataclass(frozen=True, slots=True)
class BytesWriter:
    """string and bytes: the length, then the bytes."""

    path: str

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
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
        if not len(array):
            return []
        indices = pc.index_in(array, value_set=pa.array(self.symbols, array.type))
        problem = f"which is not one of the enum's symbols ({', '.join(self.symbols)}); add it to the schema, or map it"
        refuse_rows(indices.is_null().to_numpy(zero_copy_only=False), absent, array, self.path, problem)
        return only_present(varint_fields(numbers(indices, np.int32).astype(np.int64)), absent)


@dataclass(frozen=True, slots=True)
class DecimalWriter:
    """The logical type decimal, on bytes or fixed."""

    path: str
    target: Decimal

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
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
