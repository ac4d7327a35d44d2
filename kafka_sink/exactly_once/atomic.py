"""Protocol "atomic": all tasks write to one transaction for the whole batch, and this transaction also contains the
progress.

A part of a batch can never be committed without the rest. Only one task may write to a Kafka partition, so the rows
must be grouped by partition first. Used on the driver, by one thread at a time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.driver_steps import DriverSteps
from kafka_sink.exactly_once.model import (
    NO_OFFSETS,
    AttemptError,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    OutdatedProgressError,
    PlannedOffsets,
    Progress,
    Skipped,
)
from kafka_sink.exactly_once.plan import Plan
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.refusals import explained

_log = logging.getLogger(__name__)

#: Writes the rows: takes the plan and returns, for each task, the partitions that the task wrote to. It raises
#: AttemptError if another attempt may succeed, FencedError if its transaction is no longer its own, and whatever else
#: ends the batch.
WriteRows = Callable[[Plan], Sequence[Iterable[TopicPartition]]]


class Outcome(NamedTuple):
    """The number of *attempts* a batch took; 0 if nothing was written, because it was *skipped*."""

    attempts: int
    skipped: Skipped | None = None


class AtomicSink:
    """The driver side, in the steps of *steps*. Tasks write with the plan's ``driver`` transaction."""

    def __init__(self, steps: DriverSteps) -> None:
        self._steps = steps

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
        :raises UnwritableRowsError: if *write_rows* raises it.
        :raises ExactlyOnceError: if the batch could not be written; none of its rows will ever be visible.

        Only an AttemptError of *write_rows* is followed by another attempt. Everything else that it raises, also an
        interrupt, is raised at once, with the transaction aborted.
        """
        failures: list[str] = []
        with self._steps.turn():
            for attempt in range(1, attempts + 1):
                plan = replace(plan_batch(self._steps, writer, version, with_rows=True), offsets=offsets)
                if not plan.must_write(version, writer, numbers):
                    return Outcome(0, plan.skipped(version))
                try:
                    owners = self._owners(plan, version, write_rows)
                except AttemptError as error:
                    failures.append(str(error))
                    _log.info("attempt %d of %d at batch %d failed: %s", attempt, attempts, version, error)
                    continue
                try:
                    with explained(self._steps.id):
                        self.commit(plan, version, writer, owners)
                except OutdatedProgressError:
                    plan = replace(plan_batch(self._steps, writer, version, with_rows=True), offsets=offsets)
                    if plan.must_write(version, writer, numbers):
                        raise
                    return Outcome(0, plan.skipped(version))
                except KafkaError:
                    raise
                except BaseException:
                    # What was decided before stays decided.
                    self._give_up(plan)
                    raise
                return Outcome(attempt)
        if not failures:
            raise ValueError(f"attempts must be at least 1, not {attempts}")
        first = "" if failures[0] == failures[-1] else f"; the first error: {failures[0]}"
        raise ExactlyOnceError(
            f"batch {version} was not committed after {attempts} attempts; the last error: {failures[-1]}{first}"
        )

    def _owners(self, plan: Plan, version: int, write_rows: WriteRows) -> Sequence[Iterable[TopicPartition]]:
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
        except ExactlyOnceError as error:
            self._give_up(plan)
            raise type(error)(f"batch {version} was not committed: {error}") from error
        except BaseException:
            self._give_up(plan)
            raise

    def _is_fenced(self, plan: Plan) -> bool:
        """Whether a newer driver is why tasks cannot write in *plan*'s transaction. Brokers answer a task in the same
        way after they have aborted the transaction at its time-out."""
        name = plan.driver.transactional_id
        try:
            described = self._steps.client.run(self._steps.client.describe([name])).get(name)
        except KafkaError as error:
            # The next plan finds out.
            _log.info("it is not known whether a newer driver has taken over: %s", error)
            return False
        is_changed = described is not None and described.transaction != plan.driver
        return is_changed and plan.planned.elapsed_ms(self._steps.clock) < plan.timeout_ms

    def _give_up(self, plan: Plan) -> None:
        """Abort at once, so that readers need not wait. If this fails, the next plan aborts the transaction."""
        try:
            self._steps.abort([plan.driver], plan.transaction_version)
        except KafkaError as error:
            _log.warning(
                "the transaction of a failed attempt stays open until the next attempt, or until its time-out "
                "(transaction.timeout.ms): %s",
                error,
            )

    def commit(self, plan: Plan, version: int, writer: str, owners: Sequence[Iterable[TopicPartition]]) -> None:
        """Commit *version*, which tasks have written to the partitions of *owners* in the transaction of *plan*'s
        driver. On return its rows are visible, and the progress makes every retry skip the version.

        :raises ExactlyOnceError: if several tasks wrote to one partition; the transaction was aborted.
        :raises FencedError: if a newer driver has taken over; the batch was not committed.
        :raises OutdatedProgressError: if *plan*'s progress is not the latest decision; the transaction was aborted.
        :raises UndecidedError: if the brokers aborted the transaction.
        """
        counts = Counter(partition for owned in owners for partition in owned)
        shared = sorted(str(partition) for partition, count in counts.items() if count > 1)
        if shared:
            self._steps.abort([plan.driver], plan.transaction_version)
            raise ExactlyOnceError(
                f"batch {version} was not committed: several tasks wrote to {', '.join(shared)} in one transaction, "
                "and brokers would take the rows of one task for duplicates of another's; repartition the rows so "
                "that one task writes each partition"
            )
        progress = Progress(
            version + 1, writer, plan.transaction_version, self._steps.now_s(), offsets=plan.offsets_of(version)
        )
        self._steps.decide(plan, progress)
        self._steps.remembered.partitions = frozenset(counts)
        self._steps.warn_of_long(plan)
