"""Encodes whole columns to records at once, with the same bytes as ``reference.write_record`` for each row.

Also records that are staged one by one and encoded together: calling threads add them under the lock of their batch's
partition, and the sender thread encodes them when the batch is closed.

The producer calls it on the task's thread. It never loops over rows in Python, and never copies a row's bytes twice.

Source: https://kafka.apache.org/documentation/#record.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

# The encoder needs it. It is imported here, so that the import does not delay the first batch.
import pyarrow.compute
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import BinaryColumn, Int64s
from kafka_sink.columns.gather import WordField, column_pieces, constant_field, join_rows, varint_fields, varint_sizes
from kafka_sink.columns.record_columns import ColumnChunk, HeadersColumn, field_pieces, length_values
from kafka_sink.columns.varint import NULL_LENGTH
from kafka_sink.common.buffers import Buffer
from kafka_sink.records import reference

_ATTRIBUTES: Final = b"\x00"
_NO_HEADERS: Final = b"\x00"
_NULL: Final = constant_field(NULL_LENGTH)
_ATTRIBUTES_FIELD: Final = constant_field(_ATTRIBUTES)
_NO_HEADERS_FIELD: Final = constant_field(_NO_HEADERS)
_UINT8_MAX: Final = 0xFF
_UINT16_MAX: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """Records in row order: record ``i`` is ``data[offsets[i]:offsets[i + 1]]``; ``offsets`` int64[n + 1]."""

    data: memoryview
    offsets: Int64s


def content_sizes(chunk: ColumnChunk) -> Int64s:
    """The size of each row's key, value and headers with their length fields, int64[n]: the part of a record that does
    not depend on its batch."""
    sizes = _content(chunk)
    return np.full(chunk.num_rows, sizes, dtype=np.int64) if isinstance(sizes, int) else sizes


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
    times, positions = varint_fields(timestamp_deltas), varint_fields(offset_deltas)
    body = _content(chunk) + len(_ATTRIBUTES) + _fields_size(times) + _fields_size(positions)
    pieces = [
        *varint_fields(body),
        _ATTRIBUTES_FIELD,
        *times,
        *positions,
        *([_NULL] if chunk.key is None else field_pieces(chunk.key)),
        *field_pieces(chunk.value),
    ]
    if chunk.headers is not None:
        pieces += [*varint_fields(chunk.headers.counts), *column_pieces(chunk.headers.entries)]
        data, bounds = join_rows(pieces, rows)
        return EncodedRecords(memoryview(data).cast("B"), bounds)
    # A record without headers ends with one byte, 0. Writing it as the first byte of the next row costs nothing.
    data, bounds = join_rows([_NO_HEADERS_FIELD, *pieces], rows, closing=_NO_HEADERS)
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


def _fields_size(fields: Sequence[WordField]) -> Int64s | int:
    total: Int64s | int = 0
    for field in fields:
        total = total + (field.size if isinstance(field.size, int) else field.size.view(np.int64))
    return total


#: For fewer records, arrays cost more time than they save.
_FEW_RECORDS: Final = 24

_WITHOUT_HEADERS: Final = (0, b"")


class StagedRecords:
    """Consecutive records of a batch; *first* is the offset delta of the first of them.

    To stage a record, the caller appends to all three lists, and sets ``headers`` if the record has some: by its index
    in the lists, their number and :func:`~kafka_sink.records.reference.header_entries`.
    """

    __slots__ = ("first", "headers", "keys", "timestamps", "values")

    def __init__(self, first: int) -> None:
        self.first = first
        #: ms since the epoch, int64.
        self.timestamps = array("q")
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: dict[int, tuple[int, bytes]] = {}

    def cut(self, count: int) -> None:
        """Drop all but the first *count* records."""
        for cells in (self.timestamps, self.keys, self.values):
            del cells[count:]
        for row in [row for row in self.headers if row >= count]:
            del self.headers[row]

    def encode(self, base_timestamp: int) -> tuple[Buffer, int]:
        """The bytes of the records, and the size of the largest record."""
        count = len(self.values)
        if count < _FEW_RECORDS:
            return self._encode_few(base_timestamp)
        keys = None if self.keys.count(None) == count else _column(self.keys)
        chunk = ColumnChunk(_column(self.values), keys, self._headers())
        offset_deltas = np.arange(self.first, self.first + count, dtype=np.int64)
        encoded = encode_records(chunk, offset_deltas, np.array(self.timestamps, dtype=np.int64) - base_timestamp)
        return encoded.data, int(np.diff(encoded.offsets).max())

    def _headers(self) -> HeadersColumn | None:
        if not self.headers:
            return None
        rows = [self.headers.get(row, _WITHOUT_HEADERS) for row in range(len(self.values))]
        return HeadersColumn(np.array([count for count, _ in rows], np.int64), _column([data for _, data in rows]))

    def _encode_few(self, base_timestamp: int) -> tuple[bytearray, int]:
        target = bytearray()
        largest = 0
        for row, (timestamp, key, value) in enumerate(zip(self.timestamps, self.keys, self.values, strict=True)):
            start = len(target)
            reference.write_record_with_entries(
                target,
                self.first + row,
                timestamp - base_timestamp,
                key,
                value,
                *self.headers.get(row, _WITHOUT_HEADERS),
            )
            largest = max(largest, len(target) - start)
        return target, largest


def _column(cells: Sequence[bytes | None]) -> BinaryColumn:
    null_mask = None
    if None in cells:
        null_mask = np.array([cell is None for cell in cells])
        cells = [cell or b"" for cell in cells]
    # Not with pyarrow.array, which loads pandas, if it is installed, to convert a list.
    lengths = np.fromiter(map(len, cells), np.int64, len(cells))  # type: ignore[arg-type]
    starts = np.cumsum(lengths) - lengths
    data = pa.py_buffer(b"".join(cells))  # type: ignore[arg-type]
    return BinaryColumn.of(data, starts, lengths, null_mask, is_contiguous=True)
