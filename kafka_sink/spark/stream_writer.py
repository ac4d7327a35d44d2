"""The stream writers for ``df.writeStream.format("kafkalite")``: at least once or exactly once.

Spark creates a writer for every micro-batch in its planner process and pickles it to the tasks. For ``commit`` and
``abort`` it creates another one in another process, which only receives the commit messages. Only tasks have access to
the ids of the query and the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext

from kafka_sink.common.errors import KafkaError
from kafka_sink.spark.driver.transactional_write import TransactionalWrite
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
from kafka_sink.spark.versions import DataSourceStreamArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa


class KafkaliteStreamWriter(OfOneVersion, DataSourceStreamArrowWriter):
    """At least once: a micro-batch that Spark runs again is written again."""

    def __init__(self, prepared: PreparedWrite) -> None:
        self._prepared = prepared

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Called once per task attempt on an executor."""
        with worker_process.task(tuned=self._prepared.task.tune_python_workers):
            from kafka_sink.spark.task.task_writer import write_task

            return write_task(iterator, self._prepared.task)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Check that all rows were acknowledged, and publish the report.

        :raises KafkaError: if a task's message is missing, its row counts differ, or too many rows are bad.
        """
        refuse_epoch(messages, batchId)
        task = self._prepared.task
        with worker_process.task(tuned=task.tune_python_workers):
            publish(report_of(checked_messages(messages, task.rows), batch=batchId), self._prepared.reporting)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log which rows of a failed micro-batch stay in the topics."""
        warn_of_leftovers(messages)
        publish_failure(messages, self._prepared.reporting, batch=batchId)


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
