"""Encodes whole columns to records at once, with the same bytes as ``reference.write_record`` for each row.

The producer calls it on the task's thread. It never loops over rows in Python, and never copies a row's bytes twice.

Source: https://kafka.apache.org/documentation/#record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import BinaryColumn, Int64s
from kafka_sink.columns.gather import Field, column_pieces, constant_field, join_rows, varint_fields, varint_sizes
from kafka_sink.columns.record_columns import ColumnChunk, field_pieces, length_values
from kafka_sink.columns.varint import NULL_LENGTH

_ATTRIBUTES: Final = b"\x00"
_NO_HEADERS: Final = b"\x00"
_NULL: Final = constant_field(NULL_LENGTH)
_UINT8_MAX: Final = 0xFF
_UINT16_MAX: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Records in row order: record ``i`` is ``data[offsets[i]:offsets[i + 1]]``; ``offsets`` int64[n + 1]."""

    data: memoryview
    offsets: Int64s


def content_sizes(chunk: ColumnChunk) -> Int64s:
    """The size of each row's key, value and headers with their length fields, int64[n]: the part of a record that does
    not depend on its batch.
    """
    return _as_array(_content(chunk), chunk.num_rows)


def sizes_from_content(content: Int64s, offset_deltas: Int64s, timestamp_deltas: Int64s | int) -> Int64s:
    """The exact sizes, int64[n], of records whose :func:`content_sizes` are *content*."""
    bodies = content + (len(_ATTRIBUTES) + varint_sizes(timestamp_deltas)) + varint_sizes(offset_deltas)
    return bodies + varint_sizes(bodies)


def encode_records(chunk: ColumnChunk, offset_deltas: Int64s, timestamp_deltas: Int64s | int) -> EncodedRecords:
    """Encode all rows of *chunk* as records.

    :param offset_deltas: int64[n], each row's offset minus its batch's base offset.
    :param timestamp_deltas: ms, each row's timestamp minus its batch's base timestamp; one number for all, or int64[n].
    """
    rows = chunk.num_rows
    if rows == 0:
        return EncodedRecords(memoryview(b""), np.zeros(1, dtype=np.int64))
    times, places = varint_fields(timestamp_deltas), varint_fields(offset_deltas)
    body = _content(chunk) + len(_ATTRIBUTES) + _fields_size(times) + _fields_size(places)
    pieces = [
        *varint_fields(body),
        constant_field(_ATTRIBUTES),
        *times,
        *places,
        *([_NULL] if chunk.key is None else field_pieces(chunk.key)),
        *field_pieces(chunk.value),
    ]
    if chunk.headers is not None:
        pieces += [*varint_fields(chunk.headers.counts), *column_pieces(chunk.headers.entries)]
        data, bounds = join_rows(pieces, rows)
        return EncodedRecords(memoryview(data).cast("B"), bounds)
    # A record without headers ends with one byte, 0. Writing it as the first byte of the next row costs nothing.
    data, bounds = join_rows([constant_field(_NO_HEADERS), *pieces], rows, closing=_NO_HEADERS)
    return EncodedRecords(memoryview(data).cast("B")[1:], bounds)


def partition_order(partitions: NDArray[np.int32]) -> tuple[NDArray[np.intp] | None, NDArray[np.int32], Int64s]:
    """The order that groups rows by partition and keeps their order within a partition.

    :param partitions: int32[n], none negative.
    :returns: the order of the rows (None if they are already grouped), int32[runs]: the partition of each run, and
        int64[runs + 1]: the start of each run, and n.
    """
    rows = len(partitions)
    if rows == 0:
        return None, np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
    highest = int(partitions.max())
    # numpy sorts numbers of up to 16 bits by counting, which is much faster than by comparison.
    narrow = np.uint8 if highest <= _UINT8_MAX else np.uint16 if highest <= _UINT16_MAX else np.uint32
    small: NDArray[np.unsignedinteger[Any]] = partitions.astype(narrow)
    order = None
    if bool(np.any(small[1:] < small[:-1])):
        order = np.argsort(small, kind="stable")
        small = small[order]
    starts = np.flatnonzero(small[1:] != small[:-1]) + 1
    bounds = np.concatenate(([0], starts, [rows]))
    return order, small[bounds[:-1]].astype(np.int32), bounds


def _content(chunk: ColumnChunk) -> Int64s | int:
    key = len(NULL_LENGTH) if chunk.key is None else _column_sizes(chunk.key)
    headers: Int64s | int = len(_NO_HEADERS)
    if chunk.headers is not None:
        headers = varint_sizes(chunk.headers.counts) + chunk.headers.entries.lengths
    return _column_sizes(chunk.value) + key + headers


def _column_sizes(column: BinaryColumn) -> Int64s | int:
    values = length_values(column)
    return varint_sizes(values) + (values if isinstance(values, int) else column.lengths)


def _fields_size(fields: Sequence[Field]) -> Int64s | int:
    total: Int64s | int = 0
    for field in fields:
        total = total + (field.size if isinstance(field.size, int) else field.size.view(np.int64))
    return total


def _as_array(values: Int64s | int, rows: int) -> Int64s:
    return np.full(rows, values, dtype=np.int64) if isinstance(values, int) else values
