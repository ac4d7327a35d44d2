"""The end of a write on the driver: it checks the tasks' messages, collects the transactions to commit, and creates,
logs and publishes the summary.

Used in the planner's and committer's processes, and in the user's. Publishing never fails a committed write.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from kafka_sink.common.bounded import Latest
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import without_none
from kafka_sink.common.errors import ConfigError, KafkaError, TooManyBadRowsError
from kafka_sink.exactly_once.model import NO_OFFSETS, Skipped
from kafka_sink.reports.writes import WriteReport
from kafka_sink.spark.driver.lineage import emit, is_configured
from kafka_sink.spark.task.task_outcome import TaskOutcome, total_of
from kafka_sink.spark.versions import WriterCommitMessage
from kafka_sink.spark.write_spec import ExactlyOnce, WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafka_sink.exactly_once.model import Plan
    from kafka_sink.exactly_once.protocols import ParallelSink
    from kafka_sink.exactly_once.sink_driver import SinkDriver
    from kafka_sink.exactly_once.transactions import OpenTransaction

_log = logging.getLogger(__name__)


def check_bad_rows(outcomes: Sequence[TaskOutcome], spec: WriteSpec) -> None:
    """Warn about the bad rows of all tasks.

    :raises TooManyBadRowsError: if they are more than the option maxBadRows allows.
    """
    bad_rows = sum(outcome.bad_rows for outcome in outcomes)
    if not bad_rows:
        return
    rows = sum(outcome.rows_in for outcome in outcomes)
    first = next(outcome.first_bad_row for outcome in outcomes if outcome.bad_rows)
    if spec.max_bad_rows is not None:
        spec.max_bad_rows.check(bad_rows, rows, first)
    remain = "were dropped" if spec.dead_letter_topic is None else f"are in topic {spec.dead_letter_topic}"
    _log.warning("%d of %d rows could not be written and %s; the first: %s", bad_rows, rows, remain, first)


def check_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    """The outcomes of the tasks.

    :raises KafkaError: if a task's message is missing or its row counts differ.
    """
    outcomes = outcomes_of(messages)
    if len(outcomes) != len(messages):
        raise KafkaError(
            f"{len(messages) - len(outcomes)} of {len(messages)} tasks reported nothing, so it is not known whether "
            "their rows were written; write again (rows may then be duplicated)"
        )
    short = [
        f"partition {task.task_partition}: {task.rows_acked} of {task.rows_in - task.bad_rows} rows acknowledged"
        for task in outcomes
        if task.rows_acked + task.bad_rows != task.rows_in
    ]
    if short:
        raise KafkaError("; ".join(short))
    return outcomes


def outcomes_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskOutcome]:
    """The outcomes of the tasks that had ended."""
    return [message for message in messages if isinstance(message, TaskOutcome)]


@dataclass(frozen=True, kw_only=True)
class WriteSummary:
    """A write as a whole: the *outcomes* of its tasks (of a failed write, those of the tasks that had ended), and the
    *decision*. Its JSON is a line of the file of option reportPath.

    *number* is that of the micro-batch, or the version if the exactly-once *sink* of this name has written it.
    *attempts* counts the attempts of the whole write. *commit_ms* is the time from the end of the last task to the
    commit. Values that are None are omitted.
    """

    outcomes: Sequence[TaskOutcome] = ()
    decision: Literal["written", "skipped", "older", "failed"] = "written"
    sink: str | None = None
    number: int | None = None
    attempts: int | None = None
    transactions: int | None = None
    commit_ms: int | None = None
    error: str | None = None

    @cached_property
    def total(self) -> TaskOutcome:
        """The outcome of all tasks."""
        return total_of(self.outcomes)

    def skipped(self, skipped: Skipped) -> WriteSummary:
        """The summary if nothing was written, because the version is *skipped*; this is logged."""
        _log.warning("version %d of %s %s", skipped.version, self.sink, _why(skipped))
        return replace(self, decision=skipped.decision)

    def to_json(self, timestamp_ms: int) -> str:
        """The JSON of a write that ended at *timestamp_ms*."""
        total = self.total
        optional = {
            "decision": self.decision,
            "sink": self.sink,
            "batch" if self.sink is None else "version": self.number,
            "attempts": self.attempts,
            "transactions": self.transactions,
            "commit_ms": self.commit_ms,
            "error": self.error,
        }
        return json.dumps(
            {
                **without_none(optional),
                "rows": total.rows_acked,
                "bad_rows": total.bad_rows,
                "bytes": total.record_bytes,
                "wire_bytes": total.wire_bytes,
                "batches": total.batches,
                "tasks": len(self.outcomes),
                "elapsed_ms": total.elapsed_ms,
                "ack_p50_ms": total.ack_percentile_ms(0.5),
                "ack_p99_ms": total.ack_percentile_ms(0.99),
                "partitions": {
                    str(partition): {"rows": part.rows, "first": part.first_offset, "last": part.last_offset}
                    for partition, part in total.ranges.items()
                },
                "timestamp_ms": timestamp_ms,
            }
        )

    def as_report(self, elapsed_ms: int) -> WriteReport:
        """The report for the program whose call took *elapsed_ms*."""
        total, decision = self.total, self.decision
        assert decision != "failed"
        return WriteReport(
            decision=decision,
            rows=total.rows_acked,
            record_bytes=total.record_bytes,
            wire_bytes=total.wire_bytes,
            tasks=len(self.outcomes),
            attempts=self.attempts or 0,
            elapsed_ms=elapsed_ms,
            commit_ms=self.commit_ms or 0,
            partitions=total.ranges,
            bad_rows=total.bad_rows,
        )


def publish(summary: WriteSummary, spec: WriteSpec, inputs: Sequence[str] = ()) -> None:
    """Log *summary* as one JSON line, append it to the file of the option reportPath, and send it as lineage, with the
    files *inputs* that were read, if that is configured; the outcomes are added up only if one of them is enabled."""
    if not (_log.isEnabledFor(logging.INFO) or spec.report_path is not None or is_configured()):
        return
    text = summary.to_json(SYSTEM_CLOCK.wall_ms())
    _log.info("write %s: %s", "not completed" if summary.decision == "failed" else "committed", text)
    if summary.decision in ("written", "failed"):
        failure = None if summary.decision == "written" else summary.error or "the write did not complete"
        emit(summary.total.ranges, spec, inputs, failure=failure)
    if (path := spec.report_path) is None:
        return
    try:
        # One write, because a progress_listener in another process appends lines of its own.
        with Path(path).open("ab", buffering=0) as file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        # All rows are written, and an error now would only cause them to be written again.
        _log.warning("option reportPath: cannot write %s (%s); the report is: %s", path, error, text)


def _why(skipped: Skipped) -> str:
    """The text of the log, which reveals a wrong version number."""
    if skipped.is_older:
        return (
            f"is older than version {skipped.last}, the last one that is committed: nothing was written. If version "
            f"{skipped.version} was never committed, its rows are not in Kafka: write them under a version that is "
            f"later than {skipped.last}. Versions are written one after another"
        )
    if skipped.doubt == NO_OFFSETS.unknown:
        # The ordinary repetition of an application's version.
        return "was already committed: nothing was written"
    if not skipped.doubt:
        return "was already committed, with the same rows: nothing was written"
    return (
        "was already committed: nothing was written. It is not known whether these are the same rows, because "
        f"{skipped.doubt}; if they are not (a checkpoint was restored from a copy, or a number is used twice), they "
        "are not in Kafka"
    )


def warn_of_leftovers(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Log which rows of an at-least-once write that did not complete stay in the topics. Spark reports neither the
    reason, nor the rows of the tasks that did not finish."""
    outcomes = outcomes_of(messages)
    rows, others = sum(outcome.rows_acked for outcome in outcomes), len(messages) - len(outcomes)
    stays = [f"the {rows:,} rows of {len(outcomes)} finished tasks"] if rows else []
    if others:
        stays.append(f"acknowledged rows of {others} unfinished tasks, if any (the errors of tasks count them)")
    _log.warning(
        "the write did not complete: a task failed, or it was stopped. These rows stay in the topics, and are "
        "duplicated if you repeat the write: %s",
        " and ".join(stays) or "none",
    )


