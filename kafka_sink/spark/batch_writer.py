"""The batch writers for ``df.write.format("kafkalite")``: at least once, and exactly once by version number.

Created on the driver in Spark's planner process, pickled to the tasks (so they only contain plain values), and
unpickled again for ``commit`` and ``abort``. ``abort`` never raises, because that would hide the original error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kafka_sink.exactly_once.model import BatchNumbering
from kafka_sink.spark.driver.transactional_write import APPLICATION, TransactionalWrite
from kafka_sink.spark.driver.write_report import (
    checked_messages,
    publish,
    publish_failure,
    report_of,
    warn_of_leftovers,
)
from kafka_sink.spark.one_version import OfOneVersion
from kafka_sink.spark.prepared_write import ExactlyOnce, PreparedWrite
from kafka_sink.spark.task.worker_process import worker_process
from kafka_sink.spark.versions import DataSourceArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaliteBatchWriter(OfOneVersion, DataSourceArrowWriter):
    """Writes a DataFrame. The write succeeds only if every row of every task was acknowledged."""

    def __init__(self, prepared: PreparedWrite) -> None:
        self._prepared = prepared

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Called once per task attempt on an executor."""
        with worker_process.task(tuned=self._prepared.task.tune_python_workers):
            # Only tasks need pyarrow, numpy and the producer; the planner's processes start without them.
            from kafka_sink.spark.task.task_writer import write_task

            return write_task(iterator, self._prepared.task)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Check that all rows were acknowledged, and publish the report.

        :raises KafkaError: if a task's message is missing, its row counts differ, or too many rows are bad.
        """
        task = self._prepared.task
        with worker_process.task(tuned=task.tune_python_workers):
            publish(report_of(checked_messages(messages, task.rows)), self._prepared.reporting)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log which rows of a failed write stay in the topics."""
        warn_of_leftovers(messages)
        publish_failure(messages, self._prepared.reporting)


class KafkaliteNumberedBatchWriter(OfOneVersion, DataSourceArrowWriter):
    """Writes a DataFrame with txnAppId and txnVersion: completely or not at all, and each version once.

    A data source cannot group rows by Kafka partition, so each task has its own transaction.
    """

    def __init__(self, prepared: PreparedWrite, exactly_once: ExactlyOnce, version: int) -> None:
        self._version = version
        self._write = TransactionalWrite(prepared, exactly_once, APPLICATION)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Called once per task attempt on an executor."""
        return self._write.write(iterator, self._version, APPLICATION, BatchNumbering.OF_AN_APPLICATION)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Decide the batch and commit the transactions of all tasks.

        :raises ExactlyOnceError: if the batch was not committed, or only partly; the text says which.
        """
        self._write.commit(messages, self._version, BatchNumbering.OF_AN_APPLICATION, records_empty=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """See :meth:`TransactionalWrite.abort`."""
        self._write.abort(messages, self._version)
