"""Brokers whose responses are wrong or lost, and tasks that resume too late."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink import EmbeddedCluster, ProducerRecord
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import BatchNumbering, FencedError, Plan, Progress, RowRange, TornBatchError
from kafka_sink.exactly_once.protocols import ParallelSink
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction
from kafka_sink.exactly_once.writing import FEWEST_IDS
from kafka_sink.producer import config as producer_config
from tests.conftest import Figure
from tests.exactly_once.world import PARTITIONS, QUERY, World, open_producer

PASSING = {
    "unknown error of EndTxn": "end_txn:times=3,error=unknown_server_error",
    "answers of EndTxn lost": "end_txn:every=2,times=4,close=answer",
    "half an answer of EndTxn": "end_txn:nth=2,close=half",
    "EndTxn lost": "end_txn:every=2,times=4,close=request",
    "EndTxn twice": "end_txn:every=1,duplicate=true",
    "unknown error of TxnOffsetCommit": "txn_offset_commit:times=2,error=unknown_server_error",
    "answer of TxnOffsetCommit lost": "txn_offset_commit:nth=1,close=answer",
    "TxnOffsetCommit twice": "txn_offset_commit:every=1,duplicate=true",
    "answers of InitProducerId lost": "init_producer_id:every=2,times=4,close=answer",
    "unknown error of InitProducerId": "init_producer_id:times=2,error=unknown_server_error",
    "answer of OffsetFetch lost": "offset_fetch:nth=1,close=answer",
    "answer of DescribeTransactions lost": "describe_transactions:nth=1,close=answer",
    "answer of FindCoordinator lost": "find_coordinator:nth=2,close=answer",
    "anything": "any:probability=0.05,seed=3,times=10,close=answer",
}

#: Version 1 of transactions also sends AddOffsetsToTxn and AddPartitionsToTxn.
PASSING_V1 = {
    "answers of EndTxn lost": PASSING["answers of EndTxn lost"],
    "answer of AddOffsetsToTxn lost": "add_offsets_to_txn:nth=1,close=answer",
    "answer of AddPartitionsToTxn lost": "add_partitions_to_txn:nth=1,close=answer",
}


@pytest.fixture(scope="module", params=[2, 1], ids=["version 2", "version 1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=1, config=replace(BrokerConfig(), transaction_version=request.param)) as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults(cluster: EmbeddedCluster) -> Iterator[None]:
    yield
    cluster.faults.clear()


def _batches(version: int) -> list[bytes]:
    return [b"%d-%d" % (version, number) for number in range(6)]


@pytest.mark.behaviour(
    "Exactly once: wrong and lost answers", "Requests that are lost, half answered or handled twice change nothing"
)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_passing_faults_change_nothing(cluster: EmbeddedCluster, world: World, protocol: str, figure: Figure) -> None:
    expected: list[bytes] = []
    hits = 0
    passing = PASSING if world.client.transaction_version() is TransactionVersion.V2 else PASSING_V1
    for version, text in enumerate(passing.values()):
        with set_fault(cluster.faults, text) as fault:
            try:
                world.write_batch(protocol, version, *_batches(version))
            except KafkaError:
                # A task has failed; Spark repeats the batch.
                assert protocol == "atomic" or "init_producer_id" in text or "any:" in text, text
                fault.remove()
                world.write_batch(protocol, version, *_batches(version))
        hits += fault.hits
        expected += _batches(version)
    assert sorted(map(bytes, world.committed())) == sorted(expected)  # type: ignore[arg-type]
    figure(protocol, f"{len(passing)} kinds of faults, {hits} times, {len(expected)} rows once")


@pytest.mark.behaviour("Exactly once: wrong and lost answers", "An unknown error is never taken for the decision")
@pytest.mark.behaviour(
    "Faults: exactly once",
    "An EndTxn that is answered with UNKNOWN_SERVER_ERROR for ever commits nothing, and the next run writes once",
)
def test_an_unknown_error_is_never_taken_for_the_decision(cluster: EmbeddedCluster) -> None:
    world = _impatient(cluster)
    with set_fault(cluster.faults, "end_txn:error=unknown_server_error"):
        for protocol in ("parallel", "atomic"):
            with pytest.raises(KafkaTimeoutError, match=r"EndTxn|ending . of . transactions"):
                world.write_batch(protocol, 0, b"a", b"b")
    assert world.committed() == []
    assert world.parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
    world.write_batch("parallel", 0, b"a", b"b")
    assert sorted(map(bytes, world.committed())) == [b"a", b"b"]  # type: ignore[arg-type]
    world.client.close()


@pytest.mark.behaviour(
    "Exactly once: wrong and lost answers",
    "A decided batch whose end nobody confirms is no success, and the next driver finishes it",
)
@pytest.mark.parametrize("fault", ["error=unknown_server_error", "drop=request", "drop=answer"])
def test_unconfirmed_batch_end_raises_and_next_driver_finishes(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    world = _impatient(cluster)
    decide = world.steps.end_decision

    def decide_and_fail(plan: Plan, progress: Progress) -> None:
        decide(plan, progress)
        set_fault(cluster.faults, f"end_txn:{fault}")

    plan = world.parallel.plan()
    written = [world.write_task(plan, 0, b"a"), world.write_task(plan, 0, b"b")]
    with monkeypatch.context() as patched:
        patched.setattr(world.steps, "end_decision", decide_and_fail)
        with pytest.raises(KafkaTimeoutError):
            world.parallel.commit(plan, 0, QUERY, written)
    cluster.faults.clear()
    assert not world.parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
    assert sorted(map(bytes, world.committed())) == [b"a", b"b"]  # type: ignore[arg-type]
    world.client.close()


def _impatient(cluster: EmbeddedCluster) -> World:
    topic = f"impatient-{os.urandom(4).hex()}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    return World(cluster.bootstrap_servers, topic, timeout_ms=1_000)


@pytest.mark.behaviour(
    "Exactly once: wrong and lost answers", "A task that wakes up after its batch was decided adds nothing"
)
@pytest.mark.behaviour(
    "Faults: exactly once", "Late rows of a task that slept through the decision never become visible"
)
@pytest.mark.parametrize("kind", ["decided", "lost", "atomic"])
@pytest.mark.parametrize("later_batches", [0, 2], ids=["at once", "after more batches"])
def test_task_waking_up_after_the_decision_adds_nothing(world: World, kind: str, later_batches: int) -> None:
    protocol = "atomic" if kind == "atomic" else "parallel"
    plan = world.parallel.plan()
    if kind == "decided" and plan.transaction_version is TransactionVersion.V1:
        pytest.skip("in version 1 a commit begins no epoch; a task hands over its transaction with nothing on its way")
    transaction = plan.driver if kind == "atomic" else world.ids.begin(world.client, plan, 0)
    with open_producer(producer_config.read(world.properties), transaction, plan.transaction_version) as producer:
        offset = producer.send(ProducerRecord(world.topic, b"row", partition=0)).result(60).offset
        rows = {TopicPartition(world.topic, 0): RowRange(offset, offset + 1)}
        if kind == "atomic":
            world.atomic.commit(plan, 0, QUERY, [rows])
        else:
            winner = OpenTransaction(transaction, frozenset(rows))
            world.parallel.commit(plan, 0, QUERY, [winner if kind == "decided" else world.write_task(plan, 0, b"row")])
        expected = [b"row"]
        for version in range(1, 1 + later_batches):
            world.write_batch(protocol, version, b"%d" % version, b"more")
            expected += [b"%d" % version, b"more"]
        late = [producer.send(ProducerRecord(world.topic, b"late", partition=number)) for number in (0, 1)]
        for future in late:
            # In version 1 brokers may accept the row in a transaction that is never committed.
            with (
                pytest.raises(KafkaError)
                if plan.transaction_version is TransactionVersion.V2
                else contextlib.suppress(KafkaError)
            ):
                future.result(60)
    world.write_batch(protocol, 5, b"last")
    assert sorted(map(bytes, world.committed())) == sorted([*expected, b"last"])  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: wrong and lost answers", "A driver that is held up while it plans ends nothing of its successor"
)
def test_driver_delayed_in_planning_ends_nothing_of_successor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver may end an open transaction only if it was open before the driver fenced the others."""
    world.write_batch("parallel", 0, b"a")
    world.restart()
    held_up = SinkDriver(world.client, world.topic, world.topic)
    fence = held_up.fence
    successor: list[tuple[Plan, OpenTransaction]] = []

    async def fence_and_wait() -> tuple[Transaction, int]:
        fenced = await fence()
        plan = world.parallel.plan()
        successor.append((plan, world.write_task(plan, 1, b"b")))
        return fenced

    monkeypatch.setattr(held_up, "fence", fence_and_wait)
    ParallelSink(held_up).plan()
    ((plan, written),) = successor
    world.parallel.commit(plan, 1, QUERY, [written])
    assert sorted(map(bytes, world.committed())) == [b"a", b"b"]  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: plan", "A driver goes on after its own last batch without a fence, only if nothing else happened"
)
def test_commit_in_version_1_begins_no_epoch_to_go_on_with(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster's transaction version may be upgraded between two batches."""
    world.write_batch("parallel", 0, b"a")
    was_version_2 = world.client.transaction_version() is TransactionVersion.V2
    monkeypatch.setattr(world.client, "transaction_version", lambda: TransactionVersion.V2)
    fence, fences = world.client.init_producer_id, []

    async def note_fence(*arguments: Any, **options: Any) -> Transaction:
        fences.append("fence")
        return await fence(*arguments, **options)

    monkeypatch.setattr(world.client, "init_producer_id", note_fence)
    world.parallel.plan(QUERY)
    assert fences == ([] if was_version_2 else ["fence"])


@pytest.mark.behaviour(
    "Exactly once: wrong and lost answers", "A driver that is held up after its commit ends nothing of its successor"
)
def test_driver_delayed_after_commit_ends_nothing_of_successor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open transactions may be those of losing attempts, or those of a newer driver's running tasks."""
    steps = SinkDriver(world.client, world.topic, world.topic)
    held_up, look = ParallelSink(steps), steps.left_open
    successor: list[tuple[Plan, OpenTransaction]] = []

    async def wait_and_look(winners: Sequence[Transaction]) -> list[Transaction]:
        plan = world.parallel.plan()
        successor.append((plan, world.write_task(plan, 1, b"b")))
        return await look(winners)

    plan = held_up.plan()
    monkeypatch.setattr(steps, "left_open", wait_and_look)
    held_up.commit(plan, 0, QUERY, [world.write_task(plan, 0, b"a")])
    ((plan, written),) = successor
    world.parallel.commit(plan, 1, QUERY, [written])
    assert sorted(map(bytes, world.committed())) == [b"a", b"b"]  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: wrong and lost answers",
    "A driver that is held up between decision and commit does not call its batch lost",
)
def test_driver_delayed_after_decision_does_not_call_batch_lost(world: World) -> None:
    """Its successors have committed the batch for it, and reused the ids."""
    held_up = SinkDriver(world.client, world.topic, world.topic)
    plan = ParallelSink(held_up).plan()
    written = world.write_task(plan, 0, b"0")
    progress = Progress(1, QUERY, plan.transaction_version, 0, (written.transaction,))
    held_up.decide(plan, progress)
    later = range(1, 1 + FEWEST_IDS)
    for version in later:
        world.write_batch("parallel", version, b"%d" % version)
    with pytest.raises(FencedError):
        held_up.prove(plan.after(progress))
    assert sorted(map(bytes, world.committed())) == [b"%d" % each for each in (0, *later)]  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: wrong and lost answers",
    "What the brokers aborted of a decided batch is reported as lost; if it is all, the batch counts as undecided",
)
@pytest.mark.parametrize("aborted", [1, 2])
def test_decided_batch_is_torn_if_partly_aborted_else_undecided(world: World, aborted: int) -> None:
    plan = world.parallel.plan()
    written = tuple(world.write_task(plan, 0, value).transaction for value in (b"a", b"b"))
    world.client.run(world.client.end(written[:aborted], plan.transaction_version, commit=False))
    world.steps.decide(plan, Progress(1, QUERY, plan.transaction_version, 0, written))
    if aborted == 1:
        with pytest.raises(TornBatchError) as caught:
            world.parallel.plan()
        assert (caught.value.lost, caught.value.committed) == ([written[0]], [written[1]])
        assert world.committed() == [b"b"]
        return
    for _ in range(2):
        assert world.parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
    world.write_batch("parallel", 0, b"again")
    assert world.committed() == [b"again"]
