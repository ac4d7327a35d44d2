"""Turns the columns that have a format into payloads, before the rows are sent or placed.

Runs in a Spark Python worker, once per Arrow batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_sink.formats.column_format import ColumnEncoder, ColumnFormat, format_of


class Payloads:
    """Encodes the columns of *formats*; keeps their encoders for all batches of a task."""

    def __init__(self, formats: Sequence[ColumnFormat]) -> None:
        self._formats = formats
        self._encoders: dict[str, ColumnEncoder] = {}

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """*batch* with bytes in the columns that have a format.

        :raises RowSerializationError: if values do not fit the schema; the text names row, column and value.
        """
        for each in self._formats:
            index = batch.schema.get_field_index(each.column)
            rows = batch.column(index)
            if each.column not in self._encoders:
                self._encoders[each.column] = format_of(each.name).encoder(each, rows.type)
            payloads = self._encoders[each.column].encode(rows, each.prefix)
            batch = batch.set_column(index, each.column, payloads)
        return batch
