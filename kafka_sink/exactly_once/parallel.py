"""Protocol "parallel": each task writes in its own transaction, and the driver decides about all of them together.

Rows need not move between tasks. The decision is one small transaction of the driver. After it, this driver or the next
one commits the tasks' transactions. Attempts that are not part of the decision are never committed. Used on the driver,
by one thread at a time.

Limitation without two-phase commit: if all drivers stay down for longer than what is left of transaction.timeout.ms
exactly between decision and commit (milliseconds apart), the brokers abort the remaining transactions. This is detected
and raised as TornBatchError with the exact list. With two-phase commit (KIP-939) the tasks' transactions wait for a
driver however long that takes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from kafka_sink.common.errors import KafkaError
from kafka_sink.exactly_once.model import (
    BatchNumbering,
    OpenTransaction,
    OutdatedProgressError,
    Progress,
    Transaction,
    UndecidedError,
)
from kafka_sink.exactly_once.plan import Plan
from kafka_sink.exactly_once.planning import plan_batch, torn
from kafka_sink.exactly_once.refusals import explained
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.situation import Batch, outcome_of

_log = logging.getLogger(__name__)

#: An empty batch writes the progress again only if it is older than this: brokers delete it after
#: offsets.retention.minutes.
_REFRESH_S: Final = 3600

#: The part of transaction.timeout.ms that must remain at the decision, so that there is time for the commits after it:
#: a tenth, at most this many ms.
_MOST_MARGIN_MS: Final = 60_000

_LEFT_OPEN: Final = "transactions that do not belong to a batch stay open until they time out: %s"


class ParallelSink:
    """The side of the *driver*; see :class:`~kafka_sink.exactly_once.writing.WriterTransactions` for the task side."""

    def __init__(self, driver: SinkDriver) -> None:
        self._driver, self._client = driver, driver.client

    def plan(self, writer: str | None = None, version: int | None = None) -> Plan:
        """Begin a batch; see :func:`~kafka_sink.exactly_once.planning.plan_batch`."""
        return plan_batch(self._driver, writer, version)

    def turn(self) -> AbstractContextManager[None]:
        """Within, no other thread of this process writes to the sink; see :meth:`SinkDriver.turn`."""
        return self._driver.turn()

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
        version. If another driver had committed it before, of which *plan* was not told, *written* are aborted, and
        what is returned is the plan that was told.

        If nothing was written, the progress is recorded only from time to time; with *records_empty* it is always
        recorded.

        :raises UndecidedError: if a transaction is not as its task left it, or *plan*'s progress is not the latest
            decision and *version* not committed; all were aborted, and the batch may be run again.
        :raises FencedError: if a newer driver has taken over; this driver committed and aborted nothing.
        :raises TornBatchError: if the batch was decided, and the brokers then aborted some transactions.
        :raises KafkaTimeoutError: if there is no answer in time; the next :meth:`plan` finds the outcome and finishes
            the batch.
        :raises ExactlyOnceError: if the brokers refuse it, with what to do; the next :meth:`plan` finishes the batch if
            it was decided.
        """
        with explained(self._driver.id):
            return self._commit(plan, version, writer, written, numbers, records_empty=records_empty)

    def _commit(
        self,
        plan: Plan,
        version: int,
        writer: str,
        written: Sequence[OpenTransaction],
        numbers: BatchNumbering,
        *,
        records_empty: bool,
    ) -> Plan | None:
        transactions = tuple(sorted(each.transaction for each in written))
        offsets = plan.offsets_of(version)
        progress = Progress(version + 1, writer, plan.transaction_version, self._driver.now_s(), transactions, offsets)
        if not transactions:
            known = plan.progress
            if records_empty or known is None or progress.decided_s - known.decided_s > _REFRESH_S:
                self._driver.decide(plan, progress)
            return None
        problem = self._too_late(plan)
        if problem is None:
            try:
                # The progress takes effect only when the driver's transaction is committed, which happens after this
                # check.
                problem, _ = self._client.together(self._problem(written), self._driver.propose(plan, progress))
            except OutdatedProgressError:
                self._driver.abort([*transactions, plan.driver], plan.transaction_version)
                current = replace(self.plan(writer, version), offsets=plan.offsets)
                if current.must_write(version, writer, numbers):
                    raise
                return current
        if problem is not None:
            self._driver.abort([*transactions, plan.driver], plan.transaction_version)
            raise UndecidedError(f"batch {version} was not committed: {problem}; run it again")
        self._driver.end_decision(plan, progress)
        outcomes, losers = self._client.together(
            self._client.end(transactions, plan.transaction_version, commit=True), self._losers(transactions)
        )
        batch = outcome_of(progress, outcomes)
        if batch is not Batch.COMMITTED:
            self._driver.prove(plan.after(progress))
        if batch is Batch.TORN:
            raise torn(progress, outcomes)
        if batch is not Batch.COMMITTED:
            raise UndecidedError(
                f"batch {version} was decided, but the brokers had already aborted all of its transactions: none of "
                "its rows are in Kafka; run it again"
            )
        self._driver.warn_of_long(plan)
        if losers:
            self._abort_losers(plan.after(progress), losers)
        return None

    def give_up(self, plan: Plan) -> None:
        """Abort the batch of *plan* at once, so that readers need not wait for what its tasks have written. Its tasks
        have ended, and its driver has proposed nothing. If this fails, the next plan aborts it."""
        if opened := self._client.run(self._losers(())):
            self._abort_losers(plan, opened)

    async def _losers(self, winners: Sequence[Transaction]) -> list[Transaction]:
        """The open transactions of attempts that are not part of the batch; readers would wait for them until they time
        out."""
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
            self._driver.prove(plan)
            self._driver.abort(losers, plan.transaction_version)
        except KafkaError as error:
            _log.warning(_LEFT_OPEN, error)

    def _too_late(self, plan: Plan) -> str | None:
        """The reason if *plan*'s transactions have too little time left to be committed; None if they have enough."""
        if plan.two_phase:
            return None
        age_ms = plan.planned.elapsed_ms(self._driver.clock)
        margin_ms = min(_MOST_MARGIN_MS, plan.timeout_ms // 10)
        if age_ms <= plan.timeout_ms - margin_ms:
            return None
        return (
            f"it took {age_ms} ms, and transactions may stay open for {plan.timeout_ms} ms "
            "(kafka.transaction.timeout.ms, at most the brokers' transaction.max.timeout.ms); make the batches "
            "smaller"
        )

    async def _problem(self, written: Sequence[OpenTransaction]) -> str | None:
        """The reason if *written* cannot be committed; None if every transaction is open, as its task left it."""
        descriptions = await self._client.describe(each.transaction.transactional_id for each in written)
        for each in written:
            known = descriptions.get(each.transaction.transactional_id)
            if known is None:
                return f"the brokers do not know the transaction {each.transaction}"
            if known.transaction != each.transaction or not known.is_ongoing:
                return (
                    f"the transaction {each.transaction} is {known.state}, and its producer is now {known.transaction}"
                )
            if known.partitions != each.partitions:
                return (
                    f"the transaction {each.transaction} has rows in {sorted(map(str, known.partitions))}, but its "
                    f"task wrote to {sorted(map(str, each.partitions))}"
                )
        return None
