"""An operator's decision that a sink's last batch is complete, where the brokers cannot determine its outcome.

:func:`standing` only reads. :func:`accept` fences the sink's driver, commits the decided transactions if possible, and
records the decision in its transaction, like a batch without rows. Used on one thread, while the sink is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from kafka_sink.exactly_once.model import ExactlyOnceError, Progress
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.situation import End, Situation
from kafka_sink.exactly_once.transactions import Transaction, TransactionDescription, driver_id, repair_id


class Outcome(Enum):
    """The state of a decided transaction, by the description of its coordinator."""

    COMMITTED = "committed"
    ABORTED = "aborted by the brokers"
    OPEN = "not ended yet"
    FORGOTTEN = "forgotten by the brokers"


@dataclass(frozen=True)
class Standing:
    """A sink's latest decision (None: there is none), and the outcomes of its transactions. *is_commit_lost*: a commit
    of the driver was lost for good, so the batch after *progress* may be in Kafka, too."""

    progress: Progress | None
    outcomes: Mapping[Transaction, Outcome] = field(default_factory=dict)
    is_commit_lost: bool = False

    def against(self, version: int, writer: str | None) -> str | None:
        """The reason why *version* must not be recorded as the last complete one; None if it may be recorded."""
        progress, outcomes = self.progress, set(self.outcomes.values())
        if progress is None:
            return None if writer else "it has no progress, so its writer has to be given, as the sink's error says"
        if writer is not None and writer != progress.writer:
            return f"it belongs to {progress.writer}, not to {writer}"
        if version == progress.version - 1 and outcomes == {Outcome.FORGOTTEN}:
            return None
        if self.is_commit_lost and version in (progress.version, progress.version + 1):
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


async def standing(driver: SinkDriver) -> Standing:
    """The latest decision of the sink of *driver*, and its outcome."""
    progress = await driver.store.read(require_stable=False)
    decided = () if progress is None else progress.transactions
    name, record = driver_id(driver.id), repair_id(driver.id)
    described = await driver.client.describe([name, record, *(txn.transactional_id for txn in decided)])
    seen = Situation(
        driver.client.transaction_version(),
        0,
        last=described.get(name),
        record=described.get(record),
        progress=progress,
    )
    is_commit_lost = seen.end is End.REPAIR_ABORTED or seen.is_decision_lost
    outcomes = {txn: _outcome(txn, described.get(txn.transactional_id), progress) for txn in decided if progress}
    return Standing(progress, outcomes, is_commit_lost)


def _outcome(transaction: Transaction, description: TransactionDescription | None, progress: Progress) -> Outcome:
    if description is None:
        return Outcome.FORGOTTEN
    if not description.is_over:
        return Outcome.OPEN
    return Outcome.COMMITTED if description.is_commit_of(transaction, progress.transaction_version) else Outcome.ABORTED


def accept(driver: SinkDriver, version: int, writer: str | None = None) -> None:
    """Record *version* as the last complete one of the sink of *driver*: the sink resumes with the next one. *writer*
    is that of the sink; it is necessary if the sink has no progress.

    :raises ExactlyOnceError: if *version* must not be recorded (:meth:`Standing.against`), or the sink has written
        in the meantime; nothing was recorded.
    """
    before = driver.client.run(standing(driver))
    plan = plan_batch(driver, with_rows=True, accepted=version)
    # The plan has committed what it could, and its fence has overwritten the evidence of a lost commit.
    state = replace(driver.client.run(standing(driver)), is_commit_lost=before.is_commit_lost)
    reason = state.against(version, writer)
    if reason is not None or state.progress != plan.progress:
        raise ExactlyOnceError(
            f"nothing was recorded for the sink {driver.name!r}: {reason or 'it has written in the meantime'}"
        )
    progress = plan.progress or Progress(0, writer or "", plan.transaction_version, 0)
    progress = replace(
        progress,
        next_version=version + 1,
        transaction_version=plan.transaction_version,
        decided_s=driver.now_s(),
        transactions=(),
        offsets=progress.offsets if progress.version == version else "",
    )
    driver.decide(plan, progress)
    record = driver.client.run(driver.record())
    if record is not None and record.recorded_epoch is not None:
        driver.client.run(driver.clear_record(record.transaction))
