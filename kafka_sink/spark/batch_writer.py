"""The batch writer: ``df.write.format("kafkalite")``.

Made on the driver in Spark's planner process, pickled to the tasks (so it holds plain values only), and rebuilt for
``commit`` and ``abort``: only commit messages carry state. ``abort`` never raises, because that would hide the error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kafka_sink.common.errors import KafkaError
from kafka_sink.spark.commit_message import TaskCommit, merge_ranges
from kafka_sink.spark.options import SinkOptions
from kafka_sink.spark.row_schema import RowSchema

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)


class KafkaliteBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame; the write as a whole succeeds only when every row of every task was acknowledged."""

    def __init__(self, options: SinkOptions, schema: RowSchema) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Called once per task attempt on an executor."""
        # Only tasks need pyarrow, numpy and the producer: the planner's processes start without them.
        from kafka_sink.spark.task_writer import write_task

        return write_task(iterator, self._options, self._schema)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Check that rows in = rows acknowledged, and report.

        :raises KafkaError: a task's message is missing or does not add up.
        """
        commits = [message for message in messages if isinstance(message, TaskCommit)]
        if len(commits) != len(messages):
            raise KafkaError(
                f"{len(messages) - len(commits)} of {len(messages)} tasks reported nothing, so it is not known whether "
                "their rows were written; write again (rows may then be there twice)"
            )
        short = [commit for commit in commits if commit.rows_acked != commit.rows_in]
        if short:
            raise KafkaError(
                "; ".join(
                    f"partition {commit.task_partition}: {commit.rows_acked} of {commit.rows_in} rows acknowledged"
                    for commit in short
                )
            )
        report = json.dumps(_report(commits))
        _log.info("write committed: %s", report)
        if self._options.report_path is not None:
            self._append_report(self._options.report_path, report)

    def _append_report(self, path: str, report: str) -> None:
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(report + "\n")
        except OSError as error:
            # All rows are written: failing now would only make somebody write them again.
            _log.warning("option reportPath: %s cannot be written (%s); the report is: %s", path, error, report)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what stays in the topics of a write that failed."""
        commits = [message for message in messages if isinstance(message, TaskCommit)]
        _log.warning(
            "the write failed: %d of %d tasks had finished and their %d rows stay in the topics, and so do rows of the "
            "other tasks that were acknowledged before; written again, all of these will be there twice",
            len(commits),
            len(messages),
            sum(commit.rows_acked for commit in commits),
        )


def _report(commits: Sequence[TaskCommit]) -> dict[str, Any]:
    return {
        "rows": sum(commit.rows_acked for commit in commits),
        "bytes": sum(commit.record_bytes for commit in commits),
        "wire_bytes": sum(commit.wire_bytes for commit in commits),
        "batches": sum(commit.batches for commit in commits),
        "tasks": len(commits),
        "elapsed_ms": max((commit.elapsed_ms for commit in commits), default=0),
        "partitions": {
            str(topic_partition): {"rows": part.rows, "first": part.first_offset, "last": part.last_offset}
            for topic_partition, part in merge_ranges(commits).items()
        },
    }
