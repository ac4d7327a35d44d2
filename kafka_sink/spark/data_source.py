"""The data source with the name ``kafkalite``, and its writers for ``df.write`` and ``df.writeStream``: at least once,
and exactly once by version or micro-batch.

Spark creates the data source in processes on the driver's machine, never in the user's own Python process. It validates
options and columns, reads the limits of its topics, and creates a missing topic for option topicPartitions.

Spark creates one writer per write, and one per micro-batch, in its planner process, and pickles it to the tasks, so it
only contains plain values. It is unpickled again for ``commit`` and ``abort``; for a stream another one is created for
them, in another process, which only receives the commit messages. ``abort`` never raises, because that would hide the
original error, and ends no transaction, because Spark also calls it after a failed commit, when the batch may already
be decided: the next plan aborts undecided transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark import TaskContext
from pyspark.sql.types import StructType

from kafka_sink.common.bounded import Latest
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ConfigError, KafkaError
from kafka_sink.common.log_context import Said, once
from kafka_sink.exactly_once.model import BatchNumbering, ExactlyOnceError, FencedError, UndecidedError
from kafka_sink.spark.driver.before_write import VALID_IN_STREAM_MS, prepared
from kafka_sink.spark.driver.job_failures import reported
from kafka_sink.spark.driver.write_report import (
    APPLICATION,
    WriteSummary,
    check_bad_rows,
    check_messages,
    outcomes_of,
    publish,
    sink_of,
    transactions_to_commit,
    warn_of_leftovers,
)
from kafka_sink.spark.errors import in_text
from kafka_sink.spark.internals import micro_batch_of
from kafka_sink.spark.options import FORMAT, ONLY_WRITES, SinkOptions, parse_options
from kafka_sink.spark.streaming.checkpoint import OffsetsReading, query_of
from kafka_sink.spark.streaming.stopping import refuse_epoch
from kafka_sink.spark.task.worker_process import configure_logging, worker_process
from kafka_sink.spark.versions import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    OfOneVersion,
    WriterCommitMessage,
)
from kafka_sink.spark.write_spec import IN_ORDER, ExactlyOnce, WriteSpec, digest_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.exactly_once.model import Plan

#: The commit messages of the tasks; None for a task that reported nothing.
Messages: TypeAlias = Sequence[WriterCommitMessage | None]


class _Stream:
    """A stream whose micro-batches this process plans or commits: the warnings about its options, and their values."""

    def __init__(self) -> None:
        self.said = Said()
        self._parsed: SinkOptions | None = None
        self._files = b""

    def options(self, texts: Mapping[str, str]) -> SinkOptions:
        """*texts*, its options, parsed; again once a file that they name has changed.

        :raises ConfigError: if an option is invalid.
        """
        parsed = self._parsed
        # The digest does not cover files that options of the registry name.
        if parsed is None or parsed.registry_properties or parsed.spec.producer.digest_with_files() != self._files:
            self._parsed = parsed = parse_options(texts, is_stream=True)
            self._files = parsed.spec.producer.digest_with_files()
        return parsed


#: The streams, by the digest of their options.
_streams: Final[Latest[bytes, _Stream]] = Latest(50)


class KafkaliteDataSource(DataSource):
    """The sink of ``df.write`` and ``df.writeStream``: writes value, key, topic, partition, headers and timestamp to
    Kafka."""

    #: Whether Spark has passed this object on to the process that commits micro-batches, which another one has planned.
    _is_passed_on = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _is_passed_on=True)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @in_text
    def schema(self) -> StructType:
        """Called by Spark for a read, which is not supported.

        :raises ConfigError: always.
        """
        raise ConfigError(ONLY_WRITES)

    @in_text
    def writer(self, schema: StructType, overwrite: bool) -> KafkaliteBatchWriter | KafkaliteNumberedBatchWriter:
        """Check options and columns before any task starts, and begin a numbered write.

        :raises ConfigError: if the mode is overwrite, an option is invalid, or a column is missing or of another type.
        :raises KafkaError: if brokers or topic are unavailable (ApiError), or an exactly-once write cannot begin.
        """
        if overwrite:
            raise ConfigError(
                'mode("overwrite") is not supported: a topic is a log and cannot be replaced; use mode("append"), '
                "or delete the topic first"
            )
        configure_logging()
        options = parse_options(self.options)
        with worker_process.task(tuned=options.spec.tune_python_workers):
            write = prepared(schema, options, asks_brokers=True)
            numbered = write.exactly_once
            if numbered is None or numbered.version is None:
                return KafkaliteBatchWriter(write)
            writer = KafkaliteNumberedBatchWriter(write, numbered)
        writer.plan()
        return writer

    @in_text
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> KafkaliteStreamWriter | KafkaliteExactlyOnceStreamWriter:
        """Check options and columns. *overwrite*: Spark's complete mode writes the complete result in every batch.

        :raises ConfigError: if an option is unknown or invalid, or a column is missing or has the wrong type.
        :raises KafkaError: as :meth:`writer` does.
        """
        configure_logging()
        key = digest_of(self.options)
        stream = _streams.get(key) or _streams.put(key, _Stream())
        # The process that commits needs neither warnings nor the limits of topics, as no task begins there.
        with once(Said(all_of_it=True) if self._is_passed_on else stream.said):
            options = stream.options(self.options)
            with worker_process.task(tuned=options.spec.tune_python_workers):
                write = prepared(
                    schema, options, asks_brokers=not self._is_passed_on, settings_valid_ms=VALID_IN_STREAM_MS
                )
                if write.exactly_once is None:
                    return KafkaliteStreamWriter(write)
                writer = KafkaliteExactlyOnceStreamWriter(write, write.exactly_once)
        if not self._is_passed_on:
            writer.plan()
        return writer


_log = logging.getLogger(__name__)


class _AtLeastOnce(OfOneVersion):
    """A write of a DataFrame, or of a micro-batch, which has a number."""

    def __init__(self, spec: WriteSpec) -> None:
        self._spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Called once per task attempt on an executor."""
        with worker_process.of(self._spec):
            # Only tasks need pyarrow, numpy and the producer; the planner's processes start without them.
            from kafka_sink.spark.task.task_writer import write_task

            return write_task(iterator, self._spec)

    @in_text
    def commit(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803
        """Check that all rows were acknowledged, and publish the report.

        :raises KafkaError: if a task's message is missing, its row counts differ, too many rows are bad, or the trigger
            is continuous.
        """
        if batchId is not None:
            refuse_epoch(messages, batchId)
        with worker_process.of(self._spec):
            outcomes = check_messages(messages)
            check_bad_rows(outcomes, self._spec)
            publish(WriteSummary(outcomes=outcomes, number=batchId), self._spec)

    def abort(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803
        """Log which rows of a failed write or micro-batch stay in the topics."""
        warn_of_leftovers(messages)
        publish(WriteSummary(outcomes=outcomes_of(messages), decision="failed", number=batchId), self._spec)


class KafkaliteBatchWriter(_AtLeastOnce, DataSourceArrowWriter):
    """Writes a DataFrame. The write succeeds only if every row of every task was acknowledged."""


class KafkaliteStreamWriter(_AtLeastOnce, DataSourceStreamArrowWriter):
    """At least once: a micro-batch that Spark runs again is written again."""


class _ExactlyOnce(OfOneVersion):
    """A batch that is committed once, in a transaction for each task: a data source cannot group rows by Kafka
    partition.

    *writer* is the sink's writer if it is known before the tasks run. *of_query*: a query numbers the batch, and
    records the planned offsets in its checkpoint.
    """

    def __init__(self, spec: WriteSpec, exactly_once: ExactlyOnce, writer: str | None, *, of_query: bool) -> None:
        self._spec = spec
        self._exactly_once = exactly_once
        self._writer = writer
        self._of_query = of_query
        self._numbers = spec.numbers_of_a_query if of_query else BatchNumbering.OF_AN_APPLICATION
        self._plan: Plan | None = None

    def plan(self) -> None:
        """Begin the batch; called in Spark's planner, once per batch and before any task.

        :raises KafkaError: if the batch cannot begin; nothing was written.
        """
        try:
            with worker_process.of(self._spec):
                sink = sink_of(self._spec, self._exactly_once)
                if self._of_query:
                    reading = OffsetsReading(self._spec.checkpoint_location)
                    self._plan = replace(sink.plan(self._writer), offsets=reading.result())
                else:
                    self._plan = sink.plan(self._writer, self._exactly_once.version)
        except KafkaError as error:
            again = "" if self._of_query else f"; {IN_ORDER}"
            error.args = (f"{error} [nothing was written{again}]",)
            failed = WriteSummary(decision="failed", sink=self._exactly_once.name, number=self._exactly_once.version)
            publish(replace(failed, error=reported(error)), self._spec)
            raise

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Called once per task attempt on an executor. Writes the rows in a transaction of this attempt; nothing if the
        version is already committed.

        :raises KafkaError: if Spark does not provide the ids of the query and the batch.
        :raises ProgressError: if the sink's progress is missing or belongs to another writer; nothing was written.
        :raises SinkWriteError: if a row was not acknowledged; this attempt's transaction is aborted.
        """
        version, writer = self._exactly_once.version, self._writer
        if self._of_query:
            query, batch = micro_batch_of(TaskContext.get())
            if query is None or batch is None:
                raise KafkaError(
                    "this task does not belong to a micro-batch (it has no sql.streaming.queryId or "
                    "streaming.sql.batchId), so it cannot be written exactly once; use a trigger of micro-batches"
                )
            version, writer = int(batch), f"query {query}"
        if self._plan is None or version is None or writer is None:
            raise RuntimeError("the write has no plan: its writer was not created by Spark's planner")
        with worker_process.of(self._spec):
            from kafka_sink.spark.task.transactional_task import drain, write_in_transaction

            if not self._plan.must_write(version, writer, self._numbers):
                return drain(iterator, writer, self._plan.skipped(version))
            return write_in_transaction(iterator, self._spec, self._plan, version, writer)

    @in_text
    def commit(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803
        """Decide the batch and commit every transaction of *messages*; Spark regards a micro-batch as complete only
        when this returns.

        :raises ExactlyOnceError: if the batch was not committed, or only a part of it; the text says which.
        :raises TooManyBadRowsError: if more rows are bad than maxBadRows allows; nothing was committed.
        :raises KafkaError: if a message or response is missing, row counts differ, or the trigger is continuous.
        """
        version = self._exactly_once.version if batchId is None else batchId
        assert version is not None
        if batchId is not None:
            refuse_epoch(messages, batchId)
        with worker_process.of(self._spec):
            started_ms = SYSTEM_CLOCK.monotonic_ms()
            outcomes = check_messages(messages)
            summary = WriteSummary(outcomes=outcomes, sink=self._exactly_once.name, number=version)
            transactions = [task.transaction for task in outcomes if task.transaction is not None]
            plans = {transaction.plan for transaction in transactions}
            of_version = [transaction for transaction in transactions if transaction.version == version]
            if len(of_version) != len(messages) or len(plans) != 1:
                raise ExactlyOnceError(
                    f"the messages of the tasks do not all belong to version {version} and the same plan; nothing was "
                    "committed"
                )
            (plan,) = plans
            if plan is None:
                skipped = transactions[0].skipped
                assert skipped is not None
                publish(summary.skipped(skipped), self._spec)
                return
            sink, writer = sink_of(self._spec, self._exactly_once), transactions[0].writer
            written = transactions_to_commit(sink, plan, outcomes, self._spec)
            numbers, records_empty = self._numbers, not self._of_query
            try:
                current = sink.commit(plan, version, writer, written, numbers=numbers, records_empty=records_empty)
            except (FencedError, UndecidedError) as error:
                if self._of_query:
                    raise
                raise type(error)(f"{error} [if version {version} is not committed, {IN_ORDER}]") from error
            if current is not None:
                publish(replace(summary, outcomes=()).skipped(current.skipped(version)), self._spec)
                return
            commit_ms = SYSTEM_CLOCK.monotonic_ms() - started_ms
            publish(replace(summary, transactions=len(written), commit_ms=commit_ms), self._spec)

    def abort(self, messages: Messages, batchId: int | None = None) -> None:  # noqa: N803
        """Log the state of a batch that did not complete."""
        outcomes, name = outcomes_of(messages), self._exactly_once.name
        version = self._exactly_once.version if batchId is None else batchId
        _log.warning(
            "version %d of %s did not complete, because a task failed or it was stopped: %d of %d tasks had finished. "
            "Unless it had already been decided, none of it becomes visible; the next batch, or Spark's next "
            "attempt at this one, ends the open transactions%s",
            version,
            name,
            len(outcomes),
            len(messages),
            "" if self._of_query else f"; {IN_ORDER}",
        )
        publish(WriteSummary(outcomes=outcomes, decision="failed", sink=name, number=version), self._spec)


class KafkaliteNumberedBatchWriter(_ExactlyOnce, DataSourceArrowWriter):
    """Writes a DataFrame with txnAppId and txnVersion: completely or not at all, and each version once."""

    def __init__(self, spec: WriteSpec, exactly_once: ExactlyOnce) -> None:
        super().__init__(spec, exactly_once, APPLICATION, of_query=False)


class KafkaliteExactlyOnceStreamWriter(_ExactlyOnce, DataSourceStreamArrowWriter):
    """Exactly once: every micro-batch is in Kafka once and completely, for readers of committed records."""

    def __init__(self, spec: WriteSpec, exactly_once: ExactlyOnce) -> None:
        # If the writer is known before the tasks run, a query that must not use this sink is refused without effect on
        # the query that does.
        query = query_of(spec.checkpoint_location)
        super().__init__(spec, exactly_once, query and f"query {query}", of_query=True)
