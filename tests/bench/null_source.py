"""A sink that accepts every Arrow batch and does nothing: the cost of any Python sink in Spark.

Its rows per second are the upper limit of a batch write, and its micro-batches show the time that every sink in Python
needs: with Spark's Python processes unchanged, and tuned as kafkalite tunes them, which is the floor for kafkalite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafka_sink.spark.task.worker_process import worker_process

if TYPE_CHECKING:
    import pyarrow as pa


class NullWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Reads its rows to the end, as every writer must."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Nothing was written."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Nothing was written."""


class NullSource(DataSource):
    """``format("null-arrow")``."""

    @classmethod
    def name(cls) -> str:
        return "null-arrow"

    def writer(self, schema: StructType, overwrite: bool) -> NullWriter:
        return NullWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NullWriter:
        return NullWriter()


class TunedNullWriter(NullWriter):
    """A :class:`NullWriter` in a tuned process."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with worker_process.task(tuned=True):
            return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = 0) -> None:
        with worker_process.task(tuned=True):
            super().commit(messages, batchId)


class TunedNullSource(NullSource):
    """``format("null-arrow-tuned")``."""

    @classmethod
    def name(cls) -> str:
        return "null-arrow-tuned"

    def writer(self, schema: StructType, overwrite: bool) -> NullWriter:
        with worker_process.task(tuned=True):
            return TunedNullWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NullWriter:
        return self.writer(schema, overwrite)
