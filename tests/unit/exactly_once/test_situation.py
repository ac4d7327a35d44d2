"""The table of exactly once: each rule in a situation of its own, and each reading of the brokers' descriptions.

:mod:`tests.mutation` changes the table and its readings once each; these tests detect every change.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import LAST_PRODUCER_EPOCH, ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import Progress
from kafka_sink.exactly_once.situation import (
    LAST_MOVES,
    RESERVED,
    TABLE,
    Batch,
    End,
    Fence,
    Move,
    Rule,
    Situation,
    follows,
    next_move,
    nothing_happened,
    outcome_of,
)
from kafka_sink.exactly_once.transactions import (
    COMPLETING_MS,
    NO_RECORD_MS,
    Transaction,
    TransactionDescription,
    record_of,
)
from kafka_sink.protocol.messages.transaction_admin import TopicData, TransactionState
from scripts.move_table import move_table
from scripts.pages import printed
from tests.support.cases import with_each

V1, V2 = TransactionVersion
NONE, MAPPING, STATE = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
TIMEOUT_MS = 60_000
LAST = LAST_PRODUCER_EPOCH
PLACE = TopicPartition("t", 0)


def driver(epoch: int, producer_id: int = 7) -> Transaction:
    return Transaction("s/t.driver", producer_id, epoch)


def task(number: int, epoch: int = 3) -> Transaction:
    return Transaction(f"s/t.000000000000.{number}", 100 + number, epoch)


def described(
    epoch: int, state: str = "CompleteCommit", timeout_ms: int = TIMEOUT_MS, producer_id: int = 7
) -> TransactionDescription:
    return TransactionDescription(driver(epoch, producer_id), state, frozenset(), timeout_ms)


def repair(epoch: int, state: str) -> TransactionDescription:
    return described(epoch, state, COMPLETING_MS[3])


def progress(decider: int | None = 4, *tasks: Transaction, version: TransactionVersion = V2) -> Progress:
    """The progress of the last batch, 5, decided by the driver in the epoch *decider*."""
    by = None if decider is None else ProducerIdAndEpoch(7, decider)
    return Progress(6, "query", version, 0, tasks, "", by)


def rows(*epochs: int) -> dict[TopicPartition, LogTransaction]:
    return {TopicPartition("t", n): LogTransaction(7, epoch, 10, 0, 0) for n, epoch in enumerate(epochs)}


def committed(*tasks: Transaction, version: TransactionVersion = V2) -> dict[str, TransactionDescription]:
    """The descriptions of *tasks* after their commit."""
    return {
        each.transactional_id: TransactionDescription(
            replace(each, epoch=each.epoch + (version is V2)), "CompleteCommit", frozenset()
        )
        for each in tasks
    }


#: The driver's own last batch was decided in epoch 4, and its end has started epoch 5.
CALM = Situation(V2, TIMEOUT_MS, own=driver(4), last=described(5), progress=progress())
#: A batch of another process, before the fence and after it.
BEFORE = replace(CALM, own=None)
HELD = replace(BEFORE, fence=driver(6), fenced_after=driver(5), timeout_ms=TIMEOUT_MS)
#: Another driver ran in between: epoch 6 was its own.
LATE = replace(BEFORE, fence=driver(7), fenced_after=driver(5), last=described(7, "Empty"))
LOST = replace(LATE, last=described(8, "Empty"))
#: The driver's decision in epoch 4 was lost, and was recorded before it was written again.
RECORD = TransactionDescription(Transaction("s/t.repair", 9, 0), "Empty", frozenset(), record_of(4))
CLEARED = replace(RECORD, timeout_ms=NO_RECORD_MS)
DECIDED = progress(4, task(1), task(2))


@with_each(
    ("move", "situation"),
    [
        # The owner of the sink, and whether there is a batch to write.
        (Move.REFUSE_WRITER, replace(CALM, writer="another")),
        (Move.REFUSE_WRITER, replace(HELD, writer="another")),
        (Move.FOLLOW, replace(CALM, writer="query")),
        (Move.SKIP, replace(BEFORE, batch_version=4)),
        (Move.FENCE, replace(BEFORE, batch_version=5)),
        (Move.FENCE, replace(BEFORE, batch_version=6)),
        (Move.FENCE, replace(BEFORE, batch_version=-1, progress=None, last=None)),
        (Move.BEGIN, replace(HELD, batch_version=4)),
        # Nothing has happened since the last batch.
        (Move.FOLLOW, CALM),
        (Move.DESCRIBE, replace(CALM, progress=DECIDED)),
        (Move.FOLLOW, replace(CALM, progress=DECIDED, described=committed(task(1), task(2)))),
        (Move.FENCE, replace(CALM, progress=DECIDED, described=committed(task(1)))),
        (Move.WAIT, replace(CALM, last=described(5, "PrepareCommit"))),
        (Move.WAIT, replace(CALM, last=described(5, "PrepareCommit"), progress=DECIDED)),
        (Move.FENCE, replace(CALM, last=None)),
        (Move.FENCE, BEFORE),
        (Move.FENCE, replace(BEFORE, progress=DECIDED)),
        (Move.FENCE, replace(CALM, own=driver(3))),
        (Move.FENCE, replace(CALM, wanted_timeout_ms=TIMEOUT_MS + 1)),
        (Move.FENCE, replace(CALM, progress=progress(None))),
        (Move.FENCE, replace(CALM, left_open=(task(9),))),
        (Move.FENCE, replace(CALM, has_new_leaders=True)),
        (Move.FENCE, replace(CALM, needs_two_phase=True)),
        (Move.FENCE, replace(CALM, version=V1, own=driver(5), progress=progress(5, version=V1))),
        (
            Move.FENCE,
            replace(
                CALM,
                own=driver(LAST - 2),
                last=described(LAST - 1),
                progress=progress(LAST - 2),
            ),
        ),
        (
            Move.FOLLOW,
            replace(
                CALM,
                own=driver(LAST - 3),
                last=described(LAST - 2),
                progress=progress(LAST - 3),
            ),
        ),
        # The last transaction has not ended, or not on all partitions.
        (Move.SEE, replace(BEFORE, is_in_order=False)),
        (Move.SEE, replace(BEFORE, is_in_order=False, last=None, progress=None)),
        (Move.WAIT, replace(BEFORE, last=described(5, "PrepareCommit"))),
        (Move.WAIT, replace(BEFORE, last=described(5, "PrepareAbort"))),
        (Move.WAIT, replace(BEFORE, is_stable=False)),
        (Move.WAIT, replace(BEFORE, last=None, is_stable=False)),
        (Move.ABORT_OPEN, replace(BEFORE, last=described(5, "Ongoing"))),
        (Move.COMMIT_AGAIN, replace(BEFORE, is_stable=False, is_patient=False)),
        (Move.COMMIT_AGAIN, replace(BEFORE, open_rows=rows(4))),
        (Move.COMMIT_AGAIN, replace(BEFORE, behind=frozenset({PLACE}))),
        (Move.COMMIT_AGAIN, replace(BEFORE, progress=progress(3))),
        (Move.COMMIT_AGAIN, replace(BEFORE, progress=None)),
        (Move.COMMIT_AGAIN, replace(BEFORE, last=repair(6, "Ongoing"))),
        (Move.COMMIT_AGAIN, replace(BEFORE, last=repair(6, "Empty"))),
        (Move.ABORT_AGAIN, replace(BEFORE, last=described(5, "CompleteAbort"), open_rows=rows(4))),
        (
            Move.ABORT_AGAIN,
            replace(BEFORE, last=described(5, "CompleteAbort"), is_stable=False, is_patient=False),
        ),
        (Move.STOP_LOST_END, replace(BEFORE, last=repair(6, "CompleteAbort"))),
        (Move.FENCE, replace(BEFORE, last=repair(6, "CompleteAbort"), accepted=5)),
        (Move.STOP_LOST_END, replace(BEFORE, last=described(5, "Empty"), open_rows=rows(4))),
        (Move.STOP_LOST_END, replace(BEFORE, last=described(5, "Empty"), open_rows=rows(4), accepted=5)),
        (Move.STOP_LOST_END, replace(BEFORE, last=None, is_stable=False, is_patient=False)),
        # The fence.
        (Move.FENCE, replace(BEFORE, last=None, progress=None)),
        (Move.FENCE, replace(BEFORE, last=repair(7, "CompleteCommit"))),
        (Move.FENCE, replace(BEFORE, last=described(5, "CompleteAbort"))),
        (Move.FENCE, replace(BEFORE, last=described(5, "Empty"))),
        (Move.STOP_FENCED, LOST),
        (Move.STOP_FENCED, replace(LOST, last=None)),
        (Move.BEGIN, LATE),
        (Move.WAIT, replace(LATE, is_stable=False)),
        (Move.STOP_LOST_END, replace(LATE, is_stable=False, is_patient=False)),
        (Move.STOP_LOST_END, replace(LATE, open_rows=rows(4))),
        (
            Move.FENCE,
            replace(HELD, fence=driver(LAST - 1), fenced_after=driver(LAST - 2)),
        ),
        (
            Move.BEGIN,
            replace(HELD, fence=driver(LAST - 2), fenced_after=driver(LAST - 3)),
        ),
        # After the fence, where the last transaction does not matter any more.
        (Move.BEGIN, HELD),
        (Move.BEGIN, replace(HELD, is_stable=False, open_rows=rows(1), last=described(5, "Ongoing"))),
        (Move.COMMIT_DECIDED, replace(HELD, progress=DECIDED)),
        (Move.COMMIT_DECIDED, replace(LATE, progress=DECIDED)),
        (Move.COMMIT_DECIDED, replace(HELD, progress=DECIDED, described=committed(task(1)))),
        (Move.BEGIN, replace(HELD, progress=DECIDED, described=committed(task(1), task(2)))),
        (Move.BEGIN, replace(HELD, progress=DECIDED, outcomes={task(1): NONE, task(2): NONE})),
        (Move.PROVE, replace(HELD, progress=DECIDED, outcomes={task(1): NONE, task(2): STATE})),
        (Move.PROVE, replace(HELD, progress=DECIDED, outcomes={task(1): STATE, task(2): STATE})),
        (Move.PROVE, replace(HELD, progress=DECIDED, outcomes={task(1): MAPPING})),
        (
            Move.STOP_TORN,
            replace(HELD, progress=DECIDED, outcomes={task(1): NONE, task(2): STATE}, is_proven=True),
        ),
        (
            Move.STOP_TORN,
            replace(HELD, progress=DECIDED, outcomes={task(1): NONE, task(2): STATE}, is_proven=True, accepted=4),
        ),
        (
            Move.BEGIN,
            replace(HELD, progress=DECIDED, outcomes={task(1): NONE, task(2): STATE}, is_proven=True, accepted=5),
        ),
        (
            Move.ROLL_BACK,
            replace(HELD, progress=DECIDED, outcomes={task(1): STATE, task(2): STATE}, is_proven=True),
        ),
        (
            Move.BEGIN,
            replace(HELD, progress=DECIDED, outcomes={task(1): MAPPING, task(2): MAPPING}, is_proven=True),
        ),
        (Move.PROVE, replace(HELD, progress=None)),
        (Move.BEGIN, replace(HELD, progress=None, is_proven=True)),
        (Move.PROVE, replace(HELD, left_open=(task(9),))),
        (Move.ABORT_LEFT, replace(HELD, left_open=(task(9),), is_proven=True)),
        (Move.ABORT_LEFT, replace(HELD, left_open=(task(9),), is_proven=True, has_new_leaders=True)),
        (Move.COMMIT_DECIDED, replace(HELD, progress=DECIDED, left_open=(task(1), task(2)))),
        (
            Move.BEGIN,
            replace(HELD, progress=DECIDED, left_open=(task(1),), described=committed(task(1), task(2))),
        ),
        (Move.TRY_TWO_PHASE, replace(HELD, needs_two_phase=True)),
        (Move.TRY_TWO_PHASE, replace(HELD, needs_two_phase=True, left_open=(task(9),), is_proven=True)),
        (Move.SEARCH, replace(HELD, has_new_leaders=True)),
        # A lost commit was recorded.
        (Move.FOLLOW, replace(CALM, record=RECORD)),
        (Move.CLEAR_RECORD, replace(BEFORE, record=RECORD)),
        (Move.CLEAR_RECORD, replace(BEFORE, record=RECORD, last=repair(7, "CompleteCommit"), progress=progress(1))),
        (Move.CLEAR_RECORD, replace(BEFORE, record=RECORD, accepted=5)),
        (Move.FENCE, replace(BEFORE, record=CLEARED)),
        (Move.FENCE, replace(BEFORE, record=RECORD, last=described(6, "Empty"))),
        (Move.FENCE, replace(BEFORE, record=RECORD, last=None)),
        (Move.COMMIT_AGAIN, replace(BEFORE, record=RECORD, open_rows=rows(4))),
        (Move.STOP_LOST_END, replace(BEFORE, record=RECORD, last=repair(6, "CompleteAbort"))),
        (Move.PROVE, replace(HELD, record=RECORD)),
        (Move.PROVE, replace(LATE, record=RECORD)),
        (Move.STOP_LOST_END, replace(HELD, record=RECORD, is_proven=True)),
        (Move.STOP_LOST_END, replace(LATE, record=RECORD, progress=progress(3, task(1)), is_proven=True)),
        (Move.BEGIN, replace(HELD, record=RECORD, is_proven=True, accepted=5)),
        (Move.CLEAR_RECORD, replace(HELD, record=RECORD, progress=progress(5))),
        (Move.CLEAR_RECORD, replace(HELD, record=RECORD, progress=DECIDED)),
        (Move.COMMIT_DECIDED, replace(HELD, record=CLEARED, progress=DECIDED)),
        (Move.FENCE, replace(HELD, record=RECORD, fence=driver(LAST - 1), fenced_after=driver(LAST - 2))),
    ],
)
def test_each_situation_has_its_move(move: Move, situation: Situation) -> None:
    assert next_move(situation) is move


def test_the_table_is_total_and_every_rule_is_reached() -> None:
    """For every combination of the inputs a rule applies; and each rule is the first one for some combination."""
    lasts = [None, *(described(epoch, state) for epoch in (5, 7) for state in STATES), repair(6, "CompleteAbort")]
    lasts += [repair(7, "CompleteCommit")]
    outcomes = [None, {task(1): STATE, task(2): STATE}, {task(1): MAPPING, task(2): MAPPING}, {task(1): STATE}]
    reached: set[int] = set()
    for last, found, fence, outcome in product(lasts, (None, progress(), DECIDED), FENCES, outcomes):
        base = replace(BEFORE, last=last, progress=found, fence=fence, fenced_after=driver(5), outcomes=outcome)
        for change in CHANGES:
            situation = replace(base, **change)
            reached.add(next(at for at, rule in enumerate(TABLE) if rule.applies(situation)))
            check_safe(situation, next_move(situation))
    assert reached == set(range(len(TABLE)))


STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
FENCES = (None, driver(6), driver(7), driver(LAST, 8), driver(0, 8))
CHANGES: list[dict[str, Any]] = [
    {},
    {"own": driver(4)},
    {"own": driver(4), "described": {}},
    {"writer": "another"},
    {"batch_version": 1},
    {"is_in_order": False},
    {"is_stable": False},
    {"is_stable": False, "is_patient": False},
    {"open_rows": rows(4)},
    {"open_rows": rows(3)},
    {"accepted": 5},
    {"is_proven": True},
    {"is_proven": True, "left_open": (task(9),)},
    {"left_open": (task(9),)},
    {"needs_two_phase": True, "is_proven": True},
    {"has_new_leaders": True, "is_proven": True},
    {"fence": driver(LAST, 7), "fenced_after": driver(LAST - 1, 7)},
    {"record": RECORD},
    {"record": RECORD, "is_proven": True},
]


def check_safe(s: Situation, move: Move) -> None:
    """Invariants of any table, written without the table."""
    is_held = s.fence is not None
    if move in (Move.ROLL_BACK, Move.ABORT_LEFT, Move.STOP_TORN):
        assert is_held and s.is_proven
    if move in (Move.FOLLOW, Move.CLEAR_RECORD, Move.BEGIN) and s.accepted is None and s.record is not None:
        # The batch after a lost decision must not begin, whatever hides that the decision is lost.
        is_complete = not is_held and s.last is not None and s.last.state == "CompleteCommit"
        assert is_complete or (
            s.progress is not None and s.progress.decider is not None and bool(s.progress.transactions)
        )
    if move in (Move.COMMIT_DECIDED, Move.PROVE, Move.TRY_TWO_PHASE, Move.BEGIN, Move.SEARCH):
        assert is_held
    if move is Move.FENCE and not is_held and s.last is not None:
        assert not s.last.is_ongoing and not s.last.state.startswith("Prepare") and s.is_in_order
        assert s.accepted is not None or (s.is_stable and not s.open_rows)
    if move in (Move.COMMIT_AGAIN, Move.ABORT_AGAIN):
        assert s.last is not None and s.last.state != "PrepareCommit"
        is_abort = s.last.state == "CompleteAbort"
        assert is_abort == (move is Move.ABORT_AGAIN)
    if move is Move.FOLLOW:
        assert s.own == driver(4) and s.last is not None and s.last.transaction == driver(5)
        assert not s.left_open and not is_held


def test_the_page_shows_the_table() -> None:
    shown = printed(Path(__file__).parents[3] / "docs" / "internals" / "exactly-once.md", "moves")
    assert shown.strip() == move_table().strip(), "python -m scripts.move_table docs/internals/exactly-once.md"


def test_moves_that_end_a_plan_are_those_that_have_one() -> None:
    assert {Move.SKIP, Move.FOLLOW, Move.BEGIN} == LAST_MOVES
    assert all(isinstance(rule, Rule) and rule.reason for rule in TABLE)


@with_each(
    ("end", "changes"),
    [
        (End.ENDED, {}),
        (End.UNSEEN, {"is_in_order": False}),
        (End.UNUSED, {"last": None}),
        (End.APPLYING, {"last": None, "is_stable": False}),
        (End.UNPROVEN, {"last": None, "is_stable": False, "is_patient": False}),
        (End.ENDING, {"last": described(5, "PrepareCommit")}),
        (End.ENDING, {"last": repair(5, "PrepareAbort")}),
        (End.OPEN, {"last": described(5, "Ongoing")}),
        (End.OPEN, {"last": described(5, "Ongoing"), "is_stable": False}),
        (End.REPAIR, {"last": repair(6, "Ongoing")}),
        (End.REPAIR, {"last": repair(6, "Empty")}),
        (End.REPAIR, {"last": repair(6, "CompleteCommit"), "open_rows": rows(4)}),
        (End.REPAIR, {"last": repair(6, "CompleteCommit"), "is_stable": False, "is_patient": False}),
        (End.APPLYING, {"last": repair(6, "CompleteCommit"), "is_stable": False}),
        (End.APPLYING, {"last": repair(6, "CompleteAbort"), "is_stable": False}),
        (End.REPAIR_ABORTED, {"last": repair(6, "CompleteAbort")}),
        (End.REPAIR_ABORTED, {"last": repair(6, "CompleteAbort"), "open_rows": rows(4)}),
        (End.ENDED, {"last": repair(7, "CompleteCommit")}),
        # After a repair, the progress has the earlier decider, and a recreated topic has other offsets.
        (End.ENDED, {"last": repair(7, "CompleteCommit"), "behind": frozenset({PLACE}), "progress": progress(1)}),
        (End.LOST_COMMIT, {"open_rows": rows(4, 4)}),
        (End.UNPROVEN, {"open_rows": rows(4, 3)}),
        (End.UNPROVEN, {"open_rows": rows(5)}),
        (End.LOST_COMMIT, {"open_rows": rows(5), "version": V1, "progress": progress(5, version=V1)}),
        (End.LOST_COMMIT, {"open_rows": rows(4), "is_stable": False}),
        (End.LOST_COMMIT, {"behind": frozenset({PLACE})}),
        (End.LOST_COMMIT, {"progress": progress(3)}),
        (End.LOST_COMMIT, {"progress": None}),
        (End.ENDED, {"progress": progress(None)}),
        (End.LOST_COMMIT, {"progress": replace(progress(4), decider=ProducerIdAndEpoch(8, 4))}),
        # Version 1 ends in the epoch of the transaction, even if the cluster has changed its version since.
        (End.ENDED, {"progress": progress(5, version=V1)}),
        (End.LOST_ABORT, {"last": described(5, "CompleteAbort"), "open_rows": rows(9)}),
        (End.LOST_ABORT, {"last": described(5, "CompleteAbort"), "is_stable": False, "is_patient": False}),
        (End.APPLYING, {"last": described(5, "CompleteAbort"), "is_stable": False}),
        (End.ENDED, {"last": described(5, "CompleteAbort"), "progress": progress(1)}),
        (End.ENDED, {"last": described(5, "Empty"), "progress": progress(1)}),
        (End.UNPROVEN, {"last": described(5, "Empty"), "behind": frozenset({PLACE})}),
        (End.UNPROVEN, {"last": described(5, "Empty"), "open_rows": rows(4)}),
    ],
)
def test_how_far_the_last_transaction_has_ended(end: End, changes: dict[str, Any]) -> None:
    assert replace(BEFORE, **changes).end is end


@with_each(
    ("fence", "after", "last", "state"),
    [
        (None, driver(5), described(5), Fence.NONE),
        (driver(6), driver(5), described(5), Fence.HELD),
        (driver(0), None, None, Fence.HELD),
        (driver(0, 8), driver(5), described(5), Fence.HELD),
        (driver(7), driver(5), described(7, "Empty"), Fence.LATE),
        (driver(5), driver(5), described(5), Fence.LATE),
        (driver(1), None, described(1, "Empty"), Fence.LATE),
        (driver(1, 8), driver(5), described(1, "Empty", producer_id=8), Fence.LATE),
        (driver(7), driver(5), described(8), Fence.LOST),
        (driver(7), driver(5), described(7, producer_id=8), Fence.LOST),
        (driver(7), driver(5), None, Fence.LOST),
    ],
)
def test_what_became_of_the_fence(
    fence: Transaction | None, after: Transaction | None, last: TransactionDescription | None, state: Fence
) -> None:
    situation = replace(BEFORE, fence=fence, fenced_after=after, last=last)
    assert situation.fence_state is state
    if fence is not None:
        assert follows(fence, after) == (state is Fence.HELD)


@with_each(
    ("outcomes", "batch"),
    [
        ({}, Batch.COMMITTED),
        ({task(1): NONE, task(2): NONE}, Batch.COMMITTED),
        ({task(2): NONE}, Batch.COMMITTED),
        ({task(1): STATE, task(2): STATE}, Batch.ABORTED),
        ({task(1): ErrorCode.PRODUCER_FENCED, task(2): ErrorCode.INVALID_PRODUCER_EPOCH}, Batch.ABORTED),
        ({task(1): STATE}, Batch.TORN),
        ({task(1): STATE, task(2): NONE}, Batch.TORN),
        ({task(1): STATE, task(2): MAPPING}, Batch.TORN),
        ({task(1): MAPPING, task(2): MAPPING}, Batch.FORGOTTEN),
        ({task(1): MAPPING, task(2): NONE}, Batch.FORGOTTEN),
        ({task(1): MAPPING}, Batch.FORGOTTEN),
    ],
)
def test_what_became_of_the_decided_batch(outcomes: dict[Transaction, ErrorCode], batch: Batch) -> None:
    assert outcome_of(DECIDED, outcomes) is batch
    assert replace(HELD, progress=DECIDED, outcomes=outcomes).batch is batch


@with_each(
    ("recorded", "decider", "tasks", "is_lost"),
    [
        (4, 3, (), True),
        (4, 4, (), True),
        (4, 5, (), False),
        (4, 3, (task(1),), True),
        (4, 4, (task(1),), False),
        (4, 5, (task(1),), False),
        (4, None, (task(1),), True),
        (0, 0, (), True),
        (LAST, LAST - 1, (task(1),), True),
        (LAST, LAST, (task(1),), False),
    ],
)
def test_record_of_a_lost_commit(
    recorded: int, decider: int | None, tasks: tuple[Transaction, ...], is_lost: bool
) -> None:
    # A later release reads the records of an earlier one.
    assert (record_of(recorded), NO_RECORD_MS) == (1_000 + recorded, 34_000)
    record = replace(RECORD, timeout_ms=record_of(recorded))
    assert record.recorded_epoch == recorded
    situation = replace(HELD, record=record, progress=progress(decider, *tasks))
    assert situation.is_decision_lost is is_lost
    assert replace(situation, progress=None).is_decision_lost
    assert not replace(situation, progress=None, record=CLEARED).is_decision_lost
    assert not replace(situation, progress=None, record=None).is_decision_lost


def test_only_a_torn_batch_is_accepted() -> None:
    accepted = replace(HELD, progress=DECIDED, accepted=5)
    for outcomes, batch in (({task(1): STATE, task(2): STATE}, Batch.ABORTED), ({task(1): NONE}, Batch.COMMITTED)):
        assert replace(accepted, outcomes=outcomes).batch is batch
    assert replace(accepted, outcomes={task(1): STATE}).batch is Batch.FORGOTTEN


def test_conditions_hold_only_for_what_is_there() -> None:
    assert not nothing_happened(replace(CALM, last=None))
    assert not nothing_happened(replace(CALM, progress=None))
    assert not RESERVED.holds(CALM)
    for last in (None, repair(9, "CompleteCommit"), described(9, "CompleteAbort")):
        assert replace(CALM, last=last).is_in_progress


def test_outcomes_count_only_for_the_progress_that_was_read() -> None:
    done = replace(HELD, progress=DECIDED, outcomes={task(1): NONE, task(2): NONE}, is_proven=True)
    assert done.with_progress(DECIDED) is done
    other = done.with_progress(progress(5, task(3)))
    assert (other.outcomes, other.is_proven, other.batch) == (None, False, Batch.UNKNOWN)
    assert done.with_progress(None).batch is Batch.COMMITTED
    assert replace(done, progress=None).batch is Batch.COMMITTED


@pytest.mark.parametrize("version", [V1, V2])
def test_decided_transactions_are_ended_unless_committed(version: TransactionVersion) -> None:
    decided = replace(DECIDED, transaction_version=version)
    seen = replace(HELD, progress=decided, described=committed(task(1), version=version))
    assert seen.unended == [task(2)]
    assert replace(seen, described=None).unended == [task(1), task(2)]
    assert replace(seen, described={**committed(task(1), task(2), version=V1 if version is V2 else V2)}).unended == [
        task(1),
        task(2),
    ]
    assert replace(seen, progress=None).unended == []
    assert seen.decided_ids == [task(1).transactional_id, task(2).transactional_id]
    assert replace(seen, progress=None).decided_ids == []


def test_what_was_decided_is_not_left_open() -> None:
    seen = replace(HELD, progress=DECIDED, left_open=(task(1), task(9), task(2, epoch=4)))
    assert seen.undecided == [task(9), task(2, epoch=4)]
    assert replace(seen, progress=None).undecided == [task(1), task(9), task(2, epoch=4)]


@with_each(
    ("known", "epochs", "version", "proven"),
    [
        (described(5), [], V2, True),
        (described(5), [4, 4], V2, True),
        (described(5), [4, 5], V2, None),
        (described(5), [5], V1, True),
        (described(5), [4], V1, None),
        (described(5, "CompleteAbort"), [1, 2], V2, False),
        (described(5, "Empty"), [], V2, None),
        (described(5, "Ongoing"), [], V1, None),
        (repair(5, "CompleteCommit"), [1], V2, True),
        (repair(5, "Ongoing"), [1], V2, True),
        (repair(5, "Empty"), [], V1, True),
        (repair(5, "CompleteAbort"), [4], V2, None),
    ],
)
def test_how_a_transaction_ended_is_proven_by_its_description(
    known: TransactionDescription, epochs: list[int], version: TransactionVersion, proven: bool | None
) -> None:
    assert known.proves_commit(epochs, version) is proven


@with_each(
    ("known", "of", "version", "is_commit"),
    [
        (described(5), driver(4), V2, True),
        (described(5, "PrepareCommit"), driver(4), V2, True),
        (described(5), driver(5), V1, True),
        (described(5), driver(5), V2, False),
        (described(5), driver(4), V1, False),
        (described(6), driver(4), V2, False),
        (described(5, "CompleteAbort"), driver(4), V2, False),
        (described(5, "Ongoing"), driver(5), V1, False),
        (described(5, "Empty"), driver(4), V2, False),
        (described(5, producer_id=8), driver(4), V2, False),
        (repair(6, "Ongoing"), driver(4), V2, True),
        (repair(6, "Empty"), driver(5), V1, True),
        (repair(6, "CompleteCommit"), driver(4), V1, True),
        (repair(6, "Ongoing"), driver(6), V1, False),
        (repair(6, "CompleteAbort"), driver(4), V2, False),
        (repair(6, "PrepareAbort"), driver(4), V2, False),
        (replace(repair(6, "Ongoing"), transaction=driver(6, 8)), driver(4), V2, False),
    ],
)
def test_a_description_is_the_commit_of_one_transaction(
    known: TransactionDescription, of: Transaction, version: TransactionVersion, is_commit: bool
) -> None:
    assert known.is_commit_of(of, version) is is_commit


def test_commit_that_was_written_again_is_in_progress() -> None:
    assert replace(BEFORE, last=repair(6, "CompleteCommit"), progress=None).is_in_progress
    assert not replace(BEFORE, last=described(6), progress=None).is_in_progress


def test_time_outs_of_lost_commits_are_ten_halves_of_599993() -> None:
    assert COMPLETING_MS == (599993, 299996, 149998, 74999, 37499, 18749, 9374, 4687, 2343, 1171)


def test_description_is_over_once_nothing_of_it_is_open() -> None:
    over = {state for state in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort") if described(5, state).is_over}
    assert over == {"Empty"}
    assert described(5, "CompleteCommit").is_over
    assert described(5, "CompleteAbort").is_over


def test_description_leaves_out_partitions_of_offsets() -> None:
    topics = [TopicData("t", [0, 1]), TopicData("__consumer_offsets", [3])]
    state = TransactionState(NONE, "s/t.driver", "Ongoing", 60_000, 12, 7, 5, topics)
    places = frozenset({PLACE, TopicPartition("t", 1)})
    assert TransactionDescription.of(state) == TransactionDescription(driver(5), "Ongoing", places, 60_000, 12)
    assert TransactionDescription(driver(5), "Empty", frozenset()) == described(5, "Empty", 0)
    assert TransactionDescription(driver(5), "Empty", frozenset()).started_ms == -1
