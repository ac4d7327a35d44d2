"""The driver's side of the two protocols, which commit the rows of a batch together with its progress.

"Atomic" (:class:`AtomicSink`): all tasks write to the driver's own transaction, which also contains the progress, so a
part of a batch can never be committed without the rest. Only one task may write to a Kafka partition, so the rows must
be grouped by partition first.

"Parallel" (:class:`ParallelSink`): each task writes in its own transaction, and rows need not move between tasks. The
decision is one small transaction of the driver. After it, this driver or the next one commits the tasks' transactions.
Attempts that are not part of the decision are never committed. If no driver does so within transaction.timeout.ms, the
brokers abort the remaining transactions (TornBatchError); with two-phase commit (KIP-939) they wait for a driver.

Used on the driver, by one thread at a time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import (
    NO_OFFSETS,
    AttemptError,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    OutdatedProgressError,
    Plan,
    PlannedOffsets,
    Progress,
    RowRange,
    Skipped,
    UndecidedError,
    explained,
)
from kafka_sink.exactly_once.planning import look_ahead, plan_batch, torn
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.situation import Batch, outcome_of
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction

_log = logging.getLogger(__name__)

#: The rows of a task, by the partitions that it wrote to.
TaskRows: TypeAlias = Mapping[TopicPartition, RowRange]

#: Writes the rows of a plan and returns those of each task. It raises AttemptError if another attempt may succeed, and
#: FencedError if the brokers refuse the epoch of its producer. Any other exception ends the batch.
WriteRows: TypeAlias = Callable[[Plan], Sequence[TaskRows]]


class Outcome(NamedTuple):
    """The number of *attempts* a batch took; 0 if nothing was written, because it was *skipped*."""

    attempts: int
    skipped: Skipped | None = None


class AtomicSink:
    """The atomic protocol on the driver. Tasks write with the plan's ``driver`` transaction."""

    def __init__(self, driver: SinkDriver) -> None:
        self._driver = driver

    def write(
        self,
        version: int,
        writer: str,
        numbers: BatchNumbering,
        write_rows: WriteRows,
        *,
        attempts: int,
        offsets: PlannedOffsets = NO_OFFSETS,
    ) -> Outcome:
        """Write *version* and commit it, in up to *attempts* attempts. Each attempt starts from the beginning.

        Another attempt follows only an AttemptError, of *write_rows* or of the commit. After any other exception of
        *write_rows*, also an interrupt, the transaction is aborted and the exception is raised.

        :param offsets: identifies the rows of *version*, if they are known.
        :raises FencedError: if another driver has taken over the sink.
        :raises ExactlyOnceError: if the batch was not committed; none of its rows will ever be visible.
        :raises KafkaTimeoutError: if a response is missing; the batch may be committed, and the next plan finds out.
        """
        failures: list[str] = []
        with self._driver.turn():
            for attempt in range(1, attempts + 1):
                plan = self._plan(version, writer, offsets)
                if not plan.must_write(version, writer, numbers):
                    return Outcome(0, plan.skipped(version))
                try:
                    rows = self._rows(plan, version, write_rows)
                    self._commit(plan, version, writer, rows)
                except AttemptError as error:
                    failures.append(str(error))
                    _log.info("attempt %d of %d at batch %d failed: %s", attempt, attempts, version, error)
                except OutdatedProgressError:
                    plan = self._plan(version, writer, offsets)
                    if plan.must_write(version, writer, numbers):
                        raise
                    return Outcome(0, plan.skipped(version))
                else:
                    look_ahead(self._driver, with_rows=True)
                    return Outcome(attempt)
        if not failures:
            raise ValueError(f"attempts must be at least 1, not {attempts}")
        first = "" if failures[0] == failures[-1] else f"; the first error: {failures[0]}"
        raise ExactlyOnceError(
            f"batch {version} was not committed after {attempts} attempts; the last error: {failures[-1]}{first}"
        )

    def _plan(self, version: int, writer: str, offsets: PlannedOffsets) -> Plan:
        return replace(plan_batch(self._driver, writer, version, with_rows=True), offsets=offsets)

    def _rows(self, plan: Plan, version: int, write_rows: WriteRows) -> Sequence[TaskRows]:
        """The result of *write_rows*; if it fails, the transaction of *plan* is aborted."""
        try:
            return write_rows(plan)
        except BaseException as error:
            if isinstance(error, FencedError) and self._is_fenced(plan):
                raise self._driver.fenced(error, version) from error
            self._give_up(plan)
            if isinstance(error, FencedError):
                raise AttemptError(str(error)) from error
            if isinstance(error, KafkaError) and not isinstance(error, AttemptError):
                error.args = (f"batch {version} was not committed: {error}",)
            raise

    def _is_fenced(self, plan: Plan) -> bool:
        """Whether brokers refuse *plan*'s transaction because of a newer driver. They return the same codes after they
        have aborted it at its time-out. The id then has the next epoch, aborted; after a fence it has a later one."""
        name = plan.driver.transactional_id
        try:
            described = self._driver.client.run(self._driver.client.describe([name])).get(name)
        except KafkaError as error:
            # The next plan finds out.
            _log.info("it is not known whether a newer driver has taken over: %s", error)
            return False
        if described is None or described.transaction == plan.driver:
            return False
        is_aborted = described.state in ("PrepareAbort", "CompleteAbort")
        return not (is_aborted and described.transaction == replace(plan.driver, epoch=plan.driver.epoch + 1))

    def _give_up(self, plan: Plan) -> None:
        """Abort at once, so that readers need not wait. If this fails, the next plan aborts the transaction."""
        try:
            self._driver.abort([plan.driver], plan.transaction_version)
        except KafkaError as error:
            _log.warning(
                "the transaction of a failed attempt stays open until the next attempt, or until its time-out "
                "(transaction.timeout.ms): %s",
                error,
            )

    def _commit(self, plan: Plan, version: int, writer: str, rows: Sequence[TaskRows]) -> None:
        """As :meth:`commit`; a transaction that brokers have aborted is an AttemptError."""
        try:
            with explained(self._driver.id):
                self.commit(plan, version, writer, rows)
        except FencedError as error:
            if self._is_fenced(plan):
                raise
            raise AttemptError(
                f"batch {version} was not committed: the brokers aborted its transaction, most likely after "
                f"{plan.timeout_ms} ms (kafka.transaction.timeout.ms); make the batches smaller if this is repeated"
            ) from error
        except BaseException as error:
            if not isinstance(error, KafkaError):
                # A transaction that was committed before stays committed.
                self._give_up(plan)
            raise

    def commit(self, plan: Plan, version: int, writer: str, rows: Sequence[TaskRows]) -> None:
        """Commit *version*, which tasks have written as *rows* in the transaction of *plan*'s driver. On return its
        rows are visible, and the progress makes every retry skip the version.

        :raises ExactlyOnceError: if several tasks wrote to one partition; the transaction was aborted.
        :raises FencedError: if a newer driver has taken over; it knows whether the batch was committed before.
        :raises KafkaTimeoutError: if a response is missing; the batch may be committed.
        :raises OutdatedProgressError: if *plan*'s progress is not the latest decision; the transaction was aborted.
        :raises AttemptError: if the brokers aborted the transaction, or had lost the abort of an earlier one.
        """
        counts = Counter(partition for of_task in rows for partition in of_task)
        shared = sorted(str(partition) for partition, count in counts.items() if count > 1)
        if shared:
            self._driver.abort([plan.driver], plan.transaction_version)
            raise ExactlyOnceError(
                f"batch {version} was not committed: several tasks wrote to {', '.join(shared)} in one transaction, "
                "and brokers would take the rows of one task for duplicates of another's; repartition the rows so "
                "that one task writes each partition"
            )
        ranges = {partition: part for of_task in rows for partition, part in of_task.items()}
        ends = tuple(sorted((partition, part.end) for partition, part in ranges.items()))
        decided_s, offsets = self._driver.now_s(), plan.offsets_of(version)
        progress = Progress(version + 1, writer, plan.transaction_version, decided_s, offsets=offsets, ends=ends)
        proposal = self._driver.propose(plan, progress)
        _, shared_with = self._driver.client.together(proposal, self._open_before(plan, ranges))
        if shared_with:
            self._driver.abort([plan.driver], plan.transaction_version)
            raise AttemptError(
                f"batch {version} was not committed: the brokers have lost the abort of an earlier transaction "
                f"(KAFKA-20734) in {', '.join(map(str, shared_with))}, and would have committed its rows, too; both "
                "were aborted"
            )
        try:
            self._driver.end_decision(plan, progress)
        except UndecidedError as error:
            raise AttemptError(str(error)) from error
        self._driver.remembered.ends = dict(ends)
        self._driver.warn_of_long(plan)

    async def _open_before(self, plan: Plan, ranges: TaskRows) -> list[TopicPartition]:
        """The partitions of *ranges* in which the driver's producer has a transaction open before its rows, or whose
        leader does not have these rows. The plan has ensured that each partition has all earlier commit markers, so it
        is a transaction whose abort marker was lost, and which a replaced leader did not report to the plan."""
        if not ranges or (plan.progress is not None and plan.progress.decider is None):
            # Release 1.0.0 did not record where its batch ends.
            return []
        stable = await self._driver.client.leaders.end_offsets(ranges, stable=True)
        unsure = [partition for partition, offset in stable.items() if offset < ranges[partition].first]
        if not unsure:
            return []
        opened = await self._driver.client.leaders.open_transactions(unsure)
        own = {
            partition: [txn.start_offset for txn in txns if txn.producer_id == plan.driver.producer_id]
            for partition, txns in opened.items()
        }
        return sorted(partition for partition in unsure if own.get(partition) != [ranges[partition].first])


