"""Encodes a column to Avro payloads, one per row, with a constant number of numpy and Arrow passes per field.

Created once per task and column, and called on the task's thread for each batch of rows. It never loops over rows.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.formats.avro.matching import writer_for
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.fields import nulls_of, only_present
from kafka_sink.formats.payloads import payloads_of
from kafka_sink.records.gather import constant_fields


class AvroEncoder:
    """Writes rows of one type by one schema."""

    def __init__(self, schema: str, kind: pa.DataType, column: str) -> None:
        """*schema* is the JSON of the schema, *kind* the type of the rows, and *column* their name for messages.

        :raises FormatError: if the schema is invalid, or the column does not fit it; the text names the column.
        """
        self._writer = writer_for(parse_schema(schema), kind, column)

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> pa.LargeBinaryArray:
        """The payloads of *rows*, each after *prefix*; a null row has a null payload.

        :raises RowSerializationError: as for :class:`~kafka_sink.formats.column_format.ColumnEncoder`.
        """
        nulls = nulls_of(rows)
        pieces = [*only_present(constant_fields(prefix), nulls), *self._writer.pieces(rows, nulls)] if len(rows) else []
        return payloads_of(pieces, len(rows), nulls)
