"""Protocol "atomic": all tasks write to one transaction for the whole batch, and this transaction also contains the
progress.

A part of a batch can never be committed without the rest. Only one task may write to a Kafka partition, so the rows
must be grouped by partition first. Used on the driver, by one thread at a time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import (
    NO_OFFSETS,
    AttemptError,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    OutdatedProgressError,
    PlannedOffsets,
    Progress,
    RowRange,
    Skipped,
    UndecidedError,
)
from kafka_sink.exactly_once.plan import Plan
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.refusals import explained
from kafka_sink.exactly_once.sink_driver import SinkDriver

_log = logging.getLogger(__name__)

#: The rows of a task, by the partitions that it wrote to.
TaskRows: TypeAlias = Mapping[TopicPartition, RowRange]

#: Writes the rows: takes the plan and returns those of each task. It raises AttemptError if another attempt may
#: succeed, FencedError if its transaction is no longer its own, and whatever else ends the batch.
WriteRows: TypeAlias = Callable[[Plan], Sequence[TaskRows]]


class Outcome(NamedTuple):
    """The number of *attempts* a batch took; 0 if nothing was written, because it was *skipped*."""

    attempts: int
    skipped: Skipped | None = None


class AtomicSink:
    """The side of the *driver*. Tasks write with the plan's ``driver`` transaction."""

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

        :param offsets: identifies the rows of *version*, if they are known.
        :raises FencedError: if another driver has taken over the sink.
        :raises SinkWriteError: if *write_rows* raises it.
        :raises ExactlyOnceError: if the batch could not be written; none of its rows will ever be visible.

        Only an AttemptError of *write_rows* is followed by another attempt. Everything else that it raises, also an
        interrupt, is raised at once, with the transaction aborted.
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
        """What *write_rows* returns; if it fails, the transaction of *plan* is aborted."""
        try:
            return write_rows(plan)
        except FencedError as error:
            if self._is_fenced(plan):
                raise FencedError(
                    f"batch {version} was not committed: a newer driver has taken over the sink {plan.name!r} "
                    f"({error}); this one stops"
                ) from error
            self._give_up(plan)
            raise AttemptError(str(error)) from error
        except AttemptError:
            self._give_up(plan)
            raise
        except KafkaError as error:
            self._give_up(plan)
            error.args = (f"batch {version} was not committed: {error}",)
            raise
        except BaseException:
            self._give_up(plan)
            raise

    def _is_fenced(self, plan: Plan) -> bool:
        """Whether a newer driver is why *plan*'s transaction is refused. Brokers give the same answer after they have
        aborted it at its time-out, which leaves the id in the next epoch, aborted; a fence gives out a later one."""
        name = plan.driver.transactional_id
        try:
            described = self._driver.client.run(self._driver.client.describe([name])).get(name)
        except KafkaError as error:
            # The next plan finds out.
            _log.info("it is not known whether a newer driver has taken over: %s", error)
            return False
        if described is None or described.transaction == plan.driver:
            return False
        timed_out = replace(plan.driver, epoch=plan.driver.epoch + 1)
        is_aborted = described.state in ("PrepareAbort", "CompleteAbort")
        return not (is_aborted and described.transaction == timed_out)

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
        except KafkaError:
            raise
        except BaseException:
            # What was decided before stays decided.
            self._give_up(plan)
            raise

    def commit(self, plan: Plan, version: int, writer: str, rows: Sequence[TaskRows]) -> None:
        """Commit *version*, which tasks have written as *rows* in the transaction of *plan*'s driver. On return its
        rows are visible, and the progress makes every retry skip the version.

        :raises ExactlyOnceError: if several tasks wrote to one partition; the transaction was aborted.
        :raises FencedError: if a newer driver has taken over; the batch was not committed.
        :raises OutdatedProgressError: if *plan*'s progress is not the latest decision; the transaction was aborted.
        :raises AttemptError: if the brokers aborted the transaction, or if rows of an earlier one would be committed
            with it; both were aborted then.
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
        ranges = {partition: each for of_task in rows for partition, each in of_task.items()}
        ends = tuple(sorted((partition, each.end) for partition, each in ranges.items()))
        decided_s, offsets = self._driver.now_s(), plan.offsets_of(version)
        progress = Progress(version + 1, writer, plan.transaction_version, decided_s, offsets=offsets, ends=ends)
        try:
            _, shared_with = self._driver.client.together(
                self._driver.propose(plan, progress), self._open_before(plan, ranges)
            )
        except OutdatedProgressError:
            self._driver.abort([plan.driver], plan.transaction_version)
            raise
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
        """The partitions of *ranges* in which the driver's producer has something open before its rows, or whose leader
        does not know these rows. What was committed before is in every partition: the plan has seen to that. So it is
        a transaction whose abort was lost, and which a leader that had been replaced did not show to the plan."""
        if not ranges or (plan.progress is not None and plan.progress.decider is None):
            # Release 1.0.0 did not record where its batch ends.
            return []
        stable = await self._driver.client.leaders.end_offsets(ranges, stable=True)
        unsure = [each for each, offset in stable.items() if offset < ranges[each].first]
        if not unsure:
            return []
        opened = await self._driver.client.leaders.open_transactions(unsure)
        own = {
            place: [each.start_offset for each in there if each.producer_id == plan.driver.producer_id]
            for place, there in opened.items()
        }
        return sorted(place for place in unsure if own.get(place) != [ranges[place].first])
