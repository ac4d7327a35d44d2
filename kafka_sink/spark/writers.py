"""The writers of ``df.write`` and ``df.writeStream``: at least once, and exactly once by version or micro-batch.

Spark creates one per write, and one per micro-batch, in its planner process, and pickles it to the tasks, so it only
contains plain values. It is unpickled again for ``commit`` and ``abort``; for a stream another one is created for them,
in another process, which only receives the commit messages. ``abort`` never raises, because that would hide the
original error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from kafka_sink.common.errors import KafkaError
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
from kafka_sink.spark.streaming.checkpoint import query_of
from kafka_sink.spark.streaming.continuous import refuse_epoch
from kafka_sink.spark.task.worker_process import worker_process
from kafka_sink.spark.versions import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa


class _AtLeastOnce(OfOneVersion):
    """What a DataFrame and a micro-batch have in common: *more* is what a report says of a micro-batch."""

    def __init__(self, prepared: PreparedWrite) -> None:
        self._prepared = prepared

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Called once per task attempt on an executor."""
        with worker_process.task(tuned=self._prepared.task.tune_python_workers):
            # Only tasks need pyarrow, numpy and the producer; the planner's processes start without them.
            from kafka_sink.spark.task.task_writer import write_task

            return write_task(iterator, self._prepared.task)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], **more: Any) -> None:
        task = self._prepared.task
        with worker_process.task(tuned=task.tune_python_workers):
            publish(report_of(checked_messages(messages, task.rows), **more), self._prepared.reporting)

    def _abort(self, messages: Sequence[WriterCommitMessage | None], **more: Any) -> None:
        warn_of_leftovers(messages)
        publish_failure(messages, self._prepared.reporting, **more)


class KafkaliteBatchWriter(_AtLeastOnce, DataSourceArrowWriter):
    """Writes a DataFrame. The write succeeds only if every row of every task was acknowledged."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Check that all rows were acknowledged, and publish the report.

        :raises KafkaError: if a task's message is missing, its row counts differ, or too many rows are bad.
        """
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log which rows of a failed write stay in the topics."""
        self._abort(messages)


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


class KafkaliteStreamWriter(_AtLeastOnce, DataSourceStreamArrowWriter):
    """At least once: a micro-batch that Spark runs again is written again."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """As for a batch write. :raises KafkaError: also if the trigger is continuous."""
        refuse_epoch(messages, batchId)
        self._commit(messages, batch=batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log which rows of a failed micro-batch stay in the topics."""
        self._abort(messages, batch=batchId)


class KafkaliteExactlyOnceStreamWriter(OfOneVersion, DataSourceStreamArrowWriter):
    """Exactly once: every micro-batch is in Kafka once and completely, for readers of committed records."""

    def __init__(self, prepared: PreparedWrite, exactly_once: ExactlyOnce) -> None:
        self._numbers = prepared.numbers_of_a_query
        # If the writer is known before the tasks run, a query that must not use this sink is refused without effect on
        # the query that does.
        query = query_of(prepared.checkpoint_location)
        writer = query and f"query {query}"
        self._write = TransactionalWrite(prepared, exactly_once, writer, of_query=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Called once per task attempt on an executor.

        :raises KafkaError: if Spark does not provide the ids of the query and the batch.
        """
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if query is None or batch is None:
            raise KafkaError(
                "this task does not belong to a micro-batch (it has no sql.streaming.queryId or "
                "streaming.sql.batchId), so it cannot be written exactly once; use a trigger of micro-batches"
            )
        return self._write.write(iterator, int(batch), f"query {query}", self._numbers)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Decide the batch and commit it; Spark regards the batch as complete only when this returns.

        :raises ExactlyOnceError: if the batch was not committed, or only partly; the text says which.
        """
        refuse_epoch(messages, batchId)
        self._write.commit(messages, batchId, self._numbers)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """See :meth:`TransactionalWrite.abort`."""
        self._write.abort(messages, batchId)
