"""Writes driven by the user's own process: :func:`write`, and :func:`foreach_batch` for ``foreachBatch``.

Used on the driver, in the caller's thread; also works in the process of a Spark Connect client. Unlike the data source,
it can move rows between tasks, retry, and return a report.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import CancelledWriteError, ConfigError, KafkaError, SinkWriteError
from kafka_sink.common.log_context import Said, once
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import NO_OFFSETS, BatchNumbering, Plan, PlannedOffsets, RowRange
from kafka_sink.exactly_once.protocols import AtomicSink
from kafka_sink.exactly_once.transactions import FENCED
from kafka_sink.reports.writes import WriteReport
from kafka_sink.spark.driver import lineage
from kafka_sink.spark.driver.atomic_jobs import require_kept_blocks, shuffle_tasks, speculates, until_first_failure
from kafka_sink.spark.driver.before_write import VALID_IN_STREAM_MS, of_rows, prepared
from kafka_sink.spark.driver.job_failures import as_spark_reads, is_cancelled, of_attempt, reported, summary_of
from kafka_sink.spark.driver.jobs import Interrupts, run_stoppable, too_late
from kafka_sink.spark.driver.progress_line import progress_line
from kafka_sink.spark.driver.write_report import (
    APPLICATION,
    WriteSummary,
    check_bad_rows,
    check_messages,
    driver_of,
    note_call,
    publish,
    sink_of,
    transactions_to_commit,
)
from kafka_sink.spark.errors import cause_of, short, told
from kafka_sink.spark.format_lookup import name_interpreter
from kafka_sink.spark.internals import array_of_one, classic_context, micro_batch_of, remove_checkpoint, running_query
from kafka_sink.spark.options import OptionValue, SinkOptions, parse_arguments
from kafka_sink.spark.streaming.checkpoint import OffsetsReading, offsets_of, run_of
from kafka_sink.spark.task.task_outcome import TaskOutcome, outcome_of
from kafka_sink.spark.task.worker_process import worker_process
from kafka_sink.spark.versions import require_local_checkpoint
from kafka_sink.spark.write_spec import FAIL, IN_ORDER, KIND, ExactlyOnce, WriteSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)

#: The maximum number of attempts of an atomic write.
_ATTEMPTS: Final = 4

_OUTCOME_SCHEMA: Final = "outcome string"

T = TypeVar("T")


@short
def write(
    df: DataFrame,
    options: Mapping[str, OptionValue],
    *,
    topic: str | None = None,
    app_id: str | None = None,
    version: int | None = None,
    atomic: bool = True,
    progress: bool = True,
) -> WriteReport:
    """Write *df* to Kafka now, and return a report.

    :param options: the options of ``format("kafkalite")``, for example ``{"kafka.bootstrap.servers": …}``: texts,
        numbers, True and False, as ``df.write.options`` takes them. An option that is None is not set.
    :param topic: the option of this name.
    :param app_id: with *version*: write this version once; nothing is written if it or a later one is committed. Write
        versions one after another, and a failed one again before the next. Without it the write is at least once.
    :param atomic: Spark shuffles the rows so that one transaction can contain the whole batch. If False, each task has
        its own transaction, without a shuffle. No effect without *app_id*.
    :param progress: show rows, rows per second and tasks during the write, instead of Spark's own progress bar. Nothing
        is shown without a terminal or notebook, with Spark Connect, or with ``spark.ui.showConsoleProgress=false``.
    :raises ConfigError: if an option is invalid, a column is missing or has the wrong type, or Spark or an option
        excludes an atomic write.
    :raises SinkWriteError: if a task could not write its rows; its class and attributes name the cause. With *app_id*
        nothing was committed.
    :raises CancelledWriteError: if another program cancelled the Spark job, or stopped Spark.
    :raises ApiError, RegistryError: if the brokers, the topic or the schema registry are unavailable.
    :raises KafkaTimeoutError: if a response is missing; with *app_id* the version may be committed.
    :raises ExactlyOnceError: if the batch was not committed, or (not atomic) only a part of it; the text says which.
    """
    # None with Spark Connect.
    context = classic_context(df.sparkSession)
    if context is not None:
        name_interpreter(df.sparkSession)
    with Interrupts(lambda: _NOT_BEGUN) as interrupts, progress_line(df, is_wanted=progress) as counted:
        parsed = parse_arguments(options, {"topic": topic, "txnAppId": app_id, "txnVersion": version})
        spec = prepared(df.schema, parsed, asks_brokers=_reaches_brokers(df, parsed))
        if counted is None and context is not None:
            counted = context.accumulator(0)
        numbers = BatchNumbering.OF_AN_APPLICATION
        begun = _DataFrameWrite(df, spec, APPLICATION, numbers, counted=counted, interrupts=interrupts)
        return begun.report(atomic=atomic)


_NOT_BEGUN: Final = "the write was stopped: it had not begun, and no row is in Kafka"


@short
def foreach_batch(
    options: Mapping[str, OptionValue],
    *,
    app_id: str,
    topic: str | None = None,
    atomic: bool = True,
    checkpoint_location: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """The function for ``writeStream.foreachBatch``: writes every micro-batch once, under *app_id* and Spark's batch
    number.

    *app_id* belongs to one query and its checkpoint. Another query, whose numbers start again, is refused. See
    :func:`write` for the other arguments.

    :param checkpoint_location: the query's checkpoint location; only needed with Spark Connect, which does not expose
        it. It allows the sink to refuse a checkpoint that is one batch older than the last commit.
    :raises ConfigError: if an option is invalid; raised before the query begins.
    """
    warned = Said()
    with once(warned):
        parsed = parse_arguments(options, {"topic": topic, "txnAppId": app_id, "txnVersion": 0})

    def write_batch(df: DataFrame, batch_id: int) -> None:
        with once(warned):
            numbered = parsed.numbered(batch_id)
            # None with Spark Connect, and in a thread that the program has started.
            query, _ = micro_batch_of(classic_context(df.sparkSession))
            running = running_query(df.sparkSession, query)
            writer, run = APPLICATION, ""
            if query is None and running is None:
                offsets = OffsetsReading(checkpoint_location, batch_id).result()
            else:
                writer, run = f"query {query or running.id()}", run_of(running) or ""
                offsets = offsets_of(df.sparkSession, running, batch_id)
            try:
                asks_brokers = _reaches_brokers(df, numbered)
                spec = prepared(df.schema, numbered, asks_brokers=asks_brokers, settings_valid_ms=VALID_IN_STREAM_MS)
                numbers = spec.numbers_of_a_query
                begun = _DataFrameWrite(df, spec, writer, numbers, offsets, is_of_query=True, run=run)
                begun.report(atomic=atomic)
            except KafkaError as error:
                # Spark shows the trace twice, among Java's stack traces; the text is enough.
                _log.debug("micro-batch %d failed", batch_id, exc_info=True)
                raise told(error.with_traceback(None)) from None
            except Exception as error:
                read = as_spark_reads(error)
                if read is error:
                    raise
                raise read from None

    return write_batch


def _reaches_brokers(df: DataFrame, options: SinkOptions) -> bool:
    """False for the process of a Spark Connect client that writes at least once, which need not reach the brokers."""
    return options.spec.exactly_once is not None or classic_context(df.sparkSession) is not None


@dataclass
class WriteCourse:
    """A write to *topic* (None: rows name theirs) of *version* (None: at least once), which an application numbers
    unless *is_of_query*. Tasks that have ended have added their rows to *counted*. *is_deciding*: from now on the
    batch may be committed."""

    topic: str | None
    version: int | None
    counted: Accumulator[int] | None
    is_of_query: bool
    is_deciding: bool = False

    def what_stays(self) -> str:
        """The rows that stay in the topic if the write ends now, and the remedy, as text."""
        if self.version is None:
            ended = "" if self.counted is None else f"{self.counted.value:,} rows of tasks that had ended and "
            topics = "their topics" if self.topic is None else f"topic {self.topic}"
            return (
                f"{ended}the rows of other tasks that were acknowledged before stay in {topics}, and a repeated write "
                "writes them again"
            )
        if not self.is_deciding:
            again = "write it again" if self.is_of_query else IN_ORDER
            return f"no row of version {self.version} became visible; {again}"
        again = "write it again, which writes it once" if self.is_of_query else IN_ORDER
        return f"version {self.version} was about to be committed and is in Kafka as a whole or not at all; {again}"

    def stopped(self) -> str:
        """The error text for an interrupt now."""
        return f"the write was stopped: {self.what_stays()}"

    def ended_by(self, error: BaseException) -> BaseException:
        """*error* with a note about these rows, or the error to raise in its place if the Spark job was cancelled."""
        if isinstance(error, Exception) and is_cancelled(error):
            return CancelledWriteError(f"the write was cancelled ({summary_of(error)}): {self.what_stays()}")
        if isinstance(error, KafkaError):
            if self.version is not None and not self.is_of_query:
                error.add_note(f"kafkalite: if version {self.version} is not committed, {IN_ORDER}")
            return error
        if error.args or isinstance(error, Exception):
            error.add_note(f"kafkalite: {self.what_stays()}")
        else:
            error.args = (self.stopped(),)
        return error


@dataclass(frozen=True)
class _DataFrameWrite:
    """A write of *df* by *writer*, whose versions have the numbering *numbers*, with the *offsets* planned for this
    one; tasks add their rows to *counted*. *is_of_query*: a query writes it, in this *run* (None: not known), and its
    stop ends the jobs of this thread; *interrupts* end other writes."""

    df: DataFrame
    spec: WriteSpec
    writer: str
    numbers: BatchNumbering
    offsets: PlannedOffsets = NO_OFFSETS
    counted: Accumulator[int] | None = None
    is_of_query: bool = False
    run: str | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)

    def report(self, *, atomic: bool) -> WriteReport:
        """Write the rows, and report it."""
        spec, once = self.spec, self.spec.exactly_once
        started_ms = SYSTEM_CLOCK.monotonic_ms()
        version = None if once is None else once.version
        summary = WriteSummary() if once is None else WriteSummary(sink=once.name, number=version)
        course = WriteCourse(spec.topic, version, self.counted, self.is_of_query)
        self.interrupts.meaning = course.stopped
        try:
            if once is None or version is None:
                summary = self._at_least_once(summary)
            else:
                summary = (self._atomically if atomic else self._in_parallel)(summary, once, version, course)
                if self.run is not None:
                    is_written = summary.decision == "written"
                    note_call(self.df, spec, once, self.run, version, is_written=is_written)
        except BaseException as error:
            failure = course.ended_by(self.interrupts.behind(error))
            publish(replace(summary, outcomes=(), decision="failed", error=reported(failure)), spec)
            if failure is error or self.is_of_query:
                # Spark distinguishes the stop of a query from a failure by the exception.
                raise
            raise failure from None
        self.interrupts.meaning = too_late
        elapsed_ms = SYSTEM_CLOCK.monotonic_ms() - started_ms
        inputs: list[str] = []
        if lineage.is_configured():
            # Not available for every plan.
            with suppress(Exception):
                inputs = self.df.inputFiles()
        publish(summary, spec, inputs)
        return summary.as_report(elapsed_ms)

    def _at_least_once(self, summary: WriteSummary) -> WriteSummary:
        spec = self.spec

        def task(batches: Iterator[pa.RecordBatch]) -> TaskOutcome:
            from kafka_sink.spark.task.task_writer import write_task

            return write_task(batches, spec)

        outcomes = self._outcomes(self.df, task)
        check_bad_rows(outcomes, spec)
        return replace(summary, outcomes=outcomes, attempts=1, commit_ms=0)

    def _in_parallel(self, summary: WriteSummary, once: ExactlyOnce, version: int, course: WriteCourse) -> WriteSummary:
        spec, writer, sink = self.spec, self.writer, sink_of(self.spec, once)
        summary = replace(summary, attempts=0, commit_ms=0)
        with sink.turn():
            plan = replace(sink.plan(writer, version), offsets=self.offsets)
            if not plan.must_write(version, writer, self.numbers):
                return summary.skipped(plan.skipped(version))

            def task(batches: Iterator[pa.RecordBatch]) -> TaskOutcome:
                from kafka_sink.spark.task.transactional_task import write_in_transaction

                return write_in_transaction(batches, spec, plan, version, writer)

            try:
                outcomes = self._outcomes(self.df, task)
            except BaseException:
                sink.give_up(plan)
                raise
            written_ms = SYSTEM_CLOCK.monotonic_ms()
            course.is_deciding = True
            written = transactions_to_commit(sink, plan, outcomes, spec)
            current = sink.commit(plan, version, writer, written, numbers=self.numbers, records_empty=True)
            commit_ms = SYSTEM_CLOCK.monotonic_ms() - written_ms
            if current is not None:
                return replace(summary, commit_ms=commit_ms).skipped(current.skipped(version))
            sink.look_ahead()
            return replace(summary, outcomes=outcomes, attempts=1, commit_ms=commit_ms)

    def _atomically(self, summary: WriteSummary, once: ExactlyOnce, version: int, course: WriteCourse) -> WriteSummary:
        if once.two_phase:
            raise ConfigError.of(
                "kafka.transaction.two.phase.commit.enable",
                "=true is for a transaction for each task: with atomic=True the batch is one transaction, which needs "
                "no second phase; remove the option, or set atomic=False",
            )
        spec, writer = self.spec, self.writer
        # Imported only here: other writes start faster without it.
        from kafka_sink.producer.plugins.partitioner import FORMER_DEFAULT

        if (partitioner := spec.producer.here().partitioner_class) not in (None, FORMER_DEFAULT):
            raise ConfigError.of(
                "kafka.partitioner.class",
                f"={partitioner} chooses when a row is sent, but with atomic=True Spark groups the rows by partition "
                "before: set the column partition, or atomic=False",
            )
        require_local_checkpoint(self.df)
        require_kept_blocks(self.df.sparkSession)
        with_copies = speculates(self.df.sparkSession)
        sink, of_writing = AtomicSink(driver_of(spec, once)), spec.placed()
        placed: list[DataFrame] = []
        last: list[TaskOutcome] = []
        written_ms: int | None = None

        def write_rows(plan: Plan) -> list[dict[TopicPartition, RowRange]]:
            nonlocal last, written_ms

            def task(batches: Iterator[pa.RecordBatch]) -> TaskOutcome:
                from kafka_sink.spark.task.transactional_task import write_in_drivers_transaction

                try:
                    return write_in_drivers_transaction(batches, of_writing, plan, with_copies=with_copies)
                except SinkWriteError as error:
                    # If it were raised, Spark would retry the task and report only the last attempt.
                    return TaskOutcome(failure=error)

            try:
                placed.append(self._by_partition())
                last = self._outcomes(placed[-1], task, with_copies=with_copies)
            except Exception as error:
                raise of_attempt(error) from error
            written_ms = SYSTEM_CLOCK.monotonic_ms()
            check_bad_rows(last, spec)
            course.is_deciding = True
            return [
                {part: RowRange(rows.first_offset, rows.last_offset + 1) for part, rows in outcome.ranges.items()}
                for outcome in last
            ]

        try:
            outcome = sink.write(version, writer, self.numbers, write_rows, attempts=_ATTEMPTS, offsets=self.offsets)
            commit_ms = 0 if written_ms is None else SYSTEM_CLOCK.monotonic_ms() - written_ms
        finally:
            # Only after the commit, which the round trips to the JVM would delay.
            for rows in placed:
                remove_checkpoint(rows)
        summary = replace(summary, attempts=outcome.attempts, commit_ms=commit_ms)
        return replace(summary, outcomes=last) if outcome.skipped is None else summary.skipped(outcome.skipped)

    def _by_partition(self) -> DataFrame:
        """The rows as payloads with the partition of each; the rows of one partition are in one task. They are
        checkpointed, because a stage that Spark runs again would write to the same transaction a second time, and
        brokers treat such records as duplicates."""
        from pyspark.sql.types import BinaryType, ByteType, IntegerType, StructField, StructType

        df, spec = self.df, self.spec
        # All columns are nullable: a row that is dropped only has nulls.
        payloads = {form.column for form in spec.formats}
        fields = [
            StructField(item.name, BinaryType() if item.name in payloads else of_rows(item.dataType))
            for item in df.schema.fields
            if item.name != "partition"
        ]

        # The limits of timestamps depend on it: if Spark runs a stage again, the result for each row is the same.
        now_ms = SYSTEM_CLOCK.wall_ms()
        fields.append(StructField("partition", IntegerType()))
        if spec.on_bad_row != FAIL:
            fields.append(StructField(KIND, ByteType()))

        def with_partitions_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with worker_process.of(spec):
                from kafka_sink.spark.task.placing import with_partitions

                yield from with_partitions(batches, spec, now_ms)

        placed = df.mapInArrow(with_partitions_of, StructType(fields))
        topic = spec.topic
        keys = ["partition"] if topic is not None else ["topic", "partition"]
        tasks = shuffle_tasks(df, topic, spec.producer)
        grouped = placed.repartition(*keys) if tasks is None else placed.repartition(tasks, *keys)
        return self._run_jobs(lambda: grouped.localCheckpoint(eager=True))

    def _outcomes(
        self, rows: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], TaskOutcome], *, with_copies: bool = False
    ) -> list[TaskOutcome]:
        """Run *task* on every partition of *rows*, and count the rows of each. *with_copies*: speculative copies of the
        tasks wait for them, and the first failure ends all.

        :raises SinkWriteError: if a task has failed; of several failures, a permanent one takes precedence.
        :raises KafkaError: if a task's outcome is missing or its row counts differ.
        """
        counted, spec = self.counted, self.spec

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow

            with worker_process.of(spec):
                outcome = task(batches)
            if counted is not None:
                counted.add(outcome.rows_acked)
            yield pyarrow.record_batch([array_of_one(pyarrow.string(), outcome.to_json().encode())], names=["outcome"])

        collect = rows.mapInArrow(run, _OUTCOME_SCHEMA).collect
        if with_copies:
            collect = partial(until_first_failure, self.df.sparkSession.sparkContext, collect)
        outcomes = [outcome_of(row.outcome) for row in self._run_jobs(collect)]
        failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
        if failures:
            # A permanent failure, or else a fence, is the likeliest cause of the others.
            raise max(failures, key=lambda failure: (failure.is_permanent, failure.code in FENCED))
        return check_messages(outcomes)

    def _run_jobs(self, action: Callable[[], T]) -> T:
        """The result of *action*, which runs Spark jobs for the rows. If this raises, the jobs have ended.

        :raises SinkWriteError: if a task could not write its rows; without the stack traces of Python and Java.
        """
        try:
            return action() if self.is_of_query else run_stoppable(self.df.sparkSession, action, self.interrupts)
        except Exception as error:
            cause = cause_of(error)
            if cause is None or cause is error:
                raise
            raise cause from None
