"""Writers of values with parts: records, arrays, maps, and values that may be null.

Called on the task's thread. A record's pieces are its fields' pieces. The items of arrays and maps are encoded as rows
of their own; those of one row then are one piece, because they lie next to each other.

Source: https://avro.apache.org/docs/1.12.0/specification/#complex-types-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import BinaryColumn, Int64s
from kafka_sink.columns.gather import Field, Piece, column_pieces, constant_field, varint_fields
from kafka_sink.formats.fields import Absent, after, either, joined, nulls_of, only_present
from kafka_sink.formats.payloads import Writer, encode_items
from kafka_sink.formats.refusals import refuse_nulls


@dataclass(frozen=True, slots=True)
class RequiredWriter:
    """A value that the schema does not allow to be null."""

    path: str
    value: Writer

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        problem = "which the schema does not allow; fill it, or make the field a union with null"
        refuse_nulls(array, absent, self.path, problem)
        return self.value.pieces(array, absent)


@dataclass(frozen=True, slots=True)
class NullableWriter:
    """A union of null and one other type: the position of the branch, then the value."""

    value: Writer
    null_index: int

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        nulls = nulls_of(array)
        # A position is a varint: 0 is the byte 0, and 1 the byte 2.
        of_null, of_value = 2 * self.null_index, 2 * (1 - self.null_index)
        if nulls is None:
            branch = constant_field(bytes([of_value]))
        else:
            branch = Field(np.where(nulls, np.uint64(of_null), np.uint64(of_value)), 1, 1, 1)
        (position,) = only_present([branch], absent)
        return after(position, self.value.pieces(array, either(nulls, absent)))


@dataclass(frozen=True, slots=True)
class AlwaysNullWriter:
    """The branch null of a union: for a field without a column, and for a column that only has nulls."""

    null_index: int

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        return only_present([constant_field(bytes([2 * self.null_index]))], absent)


@dataclass(frozen=True, slots=True)
class OnlyBranchWriter:
    """A branch of a union that can only have this one: its position, then the value."""

    value: Writer

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        return [*only_present([constant_field(b"\x00")], absent), *self.value.pieces(array, absent)]


@dataclass(frozen=True, slots=True)
class RecordWriter:
    """The fields in turn; *columns* are their positions in the struct, None for a field without a column."""

    columns: tuple[int | None, ...]
    fields: tuple[Writer, ...]

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        found: list[Piece] = []
        for column, writer in zip(self.columns, self.fields, strict=True):
            found += writer.pieces(array if column is None else array.field(column), absent)
        return found


@dataclass(frozen=True, slots=True)
class ItemsWriter:
    """Arrays and maps: one block with the number of items and the items, then the number 0."""

    items: Writer

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        if not len(array):
            return []
        found = encode_items(array, absent, self._encoded)
        encoded = BinaryColumn.of(found.data, found.starts, found.ends - found.starts, None, is_contiguous=False)
        # An empty array is the number 0 alone, which is its number of items too.
        closing = Field(0, (found.counts != 0).astype(np.uint64), 0, 1)
        return [*only_present(varint_fields(found.counts), absent), *column_pieces(encoded), closing]

    def _encoded(self, items: pa.Array, unused: Absent) -> tuple[pa.Buffer, Int64s]:
        rows = len(items)
        return joined(self.items.pieces(items, unused) if rows else [], rows)


@dataclass(frozen=True, slots=True)
class EntriesWriter:
    """The entries of a map: its key, which is never null, and its value."""

    key: Writer
    value: Writer

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        return [*self.key.pieces(array.field(0), absent), *self.value.pieces(array.field(1), absent)]
