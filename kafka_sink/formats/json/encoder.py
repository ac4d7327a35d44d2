"""Encodes a column to JSON, one text per row, with a constant number of numpy and Arrow passes per field.

Created once per task and column, and called on the task's thread for each batch of rows. It never loops over rows.

Source: Spark's ``to_json`` (apache/spark ``JacksonGenerator.scala``), whose bytes these are.
"""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.formats.fields import nulls_of
from kafka_sink.formats.json.matching import writer_for
from kafka_sink.formats.json.tokens import Literal, pieces_of
from kafka_sink.formats.payloads import payloads_of


class JsonEncoder:
    """Writes rows of one type."""

    def __init__(self, kind: pa.DataType, column: str, *, is_strict: bool = False) -> None:
        """*kind* is the type of the rows, and *column* their name for messages. *is_strict*: NaN and infinite numbers
        are refused, which JSON does not have, instead of written as texts.

        :raises FormatError: if the column has a type without a counterpart; the text names it.
        """
        self._writer = writer_for(kind, column, is_strict=is_strict)

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> pa.LargeBinaryArray:
        """The payloads of *rows*, each after *prefix*; a null row has a null payload.

        :raises RowSerializationError: as for :class:`~kafka_sink.formats.column_format.ColumnEncoder`.
        """
        nulls = nulls_of(rows)
        tokens = [Literal(prefix, nulls), *self._writer.tokens(rows, nulls)]
        return payloads_of(pieces_of(tokens, len(rows)), len(rows), nulls)
