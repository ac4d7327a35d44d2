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
    BatchNumbering,
    ExactlyOnceError,
    OutdatedProgressError,
    PlannedOffsets,
    Progress,
    UnwritableRowsError,
)
from kafka_sink.exactly_once.plan import Plan
from kafka_sink.exactly_once.planning import plan_batch

_log = logging.getLogger(__name__)

#: Writes the rows: takes the plan and returns, for each task, the partitions that the task wrote to.
WriteRows = Callable[[Plan], Sequence[Iterable[TopicPartition]]]


class Outcome(NamedTuple):
    """The number of *attempts* a batch took. It is 0 if the batch was already committed and nothing was written;
    *doubt* then says why it is not known whether the batch had the same rows, see :meth:`Plan.doubt`."""

    attempts: int
    doubt: str = ""


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
        :raises UnwritableRowsError: if *write_rows* raises it, which means that a retry would not help; there is no
            further attempt.
        :raises ExactlyOnceError: if the batch could not be written; none of its rows will ever be visible.
        """
        for attempt in range(1, attempts + 1):
            plan = replace(plan_batch(self._steps, writer, with_rows=True), offsets=offsets)
            if not plan.must_write(version, writer, numbers):
                return Outcome(0, plan.doubt(version))
            try:
                owners = write_rows(plan)
            except Exception as error:
                self._give_up(plan)
                if isinstance(error, UnwritableRowsError):
                    raise UnwritableRowsError(f"batch {version} was not committed: {error}") from error
                if attempt == attempts:
                    raise ExactlyOnceError(
                        f"batch {version} was not committed after {attempts} attempts; the last error: {error}"
                    ) from error
                continue
            try:
                self.commit(plan, version, writer, owners)
            except OutdatedProgressError:
                plan = replace(plan_batch(self._steps, writer, with_rows=True), offsets=offsets)
                if plan.must_write(version, writer, numbers):
                    raise
                return Outcome(0, plan.doubt(version))
            return Outcome(attempt)
        raise ValueError(f"attempts must be at least 1, not {attempts}")

    def _give_up(self, plan: Plan) -> None:
        """Abort at once, so that readers need not wait. If this fails, the next plan aborts the transaction."""
        try:
            self._steps.abort([plan.driver], plan.transaction_version)
        except KafkaError as error:
            _log.warning("the transaction of a failed attempt stays open until the next attempt: %s", error)

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
