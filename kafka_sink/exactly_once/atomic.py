"""Protocol "atomic": one transaction for the whole batch, written to by all tasks, with the progress in it.

There is no moment at which a part of a batch could be committed without the rest. Each Kafka partition must be written
by one task only, so rows have to be brought together by partition before. On the driver, by one thread at a time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import (
    NO_OFFSETS,
    BatchNumbering,
    ExactlyOnceError,
    PlannedOffsets,
    Progress,
    UnwritableRowsError,
)
from kafka_sink.exactly_once.sink import Plan, Sink

_log = logging.getLogger(__name__)

#: What writes the rows: given the plan it returns, for each task, the partitions that the task wrote to.
WriteRows = Callable[[Plan], Sequence[Iterable[TopicPartition]]]


class Outcome(NamedTuple):
    """How many *attempts* a batch took: 0 where it was committed before and nothing was written. *doubt* says then why
    nobody knows whether it had the same rows, see :meth:`Plan.doubt`."""

    attempts: int
    doubt: str = ""


class AtomicSink(Sink):
    """The driver's half; tasks write with the plan's ``driver`` transaction."""

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
        """Write *version* and commit it, trying up to *attempts* times; each try begins from nothing.

        :param offsets: which rows belong to *version*, where that is known.
        :raises FencedError: another driver of the sink is at work.
        :raises UnwritableRowsError: of the first try: *write_rows* says that trying again would not help.
        :raises ExactlyOnceError: it could not be written; nothing of it will ever be visible.
        """
        for attempt in range(1, attempts + 1):
            plan = replace(self.plan(writer), offsets=offsets)
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
                        f"batch {version} was not committed after {attempts} attempts; the last one: {error}"
                    ) from error
                continue
            self._commit(plan, version, writer, owners)
            return Outcome(attempt)
        raise ValueError(f"attempts must be at least 1, not {attempts}")

    def _give_up(self, plan: Plan) -> None:
        """Abort at once, so that readers need not wait; the next plan does it otherwise."""
        try:
            self._abort([plan.driver], plan.flow)
        except KafkaError as error:
            _log.warning("the transaction of a failed attempt stays open until the next one: %s", error)

    def _commit(self, plan: Plan, version: int, writer: str, owners: Sequence[Iterable[TopicPartition]]) -> None:
        counts = Counter(partition for owned in owners for partition in owned)
        shared = sorted(str(partition) for partition, count in counts.items() if count > 1)
        if shared:
            self._abort([plan.driver], plan.flow)
            raise ExactlyOnceError(
                f"batch {version} was not committed: several tasks wrote to {', '.join(shared)} in one transaction, "
                "and brokers take that for a repetition; bring the rows of a partition together first"
            )
        progress = Progress(version + 1, writer, plan.flow, self._now_s(), offsets=plan.offsets_of(version))
        self._decide(plan, progress)
        self._warn_of_long(plan)
