"""The driver's half of protocol "parallel": what it refuses to decide."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import pytest

from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import Flow, OpenTransaction, Transaction, UndecidedError
from kafka_sink.exactly_once.parallel import ParallelSink
from kafka_sink.exactly_once.sink import Plan
from kafka_sink.exactly_once.transaction_description import TransactionDescription
from tests.fakes.manual_clock import ManualClock

TASKS = Transaction("s/t.000000000000.1", 9, 3)
ROWS = frozenset({TopicPartition("t", 0)})
GOOD = TransactionDescription(TASKS, "Ongoing", ROWS)


class Coordinators:
    """Know one transaction; a sink that would decide anything asks them for something that they do not have."""

    def __init__(self, known: TransactionDescription | None) -> None:
        self.known = known
        self.aborted: list[Transaction] = []

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        assert list(transactional_ids) == [TASKS.transactional_id]
        return {} if self.known is None else {TASKS.transactional_id: self.known}

    def end(self, transactions: Collection[Transaction], flow: Flow, *, commit: bool) -> dict[Transaction, ErrorCode]:
        assert not commit
        self.aborted += transactions
        return dict.fromkeys(transactions, ErrorCode.NONE)


@pytest.mark.parametrize("flow", Flow)
@pytest.mark.parametrize(
    ("known", "age_ms", "text"),
    [
        (None, 0, "nobody knows"),
        (replace(GOOD, transaction=replace(TASKS, epoch=4)), 0, "is Ongoing, now as"),
        (replace(GOOD, transaction=replace(TASKS, producer_id=10)), 0, "is Ongoing, now as"),
        *((replace(GOOD, state=state), 0, f"is {state}") for state in ("Empty", "PrepareAbort", "CompleteAbort")),
        (replace(GOOD, partitions=frozenset()), 0, "its task wrote to"),
        (replace(GOOD, partitions=ROWS | {TopicPartition("t", 1)}), 0, "its task wrote to"),
        (GOOD, 18_001, "it took 18001 ms, and transactions may be open for 20000 ms"),
    ],
)
def test_a_transaction_that_is_not_as_its_task_left_it_is_aborted_and_nothing_decided(
    known: TransactionDescription | None, age_ms: int, text: str, flow: Flow
) -> None:
    clock = ManualClock()
    coordinators = Coordinators(known)
    sink = ParallelSink(coordinators, "s", "t", clock=clock)  # type: ignore[arg-type]
    plan = Plan("s", "s/t", Transaction("s/t.driver", 8, 0), flow, 20_000, clock.wall_ms(), None, 1)
    clock.advance(age_ms)
    with pytest.raises(UndecidedError, match=text):
        sink.commit(plan, 0, "query", [OpenTransaction(TASKS, ROWS)])
    assert coordinators.aborted == [TASKS]
