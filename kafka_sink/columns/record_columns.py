"""The rows of a chunk as columns: keys, values, headers and timestamps, ready for the encoder.

The Spark task (or any caller of ``send_columns``) creates it from Arrow columns; the producer reorders and slices it on
the same thread. It never copies keys or values. Headers are encoded once, when their column is created.

Source: KIP-82 (headers), https://kafka.apache.org/documentation/#recordheader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import BinaryColumn, Bools, Int64s, is_utf8
from kafka_sink.columns.gather import Piece, column_pieces, join_rows, varint_fields
from kafka_sink.common.errors import RowSerializationError, SerializationError

__all__ = ["BinaryColumn", "ColumnChunk", "HeadersColumn", "length_values"]


def length_values(column: BinaryColumn) -> Int64s | int:
    """The length field of each row of *column* in the record format: its length, or −1 for null."""
    if column.null_mask is not None:
        return column.lengths - column.null_mask
    return column.min_length if column.min_length == column.max_length else column.lengths


class HeadersColumn:
    """The encoded headers of n rows: ``counts`` int64[n], and ``entries``, the headers of each row as in a record."""

    __slots__ = ("counts", "entries")

    def __init__(self, counts: Int64s, entries: BinaryColumn) -> None:
        self.counts = counts
        self.entries = entries

    @classmethod
    def from_arrow(cls, array: pa.Array) -> HeadersColumn:
        """The headers in an array of ``list<struct<key: string, value: binary>>``; a null list is a row without
        headers.

        :raises SerializationError: if *array* has another type.
        :raises RowSerializationError: if a row holds a null header, or a header whose key is null or not UTF-8: in the
            protocol it is a text, and readers do not accept other bytes.
        """
        kind = array.type
        is_list = (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type)
        if not is_list or [item.name for item in kind.value_type] != ["key", "value"]:
            raise SerializationError(f"headers must be list<struct<key: string, value: binary>>, got {kind}")
        offsets = array.offsets.to_numpy().astype(np.int64)
        first, last = offsets[:-1], offsets[1:]
        if array.null_count:
            # In Arrow a null row may have entries; they are ignored.
            last = np.where(array.is_null().to_numpy(zero_copy_only=False), first, last)
        counts = last - first
        # The ``values`` of a slice are those of the whole array.
        begin, end = int(offsets[0]), int(offsets[-1])
        structs = array.values.slice(begin, end - begin)
        first, last = first - begin, last - begin
        keys, values = BinaryColumn.from_arrow(structs.field(0)), BinaryColumn.from_arrow(structs.field(1))
        _require(structs.is_valid(), first, last, "is null; every header needs a key")
        _require(structs.field(0).is_valid(), first, last, "has a null key; every header needs a key")
        _require(pa.array(is_utf8(structs.field(0))), first, last, "has a key that is not valid UTF-8; correct it")
        if len(structs) == 0:
            return cls(counts, BinaryColumn.of(pa.py_buffer(b""), first, counts, None, is_contiguous=False))
        data, bounds = join_rows([*field_pieces(keys), *field_pieces(values)], len(structs))
        starts = bounds[first]
        entries = BinaryColumn.of(data, starts, bounds[last] - starts, None, is_contiguous=False)
        return cls(counts, entries)

    def take(self, indices: NDArray[Any]) -> HeadersColumn:
        return HeadersColumn(self.counts[indices], self.entries.take(indices))

    def slice(self, start: int, length: int) -> HeadersColumn:
        return HeadersColumn(self.counts[start : start + length], self.entries.slice(start, length))


def field_pieces(column: BinaryColumn) -> list[Piece]:
    """A column in the record format: the length of each row, then its bytes."""
    return [*varint_fields(length_values(column)), *column_pieces(column)]


def _require(valid: pa.Array, first: Int64s, last: Int64s, problem: str) -> None:
    missing: Bools = ~valid.to_numpy(zero_copy_only=False)
    if not missing.any():
        return
    # Entries that no row refers to (of null rows, or outside a slice) may be invalid.
    before = np.concatenate(([0], np.cumsum(missing)))
    rows = np.flatnonzero(before[last] > before[first]).tolist()
    if rows:

        def problem_of(row: int) -> str:
            entry = int(np.flatnonzero(missing[first[row] : last[row]])[0])
            return f"has a header ({entry}) that {problem}"

        raise RowSerializationError.about(rows, problem_of, "headers")


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """Rows for one topic. ``key=None`` means that no row has a key; ``timestamps`` is int64[n], ms since 1970."""

    value: BinaryColumn
    key: BinaryColumn | None = None
    headers: HeadersColumn | None = None
    timestamps: Int64s | None = None

    @property
    def num_rows(self) -> int:
        return len(self.value)

    def take(self, indices: NDArray[Any]) -> ColumnChunk:
        return ColumnChunk(
            self.value.take(indices),
            None if self.key is None else self.key.take(indices),
            None if self.headers is None else self.headers.take(indices),
            None if self.timestamps is None else self.timestamps[indices],
        )

    def slice(self, start: int, length: int) -> ColumnChunk:
        return ColumnChunk(
            self.value.slice(start, length),
            None if self.key is None else self.key.slice(start, length),
            None if self.headers is None else self.headers.slice(start, length),
            None if self.timestamps is None else self.timestamps[start : start + length],
        )
