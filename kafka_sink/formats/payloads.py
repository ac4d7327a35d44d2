"""Payloads from the fields of each row: the last step of every format.

Called on the task's thread for each batch of rows, with a constant number of numpy and Arrow passes per field. It never
loops over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from kafka_sink.columns.gather import Piece, constant_fields
from kafka_sink.formats.fields import Absent, joined, nulls_of, only_present


class Writer(Protocol):
    """Writes the rows of one column at one place in the schema."""

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """The pieces of each row of *array*; rows that are *absent* have no bytes.

        :raises RowSerializationError: about all rows whose values cannot be written for the first reason that was
            found; the text names the column, and the value.
        """


@dataclass(frozen=True, slots=True)
class NothingWriter:
    """A place without bytes: Avro's type null, and columns of Protobuf that only have nulls."""

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """See :class:`Writer`."""
        return []


class FieldsEncoder:
    """Encodes a column by the fields of *writer*; see :class:`~kafka_sink.formats.column_format.ColumnEncoder`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> pa.LargeBinaryArray:
        nulls = nulls_of(rows)
        pieces = [*only_present(constant_fields(prefix), nulls), *self._writer.pieces(rows, nulls)] if len(rows) else []
        return payloads_of(pieces, len(rows), nulls)


def payloads_of(pieces: Sequence[Piece], rows: int, nulls: Absent) -> pa.LargeBinaryArray:
    """One payload per row; *nulls* have none."""
    if not rows:
        return pa.array([], pa.large_binary())
    data, bounds = joined(pieces, rows)
    validity = None if nulls is None else pa.array(~nulls).buffers()[1]
    offsets = pa.py_buffer(np.ascontiguousarray(bounds))
    return pa.Array.from_buffers(pa.large_binary(), rows, [validity, offsets, data])
