"""Turns the columns that have a format into payloads, before the rows are sent or placed.

Runs in a Spark Python worker, once per Arrow batch. An error names the row by its number in the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from kafka_sink.common.errors import RowError
from kafka_sink.formats.column_format import ColumnEncoder, ColumnFormat
from kafka_sink.formats.encoders import encoder_of
from kafka_sink.spark.task.arrow_columns import in_task


def with_payloads(batches: Iterator[pa.RecordBatch], formats: Sequence[ColumnFormat]) -> Iterator[pa.RecordBatch]:
    """*batches* with bytes in the columns of *formats*; the batches themselves if there are none.

    :raises RowSerializationError: if a value does not fit the schema; the text names row, column and value.
    """
    return _encoded(batches, formats) if formats else batches


def _encoded(batches: Iterator[pa.RecordBatch], formats: Sequence[ColumnFormat]) -> Iterator[pa.RecordBatch]:
    encoders: dict[str, ColumnEncoder] = {}
    rows_before = 0
    for batch in batches:
        for each in formats:
            index = batch.schema.get_field_index(each.column)
            rows = batch.column(index)
            if each.column not in encoders:
                encoders[each.column] = encoder_of(each, rows.type)
            try:
                payloads = encoders[each.column].encode(rows, each.prefix)
            except RowError as error:
                raise in_task(error, rows_before) from error
            batch = batch.set_column(index, each.column, payloads)
        rows_before += batch.num_rows
        yield batch
