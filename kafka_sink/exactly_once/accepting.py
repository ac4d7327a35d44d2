"""What an operator decides about a sink's last batch, where the brokers no longer can: that it is complete.

:func:`standing` looks and changes nothing. :func:`accept` fences the sink's driver, finishes what can be finished, and
records the decision in its transaction, like a batch without rows. Used on one thread, while the sink is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.driver_steps import DriverSteps
from kafka_sink.exactly_once.model import ExactlyOnceError, Progress, Transaction
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.transaction_description import TransactionDescription


class Outcome(Enum):
    """What its coordinator says of a decided transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted by the brokers"
    OPEN = "not ended yet"
    FORGOTTEN = "forgotten by the brokers"


@dataclass(frozen=True)
class Standing:
    """A sink's latest decision (None: there is none), and what became of its transactions."""

    progress: Progress | None
    outcomes: Mapping[Transaction, Outcome] = field(default_factory=dict)

    def of(self, outcome: Outcome) -> Sequence[Transaction]:
        return [each for each, its_outcome in self.outcomes.items() if its_outcome is outcome]

    def against(self, version: int, writer: str | None) -> str | None:
        """Why *version* must not be recorded as the last complete one; None if nothing speaks against it."""
        progress, outcomes = self.progress, set(self.outcomes.values())
        if progress is None:
            return None if writer else "it has no progress, so its writer has to be given, as the sink's error says"
        if writer is not None and writer != progress.writer:
            return f"it belongs to {progress.writer}, not to {writer}"
        if version == progress.version - 1 and outcomes == {Outcome.FORGOTTEN}:
            return None
        if version != progress.version:
            return f"its last decision is batch {progress.version}, and no other batch can be accepted"
        if Outcome.OPEN in outcomes:
            return f"transactions of batch {version} are not ended yet: start the sink, which ends them"
        if outcomes <= {Outcome.COMMITTED}:
            return f"batch {version} is complete: there is nothing to accept"
        if outcomes == {Outcome.ABORTED}:
            return f"no row of batch {version} is in Kafka: start the sink, which writes the batch again"
        return None


async def standing(steps: DriverSteps) -> Standing:
    """The latest decision of the sink of *steps*, and what became of it."""
    progress = await steps.store.read(require_stable=False)
    if progress is None:
        return Standing(None)
    described = await steps.client.describe(each.transactional_id for each in progress.transactions)
    version = progress.transaction_version
    return Standing(
        progress,
        {each: _outcome(each, described.get(each.transactional_id), version) for each in progress.transactions},
    )


def _outcome(transaction: Transaction, known: TransactionDescription | None, version: TransactionVersion) -> Outcome:
    if known is None:
        return Outcome.FORGOTTEN
    if not known.is_over:
        return Outcome.OPEN
    return Outcome.COMMITTED if known.is_commit_of(transaction, version) else Outcome.ABORTED


def accept(steps: DriverSteps, version: int, writer: str | None = None) -> None:
    """Record *version* as the last complete one of the sink of *steps*: the sink goes on with the next one. *writer* is
    the sink's, if it has no progress.

    :raises ExactlyOnceError: if the sink's own next batch does better, or something has changed since :func:`standing`
        was called; nothing was recorded.
    """
    plan = plan_batch(steps, with_rows=True, accepted=version)
    # What could be committed is committed by now.
    state = steps.client.run(standing(steps))
    reason = state.against(version, writer)
    if reason is not None or state.progress != plan.progress:
        raise ExactlyOnceError(f"nothing was recorded for the sink {steps.name!r}: {reason or 'it has gone on'}")
    known = plan.progress or Progress(0, writer or "", plan.transaction_version, 0)
    progress = replace(
        known,
        next_version=version + 1,
        transaction_version=plan.transaction_version,
        decided_s=steps.now_s(),
        transactions=(),
        offsets=known.offsets if known.version == version else "",
    )
    steps.decide(plan, progress)
