"""Versions are written in order: the result of a late one, and concurrent threads of one process."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_sink.exactly_once.model import BatchNumbering, Plan, ProgressError, Skipped
from kafka_sink.exactly_once.protocols import TaskRows
from tests.exactly_once.world import QUERY, World
from tests.support.waiting import until

APPLICATION = BatchNumbering.OF_AN_APPLICATION


def no_rows(plan: Plan) -> list[TaskRows]:
    raise AssertionError("nothing is written")


@pytest.mark.behaviour(
    "Exactly once: versions out of order", "A version below the last committed one is not called committed"
)
def test_version_below_the_last_one_is_not_called_committed(world: World) -> None:
    for version in (0, 5):
        world.write_batch("atomic", version, b"%d" % version)
    older = world.atomic.write(1, QUERY, APPLICATION, no_rows, attempts=4)
    assert (older.attempts, older.skipped) == (0, Skipped(1, 5, "versions of an application are not compared"))
    assert older.skipped is not None
    assert older.skipped.decision == "older"
    same = world.atomic.write(5, QUERY, APPLICATION, no_rows, attempts=4)
    assert same.skipped is not None
    assert same.skipped.decision == "skipped"


@pytest.mark.behaviour(
    "Exactly once: versions out of order", "A version that is out of date is found before anybody is fenced"
)
@pytest.mark.parametrize("protocol", ["atomic", "parallel"])
def test_version_out_of_date_fences_nobody(world: World, protocol: str) -> None:
    for version in (0, 1):
        world.write_batch(protocol, version, b"%d" % version)
    late = World(world.bootstrap, world.topic)

    def write_rows(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"2")
        assert late.parallel.plan(QUERY, 0).skipped(0).is_older
        with pytest.raises(ProgressError, match="batch 0 of query 1 is older than batch 1"):
            late.write_batch("atomic", 0, b"late")
        return [world.rows]

    if protocol == "atomic":
        assert world.atomic.write(2, QUERY, APPLICATION, write_rows, attempts=1).attempts == 1
    else:
        plan = world.parallel.plan(QUERY, 2)
        written = world.write_task(plan, 2, b"2")
        assert not late.parallel.plan(QUERY, 0).must_write(0, QUERY, APPLICATION)
        world.parallel.commit(plan, 2, QUERY, [written])
    late.client.close()
    assert world.committed() == [b"0", b"1", b"2"]


@pytest.mark.behaviour(
    "Exactly once: versions out of order", "Threads of one process that write to one sink take turns"
)
def test_threads_of_one_process_take_turns(world: World) -> None:
    """None of them is fenced in any order; the outcome of a version after a later one says that it was skipped."""
    begun = threading.Event()

    def write(version: int) -> Skipped | None:
        def write_rows(plan: Plan) -> list[TaskRows]:
            begun.set()
            # Wait until all other threads wait, or plan a batch, which they must not.
            until("the others", lambda: len(waiting) == 3)
            world.send(plan.driver, plan.transaction_version, b"%d" % version)
            return [world.rows]

        outcome = world.atomic.write(version, QUERY, APPLICATION, write_rows, attempts=1)
        return outcome.skipped

    waiting: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(write, 2)
        assert begun.wait(20)
        others = []
        for version in (3, 1, 4):
            waiting.append(version)
            others.append(pool.submit(write, version))
        outcomes = {2: first.result()} | dict(zip((3, 1, 4), [each.result() for each in others], strict=True))
    written = [version for version, skipped in outcomes.items() if skipped is None]
    assert sorted(map(bytes, world.committed())) == [b"%d" % version for version in sorted(written)]  # type: ignore[arg-type]
    assert {2, 4} <= set(written)
    assert all(skipped.is_older for skipped in outcomes.values() if skipped is not None)


@pytest.mark.behaviour(
    "Exactly once: versions out of order", "Threads of one process that write to one sink take turns"
)
def test_turn_is_given_back_by_a_write_that_fails(world: World) -> None:
    def fails(plan: Plan) -> list[TaskRows]:
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        world.atomic.write(0, QUERY, APPLICATION, fails, attempts=1)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(world.write_batch, "parallel", 0, b"0").result(20)
    assert world.committed() == [b"0"]
