"""An exactly-once write of Spark's data sources: the parallel protocol between planner, tasks and committer.

The planner creates the plan of the batch when Spark pickles the writer for the tasks, which happens once per batch,
before any task, and in no other process. ``write`` runs in tasks; ``commit`` and ``abort`` run in other processes on
the driver's machine, which only receive the tasks' messages. ``abort`` ends no transaction, because Spark also calls it
after a failed commit, when the batch may already be decided. The next plan aborts undecided transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import KafkaError
from kafka_sink.exactly_once.model import (
    IN_ORDER,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    UndecidedError,
)
from kafka_sink.spark.driver.write_report import (
    check_bad_rows,
    check_messages,
    publish,
    publish_failure,
    report_of,
    warn_of_skipped,
)
from kafka_sink.spark.errors import PlanError, TooManyBadRowsError
from kafka_sink.spark.prepared_write import ExactlyOnce, PreparedWrite, RowRules, TaskOptions
from kafka_sink.spark.streaming.checkpoint import OffsetsReading
from kafka_sink.spark.task.commit_message import TaskCommit, TransactionalCommit
from kafka_sink.spark.task.worker_process import worker_process
from kafka_sink.spark.versions import WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.exactly_once.model import OpenTransaction, Skipped
    from kafka_sink.exactly_once.parallel import ParallelSink
    from kafka_sink.exactly_once.plan import Plan

#: The writer of a sink that is named by txnAppId: any process that continues its numbers.
APPLICATION: Final = "an application"

_log = logging.getLogger(__name__)


class TransactionalWrite:
    """One batch that is committed once, with its *writer* if that is known before the tasks run. *of_query*: the batch
    is numbered by a query, which records the planned offsets in its checkpoint."""

    def __init__(
        self, prepared: PreparedWrite, exactly_once: ExactlyOnce, writer: str | None = None, *, of_query: bool = False
    ) -> None:
        self._task = prepared.task
        self._reporting = prepared.reporting
        self._checkpoint_location = prepared.checkpoint_location
        self._exactly_once = exactly_once
        self._name = exactly_once.name
        self._writer = writer
        self._of_query = of_query
        self._plan: Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the writer twice for the same tasks.
        if self._plan is None:
            try:
                with self._tuned_process():
                    self._plan = self._new_plan()
            except KafkaError as error:
                again = "" if self._of_query else f"; {IN_ORDER}"
                raise PlanError(f"{error} [nothing was written; {type(error).__name__}{again}]") from None
        return self.__dict__

    def _new_plan(self) -> Plan:
        sink = sink_of(self._task, self._exactly_once)
        if not self._of_query:
            return sink.plan(self._writer, self._exactly_once.version)
        reading = OffsetsReading(self._checkpoint_location)
        return replace(sink.plan(self._writer), offsets=reading.result())

    def write(
        self, batches: Iterator[pa.RecordBatch], version: int, writer: str, numbers: BatchNumbering
    ) -> WriterCommitMessage:
        """Write the rows in a transaction of this attempt; write nothing if *version* is already committed.

        :raises ProgressError: if the sink's progress is missing or belongs to another writer; nothing was written.
        :raises SinkWriteError: if a row was not acknowledged; this attempt's transaction is aborted.
        """
        if self._plan is None:
            raise RuntimeError("the write has no plan: its writer was not created by Spark's planner")
        with self._tuned_process():
            from kafka_sink.spark.task.transactional_task import drain, write_in_transaction

            if not self._plan.must_write(version, writer, numbers):
                return drain(batches, writer, self._plan.skipped(version))
            return write_in_transaction(batches, self._task, self._plan, version, writer)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        version: int,
        numbers: BatchNumbering,
        *,
        records_empty: bool = False,
    ) -> None:
        """Decide the batch and commit every transaction of *messages*.

        :raises ExactlyOnceError: if the batch was not committed, or only partly; the text says which.
        :raises TooManyBadRowsError: if more rows are bad than maxBadRows allows; nothing was committed.
        :raises KafkaError: if a task's message is missing or its row counts differ.
        """
        with self._tuned_process():
            self._commit(messages, version, numbers, records_empty=records_empty)

    def _commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        version: int,
        numbers: BatchNumbering,
        *,
        records_empty: bool,
    ) -> None:
        started_ms = SYSTEM_CLOCK.monotonic_ms()
        commits = [commit for commit in check_messages(messages) if isinstance(commit, TransactionalCommit)]
        plans = {commit.plan for commit in commits}
        if len(commits) != len(messages) or len(plans) != 1 or any(commit.version != version for commit in commits):
            raise ExactlyOnceError(
                f"the messages of the tasks do not all belong to version {version} and the same plan; nothing was "
                "committed"
            )
        (plan,) = plans
        if plan is None:
            self._skip(commits, commits[0].skipped)
            return
        sink = sink_of(self._task, self._exactly_once)
        written = transactions_to_commit(sink, plan, commits, self._task.rows)
        writer = commits[0].writer
        try:
            current = sink.commit(plan, version, writer, written, numbers=numbers, records_empty=records_empty)
        except (FencedError, UndecidedError) as error:
            if self._of_query:
                raise
            raise type(error)(f"{error} [if version {version} is not committed, {IN_ORDER}]") from error
        if current is not None:
            self._skip((), current.skipped(version))
            return
        commit_ms = SYSTEM_CLOCK.monotonic_ms() - started_ms
        report = report_of(
            commits,
            decision="written",
            sink=self._name,
            version=version,
            transactions=len(written),
            commit_ms=commit_ms,
        )
        publish(report, self._reporting)

    def _skip(self, commits: Sequence[TaskCommit], skipped: Skipped | None) -> None:
        assert skipped is not None
        warn_of_skipped(self._name, skipped)
        report = report_of(commits, decision=skipped.decision, sink=self._name, version=skipped.version)
        publish(report, self._reporting)

    def _tuned_process(self) -> AbstractContextManager[None]:
        return worker_process.task(tuned=self._task.tune_python_workers)

    def abort(self, messages: Sequence[WriterCommitMessage | None], version: int) -> None:
        """Log the consequences of a batch that did not complete."""
        _log.warning(
            "version %d of %s did not complete, because a task failed or it was stopped: %d of %d tasks had finished. "
            "Unless it had already been decided, none of it becomes visible; the next batch, or Spark's next "
            "attempt at this one, ends the open transactions%s",
            version,
            self._name,
            sum(message is not None for message in messages),
            len(messages),
            "" if self._of_query else f"; {IN_ORDER}",
        )
        publish_failure(messages, self._reporting, sink=self._name, version=version)


def transactions_to_commit(
    sink: ParallelSink, plan: Plan, commits: Sequence[TaskCommit], rules: RowRules
) -> list[OpenTransaction]:
    """The transactions of the tasks with these *commits*.

    :raises TooManyBadRowsError: if more rows are bad than maxBadRows allows; the batch of *plan* was aborted.
    """
    written = [each.written for each in commits if isinstance(each, TransactionalCommit) and each.written is not None]
    try:
        check_bad_rows(commits, rules)
    except TooManyBadRowsError:
        sink.give_up(plan)
        raise
    return written


def sink_of(task: TaskOptions, exactly_once: ExactlyOnce) -> ParallelSink:
    """The sink that commits once as *exactly_once* says."""
    # The planner of other writes starts without importing the protocol and its dependencies.
    from kafka_sink.exactly_once.driver_steps import DriverSteps
    from kafka_sink.exactly_once.parallel import ParallelSink
    from kafka_sink.spark.task.shared_client import shared_client

    client = shared_client(task.producer_properties)
    return ParallelSink(
        DriverSteps(
            client,
            exactly_once.name,
            exactly_once.progress_topic,
            timeout_ms=exactly_once.timeout_ms,
            two_phase=exactly_once.two_phase,
            topics=task.rows.topics,
        )
    )