#: The writer of a sink that is named by txnAppId: any process that continues its numbers.
APPLICATION: Final = "an application"


def transactions_to_commit(
    sink: ParallelSink, plan: Plan, outcomes: Sequence[TaskOutcome], spec: WriteSpec
) -> list[OpenTransaction]:
    """The transactions of the tasks with these *outcomes*.

    :raises TooManyBadRowsError: if more rows are bad than maxBadRows allows; the batch of *plan* was aborted.
    """
    try:
        check_bad_rows(outcomes, spec)
    except TooManyBadRowsError:
        sink.give_up(plan)
        raise
    transactions = [outcome.transaction for outcome in outcomes if outcome.transaction is not None]
    return [transaction.open for transaction in transactions if transaction.open is not None]


def driver_of(spec: WriteSpec, exactly_once: ExactlyOnce) -> SinkDriver:
    """The driver of the sink that *exactly_once* names."""
    # The planner of other writes starts without importing the protocol and its dependencies.
    from kafka_sink.exactly_once.sink_driver import SinkDriver
    from kafka_sink.spark.task.shared_client import shared_client

    return SinkDriver(
        shared_client(spec.producer),
        exactly_once.name,
        exactly_once.progress_topic,
        timeout_ms=spec.producer.transaction_timeout_ms,
        two_phase=exactly_once.two_phase,
        topics=spec.topics,
    )


def sink_of(spec: WriteSpec, exactly_once: ExactlyOnce) -> ParallelSink:
    """The sink that *exactly_once* names, with a transaction for each task."""
    from kafka_sink.exactly_once.protocols import ParallelSink

    return ParallelSink(driver_of(spec, exactly_once))


class _Call(NamedTuple):
    run: str
    version: int
    df: DataFrame
    spec: WriteSpec


#: Each holds a DataFrame, so those of the least recently used sinks are discarded.
_MOST: Final = 50
#: By cluster, name and progress topic.
_last: Final[Latest[tuple[tuple[str, ...], str, str], _Call]] = Latest(_MOST)


def note_call(
    df: DataFrame, spec: WriteSpec, sink: ExactlyOnce, run: str, version: int, *, is_written: bool = False
) -> None:
    """Note that *df* was written as *version* in this *run* of a query, or skipped because *version* was committed. The
    first call for *version* in this run is remembered.

    A skipped call counts as well: after the error and a restart of the query, both calls find the batch committed.

    :raises ConfigError: if a skipped call has other rows, or another topic, than the first call.
    """
    key = spec.producer.bootstrap_servers, sink.name, sink.progress_topic
    last = _last.get(key)
    if is_written or last is None or (last.run, last.version) != (run, version):
        _last.put(key, _Call(run, version, df, spec))
        return
    if (spec.topic, spec.formats) == (last.spec.topic, last.spec.formats) and df.sameSemantics(last.df):
        return
    missing = "" if version == 0 else ", with option allowMissingProgress=true in its first batch"
    raise ConfigError(
        f"app_id {sink.name!r} was used twice in batch {version}, for different rows or topics: the first call has "
        "committed the batch, and the rows of this one were not written. Give this call an app_id of its own"
        f"{missing}, and start the query again: it runs the batch again, skips what is committed and writes these rows",
        option="txnAppId",
    )
