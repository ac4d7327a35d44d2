"""Encodes a column to Protobuf payloads, one per row, with a constant number of numpy and Arrow passes per field.

Created once per task and column, and called on the task's thread for each batch of rows. It never loops over rows.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.formats.fields import nulls_of, only_present
from kafka_sink.formats.payloads import payloads_of
from kafka_sink.formats.protobuf.matching import fields_of_rows
from kafka_sink.formats.protobuf.schema import Schema
from kafka_sink.records.gather import constant_fields


class ProtobufEncoder:
    """Writes rows of one type as one message."""

    def __init__(self, schema: Schema, kind: pa.DataType, column: str) -> None:
        """*kind* is the type of the rows, which become the root of *schema*, and *column* their name for messages.

        :raises FormatError: if the column does not fit the message; the text names the column.
        """
        self._fields = fields_of_rows(schema, kind, column)

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> pa.LargeBinaryArray:
        """The payloads of *rows*, each after *prefix*; a null row has a null payload.

        :raises RowSerializationError: as for :class:`~kafka_sink.formats.column_format.ColumnEncoder`.
        """
        nulls = nulls_of(rows)
        pieces = [*only_present(constant_fields(prefix), nulls), *self._fields.pieces(rows, nulls)] if len(rows) else []
        return payloads_of(pieces, len(rows), nulls)
