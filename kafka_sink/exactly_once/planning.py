"""The beginning of a batch, the same in both protocols: fence older drivers, finish the previous decision, and abort
undecided transactions, before the first row. A driver to whose sink nothing happened since its last batch goes on.

Used on the driver, by one thread at a time. It is safe at any moment and may be repeated: a driver that was paused in
the middle of it and resumes does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from kafka_sink.common.bounded import known_number
from kafka_sink.common.clock import Moment
from kafka_sink.common.errors import ApiError, BrokersUnreachableError, UnsupportedVersionError
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.driver_steps import DriverSteps, Ending, Look
from kafka_sink.exactly_once.model import (
    FENCED,
    ExactlyOnceError,
    FencedError,
    OutdatedProgressError,
    Progress,
    TornBatchError,
    Transaction,
)
from kafka_sink.exactly_once.names import driver_id
from kafka_sink.exactly_once.plan import Plan, require_writer
from kafka_sink.exactly_once.refusals import explained
from kafka_sink.exactly_once.transaction_description import TransactionDescription
from kafka_sink.exactly_once.verification import WRITE_AT_LEAST_ONCE

_log = logging.getLogger(__name__)

#: A week: Kafka's default for offsets.retention.minutes.
_DEFAULT_RETENTION_MINUTES: Final = 10_080

#: The most plans of a batch whose progress is not the latest decision. The coordinator that said so is current, so
#: that the second plan is enough unless that one is replaced, too.
_PLANS: Final = 3


def plan_batch(
    steps: DriverSteps,
    writer: str | None = None,
    version: int | None = None,
    *,
    with_rows: bool = False,
    accepted: int | None = None,
) -> Plan:
    """Begin a batch of the sink of *steps*.

    Fences older drivers of the sink, commits their unfinished decisions, and aborts the transactions that they left
    open. All of that is done, and known to be, if nothing happened since this process committed the last batch.

    :param writer: the writer of the batch, if known; the sink of another writer is then left untouched.
    :param version: the version to write, if known; if a later one is committed, nothing else is done, and the plan
        permits no write.
    :param accepted: a version whose lost part is known and accepted: if it is the decided one and torn, its outcome
        counts as unknown.
    :param with_rows: the driver's own transaction will contain rows.
    :raises ProgressError: if the sink belongs to another writer.
    :raises TornBatchError: if part of the decided batch is lost.
    :raises FencedError: if a newer driver has taken over meanwhile.
    :raises LostEndError: if the brokers have lost the end of a transaction, and nothing proves how it ended.
    :raises ExactlyOnceError: if the cluster or the permissions are insufficient; the text says what is missing.
    :raises BrokersUnreachableError: if no broker could be reached; the text names each address and the cause.
    """
    try:
        with explained(steps.id), steps.turn():
            for _ in range(_PLANS - 1):
                with suppress(OutdatedProgressError):
                    return _plan_batch(steps, writer, version, accepted, with_rows=with_rows)
            return _plan_batch(steps, writer, version, accepted, with_rows=with_rows)
    except UnsupportedVersionError as error:
        # The error's own advice, to upgrade, helps nobody whose brokers are a service.
        missing, _, _ = str(error).partition("; ")
        raise ExactlyOnceError(
            f"these brokers do not support exactly-once writes: {missing}. {WRITE_AT_LEAST_ONCE}; or use brokers of "
            "Apache Kafka 3.6 or newer, or a service that offers its transactions"
        ) from error
    except BrokersUnreachableError as error:
        raise BrokersUnreachableError(
            f"{error}; check bootstrap.servers and that the driver's machine can connect to the addresses that the "
            "brokers advertise (advertised.listeners)"
        ) from error
    except ApiError as error:
        if error.code in FENCED:
            raise FencedError(
                f"a newer driver has taken over the sink {steps.name!r} ({error}); this one stops, and has written "
                "nothing"
            ) from error
        raise


def _plan_batch(
    steps: DriverSteps, writer: str | None, version: int | None, accepted: int | None, *, with_rows: bool
) -> Plan:
    # The sink may have been used with the other protocol before this process began.
    with_rows = with_rows or not steps.remembered.logs
    look = steps.look(with_rows=with_rows)
    known = look.known
    steps.client.require_verification()
    if known is not None and writer is not None:
        require_writer(steps.id, known, writer)
    transaction_version = steps.client.transaction_version()
    if known is not None and version is not None and version < known.version:
        # Whatever the driver's transaction is, this plan needs none.
        nobody = Transaction(driver_id(steps.id), -1, -1)
        return _plan(steps, look, transaction_version, nobody, 0, known)
    following = steps.client.run(steps.following(look, transaction_version))
    if following is None:
        plan = _plan_after_fence(steps, look, transaction_version, accepted, with_rows=with_rows)
    else:
        plan = _plan(steps, look, transaction_version, following.transaction, following.timeout_ms, known)
    steps.remembered.driver, steps.remembered.progress, steps.remembered.partitions = plan.driver, plan.progress, None
    return plan


def _plan(
    steps: DriverSteps,
    look: Look,
    transaction_version: TransactionVersion,
    driver: Transaction,
    timeout_ms: int,
    progress: Progress | None,
) -> Plan:
    """The plan of a batch that begins now."""
    return Plan(
        steps.name,
        steps.id,
        driver,
        transaction_version,
        timeout_ms,
        Moment.now(steps.clock),
        progress,
        look.partition_count,
        two_phase=steps.two_phase,
    )


def _plan_after_fence(
    steps: DriverSteps, look: Look, transaction_version: TransactionVersion, accepted: int | None, *, with_rows: bool
) -> Plan:
    known = look.known
    # A decision that was read is final, so its transactions can be described before it is certain that it is the
    # latest one.
    winners = () if known is None else known.transactions
    (driver, timeout_ms), ended = steps.client.together(
        steps.take_over(look.driver, transaction_version, with_rows=with_rows),
        steps.client.describe(each.transactional_id for each in winners),
    )
    progress = steps.client.run(steps.store.read())
    plan = _plan(steps, look, transaction_version, driver, timeout_ms, progress)
    ending = _ending(steps, plan, ended, accepted)
    decided: frozenset[Transaction] = frozenset() if progress is None else frozenset(progress.transactions)
    undecided = [transaction for transaction in look.left_open if transaction not in decided]
    if progress is None:
        _warn_of_short_retention(steps)
    if ending is Ending.COMMITTED and (progress is None or undecided):
        # For a new sink, this also finds missing permissions before any rows are written.
        steps.prove(plan)
    if ending is not Ending.COMMITTED or progress is None or undecided:
        driver, timeout_ms = steps.client.run(steps.take_over(None, transaction_version, with_rows=with_rows))
    if progress is not None and ending is Ending.ABORTED:
        progress = Progress(progress.version, progress.writer, transaction_version, steps.now_s())
        steps.decide(replace(plan, driver=driver), progress)
        driver, timeout_ms = steps.client.run(steps.take_over(None, transaction_version, with_rows=with_rows))
    if steps.two_phase and not steps.remembered.has_two_phase:
        steps.try_two_phase()
        steps.remembered.has_two_phase = True
        driver, timeout_ms = steps.client.run(steps.take_over(None, transaction_version, with_rows=with_rows))
    steps.abort(undecided, transaction_version)
    steps.settle_writers(look.logs, transaction_version)
    plan = _plan(steps, look, transaction_version, driver, timeout_ms, progress)
    return replace(plan, is_unsure=ending is Ending.FORGOTTEN)


def _ending(
    steps: DriverSteps, plan: Plan, ended: Mapping[str, TransactionDescription], accepted: int | None
) -> Ending:
    """As :meth:`DriverSteps.finish`; a torn batch that is *accepted* counts as forgotten."""
    try:
        return steps.finish(plan, ended)
    except TornBatchError as error:
        if error.version != accepted:
            raise
        return Ending.FORGOTTEN


def _warn_of_short_retention(steps: DriverSteps) -> None:
    minutes = known_number(steps.client.run(steps.client.broker_setting("offsets.retention.minutes")))
    if minutes is not None and minutes < _DEFAULT_RETENTION_MINUTES:
        _log.warning(
            "the brokers forget the progress of the sink %r %s minutes after its last batch "
            "(offsets.retention.minutes; Kafka's default is %d): after a longer pause, its next batch is refused",
            steps.name,
            minutes,
            _DEFAULT_RETENTION_MINUTES,
        )
