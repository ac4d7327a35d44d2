"""Records that are staged one by one and encoded together, with the same bytes as ``reference.write_record``.

A producer's batch uses it: calling threads add records under the lock of the batch's partition, and the sender thread
encodes them when the batch is closed. It does not depend on batches.

Source: https://kafka.apache.org/documentation/#record.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

# The encoder needs it. It is imported here, so that the import does not delay the first batch.
import pyarrow.compute

from kafka_sink.columns.binary_column import BinaryColumn
from kafka_sink.columns.record_columns import ColumnChunk, HeadersColumn
from kafka_sink.common.buffers import Buffer
from kafka_sink.records import reference
from kafka_sink.records.vectorized import encode_records

#: For fewer records, arrays cost more time than they save.
_FEW_RECORDS: Final = 24

_NO_HEADERS: Final = (0, b"")


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
        chunk = ColumnChunk(_column(self.values), None if _is_null(self.keys) else _column(self.keys), self._headers())
        offset_deltas = np.arange(self.first, self.first + count, dtype=np.int64)
        encoded = encode_records(chunk, offset_deltas, np.array(self.timestamps, dtype=np.int64) - base_timestamp)
        return encoded.data, int(np.diff(encoded.offsets).max())

    def _headers(self) -> HeadersColumn | None:
        if not self.headers:
            return None
        rows = [self.headers.get(row, _NO_HEADERS) for row in range(len(self.values))]
        return HeadersColumn(np.array([count for count, _ in rows], np.int64), _column([data for _, data in rows]))

    def _encode_few(self, base_timestamp: int) -> tuple[bytearray, int]:
        target = bytearray()
        largest = 0
        for row, (timestamp, key, value) in enumerate(zip(self.timestamps, self.keys, self.values, strict=True)):
            start = len(target)
            reference.write_record_with_entries(
                target, self.first + row, timestamp - base_timestamp, key, value, *self.headers.get(row, _NO_HEADERS)
            )
            largest = max(largest, len(target) - start)
        return target, largest


def _is_null(cells: Sequence[bytes | None]) -> bool:
    return cells.count(None) == len(cells)


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