#: An empty batch writes the progress again only if it is older than this: brokers delete it after
#: offsets.retention.minutes.
_REFRESH_S: Final = 3600

#: The part of transaction.timeout.ms that must remain at the decision, so that there is time for the commits after it:
#: a tenth, at most this many ms.
_MOST_MARGIN_MS: Final = 60_000

_LEFT_OPEN: Final = "transactions that do not belong to a batch stay open until they time out: %s"


class ParallelSink:
    """The parallel protocol on the driver; tasks use :class:`~kafka_sink.exactly_once.writing.WriterTransactions`."""

    def __init__(self, driver: SinkDriver) -> None:
        self._driver, self._client = driver, driver.client
        #: Within, no other thread of this process writes to the sink.
        self.turn = driver.turn

    def plan(self, writer: str | None = None, version: int | None = None) -> Plan:
        """Begin a batch; see :func:`~kafka_sink.exactly_once.planning.plan_batch`."""
        return plan_batch(self._driver, writer, version)

    def commit(
        self,
        plan: Plan,
        version: int,
        writer: str,
        written: Sequence[OpenTransaction],
        *,
        numbers: BatchNumbering = BatchNumbering.OF_A_QUERY,
        records_empty: bool = False,
    ) -> Plan | None:
        """Commit *version*. On return all of *written* are committed, and the progress makes every retry skip the
        version. If another driver committed it and *plan* did not know, *written* are aborted; then return a new plan,
        whose progress contains that commit. If nothing was written, the progress is recorded from time to time; with
        *records_empty* always.

        :raises UndecidedError: if a transaction is not open as its task left it, or *plan*'s progress is not the latest
            decision and *version* not committed; all were aborted, and the batch may be run again.
        :raises FencedError: if a newer driver has taken over; it completes the batch if this driver had decided it.
        :raises TornBatchError: if the batch was decided, and the brokers then aborted some transactions.
        :raises KafkaTimeoutError: if a response is missing; the next :meth:`plan` completes the batch if it is decided.
        :raises ExactlyOnceError: if the brokers refuse it; the next :meth:`plan` completes the batch if it is decided.
        """
        transactions = tuple(sorted(task.transaction for task in written))
        offsets = plan.offsets_of(version)
        progress = Progress(version + 1, writer, plan.transaction_version, self._driver.now_s(), transactions, offsets)
        with explained(self._driver.id):
            if not transactions:
                last = plan.progress
                if records_empty or last is None or abs(progress.decided_s - last.decided_s) > _REFRESH_S:
                    self._driver.decide(plan, progress)
                return None
            problem = self._too_late(plan)
            if problem is None:
                try:
                    # The progress takes effect when the driver's transaction is committed, after this check.
                    proposal = self._driver.propose(plan, progress, transactions)
                    problem, _ = self._client.together(self._problem(written), proposal)
                except OutdatedProgressError:
                    current = replace(self.plan(writer, version), offsets=plan.offsets)
                    if current.must_write(version, writer, numbers):
                        raise
                    return current
            # The coordinators may have been away for as long as transactions may stay open.
            problem = problem or self._too_late(plan)
            if problem is not None:
                self._driver.abort([*transactions, plan.driver], plan.transaction_version)
                raise UndecidedError(f"batch {version} was not committed: {problem}; run it again")
            self._driver.end_decision(plan, progress)
            self._end(plan, progress)
        return None

    def _end(self, plan: Plan, progress: Progress) -> None:
        """Commit the transactions that *progress*, which is decided, lists."""
        outcomes, losers = self._client.together(
            self._client.end(progress.transactions, plan.transaction_version, commit=True),
            self._losers(progress.transactions),
        )
        batch = outcome_of(progress, outcomes)
        if batch is not Batch.COMMITTED:
            self._prove(plan.after(progress))
            if batch is Batch.TORN:
                raise torn(progress, outcomes)
            raise UndecidedError(
                f"batch {progress.version} was decided, but the brokers had already aborted all of its transactions: "
                "none of its rows are in Kafka; run it again"
            )
        self._driver.warn_of_long(plan)
        if losers:
            self._abort_losers(plan.after(progress), losers)

    def _prove(self, plan: Plan) -> None:
        """As :meth:`SinkDriver.prove`, once the group has *plan*'s progress or a later one. The proof aborts a
        transaction of the driver's id: it would discard a decision whose commit marker is lost (KAFKA-20734).

        :raises KafkaTimeoutError: if the group does not have it; the next :meth:`plan` writes the commit again.
        """
        if plan.progress is not None:
            latest, decided = self._client.run(self._driver.store.read()), plan.progress
            if latest is None or (latest.version <= decided.version and latest.decider != decided.decider):
                raise KafkaTimeoutError(
                    f"the group of the sink {self._driver.name!r} does not have the decision about its last batch yet; "
                    "run the batch again, which finds out whether it is in Kafka"
                )
        self._driver.prove(plan)

    def look_ahead(self) -> None:
        """Begin to observe the sink for the next batch, which this process may plan; see
        :func:`~kafka_sink.exactly_once.planning.look_ahead`."""
        look_ahead(self._driver)

    def give_up(self, plan: Plan) -> None:
        """Abort the batch of *plan* at once, so that readers need not wait for the rows of its tasks. Its tasks
        have ended, and its driver has proposed nothing. If this fails, the next plan aborts it."""
        if opened := self._client.run(self._losers(())):
            self._abort_losers(plan, opened)

    async def _losers(self, winners: Sequence[Transaction]) -> list[Transaction]:
        """The open transactions of attempts that are not part of the batch, for which readers would wait."""
        try:
            return await self._driver.left_open(winners)
        except KafkaError as error:
            _log.warning(_LEFT_OPEN, error)
            return []

    def _abort_losers(self, plan: Plan, losers: Sequence[Transaction]) -> None:
        """Abort *losers*, unless a newer driver has taken over: the open transactions may then belong to it. *plan* has
        the driver's epoch as it is now, and the latest decision."""
        try:
            # After the transactions were listed: a driver that takes over from now on has begun none of them.
            self._prove(plan)
            self._driver.abort(losers, plan.transaction_version)
        except KafkaError as error:
            _log.warning(_LEFT_OPEN, error)

    def _too_late(self, plan: Plan) -> str | None:
        """The reason if *plan*'s transactions have too little time left to be committed; None if they have enough."""
        if plan.two_phase:
            return None
        age_ms = plan.planned.elapsed_ms(self._driver.clock)
        if age_ms <= plan.timeout_ms - min(_MOST_MARGIN_MS, plan.timeout_ms // 10):
            return None
        return (
            f"it took {age_ms} ms, and transactions may stay open for {plan.timeout_ms} ms "
            "(kafka.transaction.timeout.ms, at most the brokers' transaction.max.timeout.ms); make the batches "
            "smaller"
        )

    async def _problem(self, written: Sequence[OpenTransaction]) -> str | None:
        """The reason if *written* cannot be committed; None if every transaction is open, as its task left it."""
        descriptions = await self._client.describe(task.transaction.transactional_id for task in written)
        for task in written:
            description = descriptions.get(task.transaction.transactional_id)
            if description is None:
                return f"the brokers do not know the transaction {task.transaction}"
            state, now = description.state, description.transaction
            if now != task.transaction or not description.is_ongoing:
                return f"the transaction {task.transaction} is {state}, and its producer is now {now}"
            if description.partitions != task.partitions:
                there, expected = (
                    sorted(map(str, partitions)) for partitions in (description.partitions, task.partitions)
                )
                return f"the transaction {task.transaction} has rows in {there}, but its task wrote to {expected}"
        return None
