"""Causes of delays other than a sink's own transactions: those of others in its partitions, coordinators that are down
during a decision, clocks, and the other protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.client.blocking.blocking import Pause
from kafka_sink.common.model import Node, TopicPartition, TransactionVersion
from kafka_sink.exactly_once import planning
from kafka_sink.exactly_once.model import Log, Plan, Progress, UndecidedError
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.protocols import ParallelSink
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import Transaction
from kafka_sink.exactly_once.writing import WriterTransactions
from tests.exactly_once.test_lost_ends import at_rest
from tests.exactly_once.world import QUERY, World
from tests.support.losing_markers import lost_ends


@pytest.fixture(scope="module", params=TransactionVersion, ids=lambda version: f"version {version}")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    config = BrokerConfig(
        transaction_version=request.param, transaction_abort_timed_out_transaction_cleanup_interval_ms=100
    )
    with EmbeddedCluster(nodes=1, config=config) as running:
        yield running


def opened_by_another(world: World) -> Transaction:
    """Write a row to the partition in a transaction of another sink; return the transaction."""
    plan = ParallelSink(SinkDriver(world.client, f"{world.topic}-other", world.topic)).plan()
    transaction = WriterTransactions().begin(world.client, plan, 0)
    world.send(transaction, plan.transaction_version, b"other")
    return transaction


@pytest.mark.behaviour("Exactly once: lost ends", "An open transaction of another sink is no lost end")
@pytest.mark.parametrize("fate", ["goes on", "dies behind the fence", "dies behind rows"])
def test_open_transaction_of_another_sink_is_no_lost_end(
    world: World, fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = opened_by_another(world)
    world.write_batch("atomic", 0, b"0")
    following = world
    if fate != "goes on":
        plan = plan_batch(world.steps, QUERY, with_rows=True)
        if fate == "dies behind rows":
            world.send(plan.driver, plan.transaction_version, b"void")
        following = World(world.bootstrap, world.topic, timeout_ms=5_000)
    following.write_batch("atomic", 1, b"1")
    assert "the brokers lost it" not in caplog.text
    world.client.run(world.client.end([other], world.client.transaction_version(), commit=True))
    assert sorted(map(bytes, world.committed())) == [b"0", b"1", b"other"]  # type: ignore[arg-type]


@pytest.mark.behaviour("Exactly once: parallel", "A batch whose decision takes too long is not decided")
def test_batch_is_not_decided_after_its_time_out(world: World) -> None:
    world.use(SinkDriver(world.client, world.topic, world.topic, timeout_ms=4_000))
    plan = world.parallel.plan()
    written = [world.write_task(plan, 0, b"a")]
    time.sleep(2)
    written.append(world.write_task(plan, 0, b"b"))
    propose = world.steps.propose

    async def later(plan: Plan, progress: Progress, of_tasks: tuple[Transaction, ...] = ()) -> None:
        # The coordinator of the group is down for a while.
        await Pause(3_000)
        await propose(plan, progress, of_tasks)

    world.steps.propose = later  # type: ignore[method-assign,assignment]
    with pytest.raises(UndecidedError):
        world.parallel.commit(plan, 0, QUERY, written)
    world.steps.propose = propose  # type: ignore[method-assign]
    world.write_batch("parallel", 0, b"a", b"b")
    assert sorted(map(bytes, world.committed())) == [b"a", b"b"]  # type: ignore[arg-type]


@pytest.mark.behaviour("Exactly once: parallel", "A clock that is set back does not let the progress expire")
def test_batch_without_rows_renews_progress_of_a_later_clock(world: World) -> None:
    now_s = int(time.time())
    world.steps.now_s = lambda: now_s + 30 * 86_400  # type: ignore[method-assign]
    world.write_batch("parallel", 0, b"0")
    world.steps.now_s = lambda: now_s  # type: ignore[method-assign]
    world.write_batch("parallel", 1)
    progress = world.client.run(world.steps.store.read())
    assert progress is not None
    assert progress.version == 1


@pytest.mark.behaviour("Exactly once: lost ends", "An end lost by one protocol is found by the other one")
@pytest.mark.parametrize("commits", [True, False])
def test_lost_end_is_found_by_the_other_protocol(world: World, commits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "PATIENCE_MS", 100)
    world.write_batch("atomic", 0, b"0")
    at_rest(world)
    with lost_ends():
        if commits:
            world.write_batch("atomic", 1, b"1")
        else:
            plan = plan_batch(world.steps, QUERY, with_rows=True)
            world.send(plan.driver, plan.transaction_version, b"void")
            world.steps.abort([plan.driver], plan.transaction_version)
        at_rest(world)
    world.steps.remembered.logs = frozenset({Log(TopicPartition(world.topic, 0), Node(9, "other", 1), 0)})
    world.write_batch("parallel", 2, b"2")
    World(world.bootstrap, world.topic).write_batch("atomic", 3, b"3")
    expected = [b"0", *([b"1"] if commits else []), b"2", b"3"]
    assert sorted(map(bytes, world.committed())) == expected  # type: ignore[arg-type]
