"""The driver's part: results of tasks that it refuses to decide, and responses that it accepts as a decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest

from kafka_sink.common.clock import Moment
from kafka_sink.common.errors import ErrorCode, KafkaError
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import AttemptError, FencedError, Plan, Progress, UndecidedError
from kafka_sink.exactly_once.protocols import AtomicSink, ParallelSink
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.situation import Situation
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction, TransactionDescription
from tests.fakes.clock import FakeClock
from tests.fakes.immediate import ImmediateClient, immediate
from tests.support.cases import with_each

DRIVER = Transaction("s/t.driver", 8, 0)
TASKS = Transaction("s/t.000000000000.1", 9, 3)
ROWS = frozenset({TopicPartition("t", 0)})
GOOD = TransactionDescription(TASKS, "Ongoing", ROWS)


class Coordinators(ImmediateClient):
    """Know one transaction of a task, and the end of the driver's transaction."""

    def __init__(self, known: TransactionDescription | None, decision: ErrorCode | None = None) -> None:
        self.known = known
        #: The error code at the end of the driver's transaction; None if the commit is not permitted.
        self.decision = decision
        self.aborted: list[Transaction] = []
        self.written: list[object] = []
        self.before: OffsetAndMetadata | None = None

    @immediate
    def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        assert list(transactional_ids) == [TASKS.transactional_id]
        return {} if self.known is None else {TASKS.transactional_id: self.known}

    @immediate
    def commit_offsets(self, transaction: Transaction, *progress: object) -> OffsetAndMetadata | None:
        assert transaction == DRIVER
        self.written += progress[-2:-1]
        return self.before

    @immediate
    def end(
        self, transactions: Collection[Transaction], transaction_version: TransactionVersion, *, commit: bool
    ) -> dict[Transaction, ErrorCode]:
        if commit:
            assert self.decision is not None and list(transactions) == [DRIVER]
            return {DRIVER: self.decision}
        self.aborted += transactions
        return dict.fromkeys(transactions, ErrorCode.NONE)


@pytest.mark.behaviour(
    "Exactly once: parallel", "A transaction that is not as its task left it is aborted, and nothing decided"
)
@with_each("transaction_version", TransactionVersion)
@with_each(
    ("known", "age_ms", "text"),
    [
        (None, 0, "the brokers do not know"),
        (replace(GOOD, transaction=replace(TASKS, epoch=4)), 0, "is Ongoing, and its producer is now"),
        (replace(GOOD, transaction=replace(TASKS, producer_id=10)), 0, "is Ongoing, and its producer is now"),
        *((replace(GOOD, state=state), 0, f"is {state}") for state in ("Empty", "PrepareAbort", "CompleteAbort")),
        (replace(GOOD, partitions=frozenset()), 0, "its task wrote to"),
        (replace(GOOD, partitions=ROWS | {TopicPartition("t", 1)}), 0, "its task wrote to"),
        (GOOD, 18_001, "it took 18001 ms, and transactions may stay open for 20000 ms"),
    ],
)
def test_changed_task_transaction_is_aborted_and_nothing_decided(
    known: TransactionDescription | None, age_ms: int, text: str, transaction_version: TransactionVersion
) -> None:
    clock = FakeClock()
    coordinators = Coordinators(known)
    sink = ParallelSink(SinkDriver(coordinators, "s", "t", clock=clock))  # type: ignore[arg-type]
    plan = Plan("s/t", DRIVER, transaction_version, 20_000, Moment.now(clock), None, 1)
    clock.advance(age_ms)
    with pytest.raises(UndecidedError, match=text):
        sink.commit(plan, 0, "query", [OpenTransaction(TASKS, ROWS)])
    assert coordinators.aborted == [TASKS, DRIVER]


@pytest.mark.behaviour("Exactly once: parallel", "A decision that the brokers do not confirm commits nothing")
@with_each("protocol", ["parallel", "atomic"])
@with_each(
    ("code", "error"),
    [
        (ErrorCode.INVALID_TXN_STATE, UndecidedError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, FencedError),
        (ErrorCode.PRODUCER_FENCED, FencedError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, FencedError),
    ],
)
def test_unconfirmed_decision_commits_no_task(code: ErrorCode, error: type[KafkaError], protocol: str) -> None:
    clock = FakeClock()
    coordinators = Coordinators(GOOD, code)
    steps = SinkDriver(coordinators, "s", "t", clock=clock)  # type: ignore[arg-type]
    plan = Plan("s/t", DRIVER, TransactionVersion.V2, 20_000, Moment.now(clock), None, 1)
    # In the atomic protocol, another attempt may follow.
    raised = AttemptError if protocol == "atomic" and error is UndecidedError else error
    with pytest.raises(raised, match="batch 0"):
        if protocol == "parallel":
            ParallelSink(steps).commit(plan, 0, "query", [OpenTransaction(TASKS, ROWS)])
        else:
            AtomicSink(steps).commit(plan, 0, "query", [{}])
    assert coordinators.aborted == []


@pytest.mark.parametrize(("age_s", "is_written"), [(3600, False), (3601, True)])
def test_empty_batch_rewrites_old_progress_before_it_expires(age_s: int, is_written: bool) -> None:
    clock = FakeClock()
    coordinators = Coordinators(None, ErrorCode.NONE)
    known = Progress(3, "query", TransactionVersion.V2, clock.wall_ms() // 1000 - age_s)
    coordinators.before = OffsetAndMetadata(3, f"kafkalite2|2|1|query|{known.decided_s}||")
    plan = Plan("s/t", DRIVER, TransactionVersion.V2, 20_000, Moment.now(clock), known, 1)
    sink = ParallelSink(SinkDriver(coordinators, "s", "t", clock=clock))  # type: ignore[arg-type]
    sink.commit(plan, 3, "query", [])
    assert bool(coordinators.written) is is_written


@with_each("transaction_version", TransactionVersion)
@with_each("state", ["PrepareCommit", "CompleteCommit"])
def test_only_the_same_committed_transaction_is_not_ended_again(
    state: str, transaction_version: TransactionVersion
) -> None:
    own = TransactionDescription(
        replace(TASKS, epoch=TASKS.epoch + (transaction_version is TransactionVersion.V2)), state, frozenset()
    )
    later = replace(own, transaction=replace(own.transaction, epoch=own.transaction.epoch + 1))
    others = [later, replace(own, transaction=replace(own.transaction, producer_id=10))]
    others += [replace(own, state=state) for state in ("Ongoing", "Empty", "PrepareAbort", "CompleteAbort")]
    assert ended_again({TASKS.transactional_id: own}, transaction_version) == []
    for other in others:
        assert ended_again({TASKS.transactional_id: other}, transaction_version) == [TASKS]
    assert ended_again({}, transaction_version) == [TASKS]


def ended_again(
    described: dict[str, TransactionDescription], transaction_version: TransactionVersion
) -> list[Transaction]:
    """The transactions that a driver commits when it completes a decision about :data:`TASKS`."""
    progress = Progress(1, "query", transaction_version, 0, (TASKS,))
    return Situation(transaction_version, 60_000, progress=progress, described=described).unended
