"""Writers of values without parts (numbers, texts, bytes and enums) and with parts (messages, lists, maps and
wrappers), a whole column at once, and of the fields of messages.

Called on the task's thread. A writer gets the rows of one place in the schema, the mask of absent rows, and the tag
before each value. :mod:`kafka_sink.formats.protobuf.matching` chooses the writer for a column and its field. The pieces
of a message are its fields' pieces after their length; timestamps and durations are messages of seconds and
nanoseconds. The items of lists and maps are encoded as rows of their own; those of one row then are one piece, because
they are adjacent.

Source: https://protobuf.dev/programming-guides/encoding/; apache/spark ``ProtobufSerializer.scala``;
https://protobuf.dev/reference/protobuf/google.protobuf/#timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.columns.binary_column import Bools, Int64s
from kafka_sink.columns.gather import (
    Piece,
    UInt64s,
    WordField,
    column_pieces,
    constant_field,
    constant_fields,
    unsigned_varint_fields,
    varint_fields,
)
from kafka_sink.columns.varint import encode_unsigned_varint
from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.fields import Absent, after, decimal_halves, either, nulls_of, numbers, only_present, sizes_of
from kafka_sink.formats.payloads import (
    PieceWriter,
    bytes_of,
    encode_items,
    refuse_nulls,
    refuse_other_than_utf8,
    refuse_rows,
)

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5


def tag_of(number: int, wire_type: int) -> bytes:
    """The tag of a field, of up to five bytes."""
    return encode_unsigned_varint(number << 3 | wire_type)


def tagged(tag: bytes, pieces: Sequence[Piece], absent: Absent) -> list[Piece]:
    """*tag*, which is empty for an item of a packed list, then *pieces*; nothing in *absent* rows."""
    return only_present(after(constant_field(tag), pieces) if tag else pieces, absent)


def framed(tag: bytes, inside: Sequence[Piece], absent: Absent) -> list[Piece]:
    """*tag*, the length of *inside*, and *inside*, which has no bytes in *absent* rows."""
    sizes = sizes_of(inside)
    if isinstance(sizes, np.ndarray) and absent is not None:
        # Sizes of absent rows must not extend the range of varint lengths.
        sizes = np.where(absent, sizes.max(), sizes)
    return [*tagged(tag, unsigned_varint_fields(sizes), absent), *inside]


_INT64_MAX: Final = (1 << 63) - 1
_LOW_32_BITS: Final = np.uint64(0xFFFF_FFFF)
_NANOS: Final = 1_000_000_000
_SECONDS_TAG: Final = tag_of(1, VARINT)
_NANOS_TAG: Final = tag_of(2, VARINT)
_NO_NULL: Final = "and Protobuf has no null in lists and maps; leave it out, or fill it"


class Value(Protocol):
    """Writes the values of one column at one place in the schema."""

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        """*tag* and value of each row of *array*; rows that are *absent*, including all null ones, have no bytes. With
        *is_implicit* rows with the default value of the type have none either; a message has no default.

        :raises RowSerializationError: about all rows whose values cannot be written for the first reason that was
            found; the text names the column, and the value.
        """


def without_defaults(absent: Absent, is_default: Bools) -> Absent:
    """The mask of the rows that are *absent* or have the default value."""
    return either(absent, is_default) if is_default.any() else absent


@dataclass(frozen=True, slots=True)
class BooleanWriter:
    """One byte, 0 or 1."""

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        words = numbers(array.cast(pa.uint8()), np.uint8).astype(np.uint64)
        if is_implicit:
            absent = without_defaults(absent, words == 0)
        return tagged(tag, [WordField(words, 1, 1, 1)], absent)


@dataclass(frozen=True, slots=True)
class IntegerWriter:
    """Integers of any type: *stored* in Arrow; *wire_type*, and *is_zigzag* for sint32 and sint64. Values outside of
    *bounds* are refused."""

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
    """uint64 and fixed64 from a decimal without a fraction, the type that Spark has for them."""

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


def unsigned_fields(words: UInt64s, wire_type: int) -> list[WordField]:
    """Each number as a varint or with a fixed size."""
    if wire_type == FIXED64:
        return [WordField(words, 8, 8, 8)]
    return [WordField(words & _LOW_32_BITS, 4, 4, 4)] if wire_type == FIXED32 else unsigned_varint_fields(words)


@dataclass(frozen=True, slots=True)
class FloatWriter:
    """float and double: *stored* in Arrow, written as *written*, little-endian. The default has no bit set, so -0.0 is
    written."""

    stored: type[np.generic]
    written: type[np.generic]

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        values = numbers(array, self.stored).astype(self.written, copy=False)
        size = np.dtype(self.written).itemsize
        words: Any = values.view(np.uint64) if size == 8 else values.view(np.uint32).astype(np.uint64)
        if is_implicit:
            absent = without_defaults(absent, words == 0)
        return tagged(tag, [WordField(words, size, size, size)], absent)


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
    """enum: the number of a name in *numbers*, or one of these numbers itself."""

    path: str
    numbers: tuple[tuple[str, int], ...]
    is_named: bool

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        taken: list[Any] = [name if self.is_named else number for name, number in self.numbers]
        array = array if self.is_named else array.cast(pa.int64())
        indices = pc.index_in(array, value_set=pa.array(taken, array.type))
        problem = (
            f"which is not one of the enum's {'names' if self.is_named else 'numbers'} ({', '.join(map(str, taken))}); "
            "add it to the schema, or map it"
        )
        refuse_rows(indices.is_null().to_numpy(zero_copy_only=False), absent, array, self.path, problem)
        values = np.array([number for _, number in self.numbers], np.int64)[numbers(indices.fill_null(0), np.int32)]
        if is_implicit:
            absent = without_defaults(absent, values == 0)
        return tagged(tag, unsigned_varint_fields(values.view(np.uint64)), absent)


@dataclass(frozen=True, slots=True)
class MomentWriter:
    """google.protobuf.Timestamp and Duration, from *per_second* units in a second. Seconds from *low* to *high* are
    allowed. With *is_signed* (Duration) nanoseconds have the sign of the seconds; those of a Timestamp are never
    negative."""

    path: str
    per_second: int
    low: int
    high: int
    allowed: str
    is_signed: bool

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        units: Int64s = numbers(array, np.int64)
        seconds, rest = np.divmod(units, self.per_second)
        wrong = (seconds < self.low) | (seconds > self.high)
        if wrong.any():
            problem = f"but {self.allowed}; correct the row, or choose another type in the schema"
            # Python's dates do not include such values.
            refuse_rows(wrong, absent, array.cast(pa.int64()), self.path, problem)
        if self.is_signed:
            is_split = (seconds < 0) & (rest != 0)
            seconds, rest = seconds + is_split, rest - is_split * self.per_second
        nanos = rest * (_NANOS // self.per_second)
        inside = [*_part(_SECONDS_TAG, seconds, absent), *_part(_NANOS_TAG, nanos, absent)]
        return framed(tag, inside, absent)


def _part(tag: bytes, values: Int64s, absent: Absent) -> list[Piece]:
    return tagged(tag, unsigned_varint_fields(values.view(np.uint64)), without_defaults(absent, values == 0))


@dataclass(frozen=True, slots=True)
class SingularWriter:
    """A singular field; null is not written. With *is_implicit* the default value is not written either."""

    tag: bytes
    value: Value
    is_implicit: bool

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        if array.null_count == len(array):
            return []
        return self.value.pieces(array, either(nulls_of(array), absent), self.tag, is_implicit=self.is_implicit)


@dataclass(frozen=True, slots=True)
class RequiredWriter:
    """A required field of proto2."""

    path: str
    tag: bytes
    value: Value

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        problem = "which the schema requires; fill it, or make the field optional"
        refuse_nulls(array, absent, self.path, problem)
        return self.value.pieces(array, absent, self.tag, is_implicit=False)


@dataclass(frozen=True, slots=True)
class ListWriter:
    """A list, each item with its tag; with *is_packed* after one tag and the length of all items. A null list is an
    empty one."""

    path: str
    tag: bytes
    items: Value
    is_packed: bool

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        items, _ = encode_items(array, absent, self._items)
        if not self.is_packed or not items.max_length:
            return column_pieces(items)
        is_empty = None if items.min_length else items.lengths == 0
        return framed(self.tag, column_pieces(items), is_empty)

    def _items(self, items: pa.Array, unused: Absent) -> Sequence[Piece]:
        refuse_nulls(items, unused, f"{self.path}[]", _NO_NULL)
        return self.items.pieces(items, unused, b"" if self.is_packed else self.tag, is_implicit=False)


@dataclass(frozen=True, slots=True)
class MapWriter:
    """A map: each entry is a message of key and value, both of which are always written."""

    path: str
    tag: bytes
    key_tag: bytes
    key: Value
    value_tag: bytes
    value: Value

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        return column_pieces(encode_items(array, absent, self._entries)[0])

    def _entries(self, entries: pa.Array, unused: Absent) -> Sequence[Piece]:
        keys, values = entries.field(0), entries.field(1)
        refuse_nulls(values, unused, f"{self.path}{{}}", _NO_NULL)
        inside = [
            *self.key.pieces(keys, unused, self.key_tag, is_implicit=False),
            *self.value.pieces(values, unused, self.value_tag, is_implicit=False),
        ]
        return framed(self.tag, inside, unused)


@dataclass(frozen=True, slots=True)
class Oneof:
    """A oneof: the *columns* of which at most one may have a value, and their names."""

    name: str
    columns: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessageFields:
    """The fields of a message in the order of their numbers; *columns* are their positions in the struct."""

    path: str
    columns: tuple[int, ...]
    fields: tuple[PieceWriter, ...]
    oneofs: tuple[Oneof, ...]

    def pieces(self, array: pa.Array, absent: Absent) -> list[Piece]:
        """The bytes of all fields; *absent* rows have none.

        :raises RowSerializationError: as :class:`PieceWriter` does, and about rows with several values in a oneof.
        """
        for oneof in self.oneofs:
            self._check(oneof, array, absent)
        pieces: list[Piece] = []
        for column, writer in zip(self.columns, self.fields, strict=True):
            pieces += writer.pieces(array.field(column), absent)
        return pieces

    def _check(self, oneof: Oneof, array: pa.Array, absent: Absent) -> None:
        counts = np.zeros(len(array), np.int64)
        for column in oneof.columns:
            counts += array.field(column).is_valid().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero((counts > 1) if absent is None else (counts > 1) & ~absent).tolist()
        if wrong:
            path = f"{self.path}.{oneof.name}"
            problem = (
                f"has more than one of the columns {', '.join(oneof.names)} of the oneof '{path}'; make all but one of "
                "them null"
            )
            raise RowSerializationError.about(wrong, lambda _: problem, path)


@dataclass(frozen=True, slots=True)
class MessageWriter:
    """A nested message, after its length."""

    fields: MessageFields

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        return framed(tag, self.fields.pieces(array, absent), absent)


@dataclass(frozen=True, slots=True)
class GroupWriter:
    """A nested message, between its tag and *end_tag*."""

    fields: MessageFields
    end_tag: bytes

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        end = only_present(constant_fields(self.end_tag), absent)
        return [*tagged(tag, [], absent), *self.fields.pieces(array, absent), *end]


@dataclass(frozen=True, slots=True)
class WrapperWriter:
    """A wrapper, such as google.protobuf.StringValue: a message of one value."""

    wire_type: int
    value: Value

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        inside = self.value.pieces(array, absent, tag_of(1, self.wire_type), is_implicit=True)
        return framed(tag, inside, absent)
