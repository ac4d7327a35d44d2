"""The guarantees of both protocols, step by step, on the embedded broker."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafka_sink import ProducerRecord
from kafka_sink.client.blocking import cluster_requests
from kafka_sink.client.blocking.blocking import BlockingClient, Pause, RequestSpec, Round, cluster_request
from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.errors import ApiError, TransactionStateError
from kafka_sink.common.model import Node, OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.errors import UnwritableRowsError
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import (
    AttemptError,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    Plan,
    Progress,
    ProgressError,
    Remembered,
    UndecidedError,
)
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.protocols import AtomicSink, ParallelSink, TaskRows
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import (
    OpenTransaction,
    Transaction,
    TransactionDescription,
    driver_id,
    sink_id,
    writer_id,
)
from kafka_sink.exactly_once.writing import FEWEST_IDS
from kafka_sink.producer import config as producer_config
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kafka_sink.protocol.schema import Struct
from scripts.pages import printed
from tests.conftest import Figure
from tests.exactly_once.trace import batch_trace
from tests.exactly_once.world import PARTITIONS, QUERY, World, open_producer
from tests.support.waiting import until

ABORTED = ("PrepareAbort", "CompleteAbort")


@pytest.mark.behaviour("Exactly once: parallel", "Nothing is visible before the commit, and everything after it")
def test_rows_become_visible_only_with_the_commit(world: World) -> None:
    plan = world.parallel.plan()
    written = [world.write_task(plan, 0, b"a", b"b"), world.write_task(plan, 0, b"c")]
    assert world.committed() == []
    world.parallel.commit(plan, 0, QUERY, written)
    assert sorted(map(bytes, world.committed())) == [b"a", b"b", b"c"]  # type: ignore[arg-type]
    assert not world.parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
    assert world.parallel.plan().must_write(1, QUERY, BatchNumbering.OF_A_QUERY)


@pytest.mark.behaviour("Exactly once: plan", "A newer driver fences the older one, and ends what it left")
def test_newer_driver_fences_older_and_ends_its_transactions(world: World) -> None:
    older = world.parallel.plan()
    written = [world.write_task(older, 0, b"old")]
    newer = world.parallel.plan()
    assert world.ids_known()[written[0].transaction.transactional_id].state in ABORTED
    with pytest.raises(FencedError, match="a newer driver has taken over"):
        world.parallel.commit(older, 0, QUERY, written)
    with pytest.raises(FencedError, match="a newer driver has taken over"):
        world.steps.decide(older, Progress(1, QUERY, older.transaction_version, 0))
    world.parallel.commit(newer, 0, QUERY, [world.write_task(newer, 0, b"new")])
    assert world.committed() == [b"new"]


@pytest.mark.behaviour(
    "Exactly once: plan", "Progress counts only when it is read after the fence, behind a decision that is under way"
)
def test_stable_progress_is_read_after_the_fence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write_batch("parallel", 0, b"a")
    world.restart()
    asked: list[str] = []
    fence, fetch = world.client.init_producer_id, world.client.fetch_offsets

    async def note_fence(*arguments: Any, **options: Any) -> Transaction:
        asked.append("fence")
        fenced = await fence(*arguments, **options)
        asked.append("fenced")
        return fenced

    async def note_fetch(*arguments: Any, waits: bool, **options: Any) -> dict[int, OffsetAndMetadata]:
        asked.append("stable" if waits else "a look")
        return await fetch(*arguments, waits=waits, **options)

    monkeypatch.setattr(world.client, "init_producer_id", note_fence)
    monkeypatch.setattr(world.client, "fetch_offsets", note_fetch)
    world.parallel.plan(QUERY)
    # The second read follows the description of the driver's transaction, which this process has not begun.
    assert asked == ["a look", "a look", "fence", "fenced", "stable"]


@pytest.mark.behaviour("Exactly once: plan", "The next driver finishes what was decided")
def test_what_was_decided_is_finished_by_the_next_driver(world: World) -> None:
    plan = world.parallel.plan()
    written = world.write_task(plan, 0, b"row")
    world.steps.decide(plan, Progress(1, QUERY, plan.transaction_version, 0, (written.transaction,)))
    assert world.committed() == []
    assert not world.parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
    assert world.committed() == [b"row"]


def test_independent_requests_are_sent_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write_batch("parallel", 0, b"a", b"b")
    name = driver_id(sink_id(world.topic, world.topic))
    until("the end of the decision", lambda: world.client.run(world.client.describe([name]))[name].is_over)
    rounds: list[list[str]] = []
    request_all, ask = BlockingClient.request_all, BlockingClient.ask

    def note_all(
        client: BlockingClient, requests: Sequence[tuple[Node, RequestSpec]], *, timeout_ms: int | None = None
    ) -> list[Struct | ApiError]:
        rounds.append(sorted(spec.api_key.name for _, spec in requests))
        return request_all(client, requests, timeout_ms=timeout_ms)

    def note_any(
        client: BlockingClient, node: Node | None, spec: RequestSpec, *, timeout_ms: int | None = None
    ) -> Struct:
        rounds[-1] = sorted([*rounds[-1], spec.api_key.name])
        return ask(client, node, spec, timeout_ms=timeout_ms)

    monkeypatch.setattr(BlockingClient, "request_all", note_all)
    monkeypatch.setattr(BlockingClient, "ask", note_any)
    plan = world.parallel.plan(QUERY)
    # The driver does not end transactions again that it knows to be committed, and in version 2 it does not fence its
    # id if no other driver has used it. The ids of the tasks are new.
    fenced = (
        [["DESCRIBE_TRANSACTIONS"]]
        if plan.transaction_version is TransactionVersion.V2
        else [["DESCRIBE_TRANSACTIONS", "INIT_PRODUCER_ID"], ["OFFSET_FETCH"]]
    )
    assert rounds == [["DESCRIBE_TRANSACTIONS", "LIST_TRANSACTIONS", "METADATA", "OFFSET_FETCH"], *fenced]
    written = [world.write_task(plan, 1, value) for value in (b"c", b"d")]
    world.client.run(world.client.describe(each.transaction.transactional_id for each in written))
    rounds.clear()
    world.parallel.commit(plan, 1, QUERY, written)
    proposed = (
        [["DESCRIBE_TRANSACTIONS", "OFFSET_FETCH", "TXN_OFFSET_COMMIT"]]
        if plan.transaction_version is TransactionVersion.V2
        else [["ADD_OFFSETS_TO_TXN", "DESCRIBE_TRANSACTIONS"], ["OFFSET_FETCH", "TXN_OFFSET_COMMIT"]]
    )
    assert rounds == [*proposed, ["END_TXN"], ["END_TXN", "END_TXN", "LIST_TRANSACTIONS"]]


def test_the_page_shows_the_requests_of_a_run() -> None:
    shown = printed(Path(__file__).parents[2] / "docs" / "internals" / "exactly-once.md", "trace")
    assert shown.strip() == batch_trace().strip(), "python -m tests.exactly_once.trace docs/internals/exactly-once.md"


@pytest.mark.behaviour(
    "Exactly once: plan", "A driver goes on after its own last batch without a fence, only if nothing else happened"
)
def test_driver_remembers_nothing_of_another_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write_batch("parallel", 0, b"a")
    last = world.steps.remembered.driver
    assert last is not None

    def after_a_move(topics: Sequence[str] | None) -> tuple[RequestSpec, Callable[[Struct], Cluster]]:
        spec, cluster_of = cluster_request(topics)

        def elsewhere(answer: Struct) -> Cluster:
            cluster = cluster_of(answer)
            cluster.cluster_id = "another"
            return cluster

        return spec, elsewhere

    monkeypatch.setattr(cluster_requests, "cluster_request", after_a_move)
    # Without a fence the epoch would be the next one after the driver's own batch.
    assert world.parallel.plan(QUERY).driver.epoch == last.epoch + 2


@pytest.mark.behaviour(
    "Exactly once: plan", "A driver goes on after its own last batch without a fence, only if nothing else happened"
)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_driver_that_goes_on_is_fenced_by_a_newer_one(world: World, protocol: str) -> None:
    world.write_batch(protocol, 0, b"a")
    older, sink = world.parallel.plan(QUERY), world.parallel
    world.restart()
    world.write_batch(protocol, 1, b"b")
    with pytest.raises(FencedError):
        sink.commit(older, 1, QUERY, [world.write_task(older, 1, b"void")])
    assert sorted(map(bytes, world.committed())) == [b"a", b"b"]  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: plan", "A driver goes on after its own last batch without a fence, only if nothing else happened"
)
def test_two_plans_after_one_batch_share_no_transaction(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write_batch("parallel", 0, b"a")
    peek, both = world.steps.peek, threading.Barrier(2)

    async def peek_with_the_other() -> tuple[Progress | None, bool]:
        found = await peek()
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return found

    monkeypatch.setattr(world.steps, "peek", peek_with_the_other)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: world.parallel.plan(QUERY), range(2))
    assert first.driver != second.driver


@pytest.mark.behaviour(
    "Exactly once: plan", "A driver goes on after its own last batch without a fence, only if nothing else happened"
)
def test_commit_that_arrives_during_look_is_not_overlooked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that commits was abandoned, and its requests arrive between the two responses."""
    world.write_batch("parallel", 0, b"a")
    plan = world.parallel.plan(QUERY)
    written = [world.write_task(plan, 1, b"b")]
    driver, committer = world.steps, SinkDriver(world.client, world.topic, world.topic)
    committer.remembered = Remembered()
    peek, describe = driver.peek, driver.client.describe
    has_read = threading.Event()

    async def note_peek() -> tuple[Progress | None, bool]:
        found = await peek()
        has_read.set()
        return found

    async def commit_and_describe(ids: Iterable[str]) -> dict[str, TransactionDescription]:
        if driver_id(driver.id) not in (ids := [*ids]):
            return await describe(ids)
        while not has_read.is_set():
            await Pause(1)
        monkeypatch.undo()
        ParallelSink(committer).commit(plan, 1, QUERY, written)
        return await describe(ids)

    monkeypatch.setattr(driver, "peek", note_peek)
    monkeypatch.setattr(driver.client, "describe", commit_and_describe)
    assert not world.parallel.plan(QUERY).must_write(1, QUERY, BatchNumbering.OF_A_QUERY)


@pytest.mark.behaviour(
    "Exactly once: plan", "A driver goes on after its own last batch without a fence, only if nothing else happened"
)
def test_decided_batch_is_finished_before_its_driver_goes_on(world: World) -> None:
    """The process that commits died after the decision; the one that plans continues."""
    world.write_batch("parallel", 0, b"a")
    world.decide_and_die(1, b"b", b"c")
    assert not world.parallel.plan(QUERY).must_write(1, QUERY, BatchNumbering.OF_A_QUERY)
    assert sorted(map(bytes, world.committed())) == [b"a", b"b", b"c"]  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: plan", "A driver goes on after its own last batch without a fence, only if nothing else happened"
)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_an_own_end_that_is_on_its_way_needs_no_fence(
    world: World, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    world.write_batch(protocol, 0, b"a")
    peek, fence, looks, fences = world.steps.peek, world.client.init_producer_id, [], []

    async def peek_early() -> tuple[Progress | None, bool]:
        looks.append("look")
        return (None, False) if len(looks) < 3 else (await peek())

    async def note_fence(*arguments: Any, **options: Any) -> Transaction:
        fences.append("fence")
        return await fence(*arguments, **options)

    monkeypatch.setattr(world.steps, "peek", peek_early)
    monkeypatch.setattr(world.client, "init_producer_id", note_fence)
    plan = plan_batch(world.steps, QUERY, with_rows=protocol == "atomic")
    assert plan.progress is not None and plan.progress.version == 0
    assert fences == ["fence"] * (plan.transaction_version is TransactionVersion.V1)


@pytest.mark.behaviour(
    "Exactly once: plan", "A driver goes on after its own last batch without a fence, only if nothing else happened"
)
def test_what_tasks_left_open_is_ended_only_after_a_fence(world: World) -> None:
    world.write_batch("parallel", 0, b"a")
    plan = world.parallel.plan(QUERY)
    left, written = world.write_task(plan, 1, b"void"), world.write_task(plan, 1, b"b")
    progress = Progress(2, QUERY, plan.transaction_version, 0, (written.transaction,))
    world.steps.decide(plan, progress)
    world.client.run(world.client.end([written.transaction], plan.transaction_version, commit=True))
    following = world.parallel.plan(QUERY)
    assert world.ids_known()[left.transaction.transactional_id].state in ABORTED
    # The driver is fenced, proves that it is the latest, and is fenced again.
    fences, ends = 2, 2 * (plan.transaction_version is TransactionVersion.V2)
    assert following.driver.epoch == plan.driver.epoch + fences + ends


@pytest.mark.behaviour("Exactly once: parallel", "An attempt that lost is aborted, and keeps no reader waiting")
def test_losing_attempt_is_aborted_and_blocks_no_reader(world: World) -> None:
    plan = world.parallel.plan()
    loser = world.write_task(plan, 0, b"row")
    world.parallel.commit(plan, 0, QUERY, [world.write_task(plan, 0, b"row")])
    assert world.committed() == [b"row"]
    described = world.client.run(world.client.describe([loser.transaction.transactional_id]))
    assert described[loser.transaction.transactional_id].state in ABORTED


@pytest.mark.behaviour("Exactly once: parallel", "Rows that a task did not report keep a batch from being decided")
def test_rows_a_task_did_not_report_prevent_the_decision(world: World) -> None:
    plan = world.parallel.plan()
    written = world.write_task(plan, 0, b"row")
    wrong = OpenTransaction(written.transaction, frozenset({TopicPartition(world.topic, 1)}))
    with pytest.raises(UndecidedError, match=f"has rows in .'{world.topic}-0'., but its task wrote to"):
        world.parallel.commit(plan, 0, QUERY, [wrong])
    assert world.committed() == []


@pytest.mark.behaviour("Exactly once: parallel", "An empty batch costs no transaction once there is progress")
def test_empty_batch_costs_no_transaction_once_progress_exists(world: World) -> None:
    world.parallel.commit(world.parallel.plan(), 0, QUERY, [])
    for version in (1, 2):
        plan = world.parallel.plan()
        assert plan.progress is not None
        assert plan.progress.next_version == 1
        world.parallel.commit(plan, version, QUERY, [])
    plan = world.parallel.plan()
    world.parallel.commit(plan, 3, QUERY, [world.write_task(plan, 3, b"row")])
    assert world.committed() == [b"row"]


@pytest.mark.behaviour(
    "Exactly once: parallel", "Ids are used again when nobody may end their last transaction any more"
)
def test_transactional_ids_are_reused_but_not_by_the_next_batch(world: World) -> None:
    used: list[set[str]] = []
    for version in range(6):
        plan = world.parallel.plan()
        written = [world.write_task(plan, version, b"row") for _ in range(FEWEST_IDS // 2)]
        world.parallel.commit(plan, version, QUERY, written)
        used.append({each.transaction.transactional_id for each in written})
    assert len(set().union(*used)) == FEWEST_IDS
    assert all(not before & after for before, after in itertools.pairwise(used))


@pytest.mark.behaviour("Exactly once: plan", "Progress of another writer, or progress that is missing, is refused")
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Progress that is missing, foreign, too new or forgotten is refused before a row is written, with what to do",
)
def test_another_writer_and_missing_progress_are_refused(world: World) -> None:
    plan = world.parallel.plan()
    with pytest.raises(ProgressError, match=r"has no progress .* allowMissingProgress=true"):
        plan.must_write(7, QUERY, BatchNumbering.OF_A_QUERY)
    assert plan.must_write(7, QUERY, BatchNumbering.OF_A_QUERY_UNDER_WAY)
    world.parallel.commit(plan, 7, QUERY, [])
    with pytest.raises(ProgressError, match=r"belongs to query 1, .* choose another transactionalIdPrefix"):
        world.parallel.plan().must_write(8, "query 2", BatchNumbering.OF_A_QUERY)


@pytest.mark.behaviour("Exactly once: plan", "Progress in somebody else's group is refused")
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Progress that is missing, foreign, too new or forgotten is refused before a row is written, with what to do",
)
def test_progress_of_somebody_elses_group_is_refused(world: World) -> None:
    plan = world.parallel.plan()
    first = TopicPartition(world.topic, 0)
    offsets = {first: OffsetAndMetadata(5, "theirs")}
    world.client.run(world.client.commit_offsets(plan.driver, plan.transaction_version, world.topic, offsets, first))
    world.client.run(world.client.end([plan.driver], plan.transaction_version, commit=True))
    with pytest.raises(ProgressError, match=r"offset 5 with metadata 'theirs' .* is not the progress of this sink"):
        world.parallel.plan()


@pytest.mark.behaviour("Exactly once: plan", "A missing progress topic is refused by its name")
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Progress that is missing, foreign, too new or forgotten is refused before a row is written, with what to do",
)
def test_a_missing_progress_topic_is_refused_by_name(world: World) -> None:
    with pytest.raises(ExactlyOnceError, match=r"topic 'nowhere' for the progress .* does not exist"):
        ParallelSink(SinkDriver(world.client, "sink", "nowhere")).plan()


@pytest.mark.behaviour(
    "Exactly once: parallel", "A long list of transactions goes on in other partitions of the progress topic"
)
def test_a_long_list_of_transactions_goes_on_in_other_partitions(world: World) -> None:
    store, sink = ProgressStore(world.client, world.topic, world.topic), sink_id(world.topic, world.topic)
    transactions = tuple(
        sorted(Transaction(writer_id(sink, bytes([1] * 6), number), 10**9 + 97 * number, 7) for number in range(1500))
    )
    plan = world.parallel.plan()
    written = Progress(4, QUERY, plan.transaction_version, 17, transactions)
    world.client.run(store.write(plan.driver, plan.transaction_version, written, PARTITIONS, None))
    world.client.run(world.client.end([plan.driver], plan.transaction_version, commit=True))
    found = world.client.run(store.read())
    assert found is not None
    assert (found.next_version, found.writer, found.decided_s) == (4, QUERY, 17)
    assert set(found.transactions) == set(transactions)
    many = tuple(
        Transaction(writer_id(sink_id(world.topic, world.topic), os.urandom(6), 1), 10**15, 7) for _ in range(1500)
    )
    with pytest.raises(UndecidedError, match=r"needs .* partitions for 1500 transactions .* but topic .* has 3"):
        world.client.run(
            store.write(
                plan.driver,
                plan.transaction_version,
                Progress(5, QUERY, plan.transaction_version, 17, many),
                PARTITIONS,
                found,
            )
        )


@pytest.mark.behaviour("Exactly once: atomic", "One transaction holds a whole batch and its progress")
def test_one_transaction_holds_a_whole_batch_and_its_progress(world: World) -> None:
    def write_rows(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"row")
        assert world.committed() == []
        return [world.rows]

    assert world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=2).attempts == 1
    assert world.committed() == [b"row"]
    assert world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=2).attempts == 0
    assert world.committed() == [b"row"]


@pytest.mark.behaviour("Exactly once: atomic", "A failed attempt leaves nothing")
def test_a_failed_attempt_at_an_atomic_batch_leaves_nothing(world: World) -> None:
    tries = 0

    def write_rows(plan: Plan) -> list[TaskRows]:
        nonlocal tries
        tries += 1
        world.send(plan.driver, plan.transaction_version, b"row")
        if tries <= 2:
            raise AttemptError("a task failed")
        return [world.rows]

    with pytest.raises(ExactlyOnceError, match="was not committed after 1 attempts; the last error: a task failed"):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
    driver = driver_id(sink_id(world.topic, world.topic))
    assert world.client.run(world.client.describe([driver]))[driver].state in ABORTED
    assert world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=2).attempts == 2
    assert world.committed() == [b"row"]


def test_unwritable_rows_end_atomic_write_at_first_attempt(world: World) -> None:
    plans = []

    def write_rows(plan: Plan) -> list[TaskRows]:
        plans.append(plan)
        raise UnwritableRowsError("row 7 is too large")

    with pytest.raises(UnwritableRowsError, match="batch 0 was not committed: row 7 is too large"):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=4)
    assert len(plans) == 1


def newer_steps(world: World) -> SinkDriver:
    """Return the steps of another process of the sink's driver."""
    return SinkDriver(CoordinatorClient(world.properties), world.topic, world.topic)


def last_state(world: World) -> str:
    """Return the state of the driver's transaction."""
    driver = driver_id(sink_id(world.topic, world.topic))
    return world.client.run(world.client.describe([driver]))[driver].state


@pytest.mark.behaviour("Exactly once: atomic", "An interrupt aborts its transaction at once and is not tried again")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("of the user's function"), ExactlyOnceError("x")])
def test_whatever_ends_an_atomic_batch_is_raised_at_once(world: World, error: BaseException) -> None:
    plans = []

    def write_rows(plan: Plan) -> list[TaskRows]:
        plans.append(plan)
        world.send(plan.driver, plan.transaction_version, b"row")
        raise error

    with pytest.raises(type(error)):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=4)
    assert len(plans) == 1
    assert last_state(world) in ABORTED


@pytest.mark.behaviour("Exactly once: atomic", "An interrupt aborts its transaction at once and is not tried again")
def test_interrupt_before_the_decision_aborts_the_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    def write_rows(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"row")
        return [world.rows]

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(world.steps, "end_decision", interrupted)
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=4)
    assert last_state(world) in ABORTED
    assert world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1).attempts == 1
    assert world.committed() == [b"row"]


@pytest.mark.behaviour("Exactly once: atomic", "The last error of several attempts names the first")
def test_last_error_of_several_attempts_names_the_first(world: World) -> None:
    errors = iter(["the leader is gone", "no answer", "no answer"])

    def write_rows(plan: Plan) -> list[TaskRows]:
        raise AttemptError(next(errors))

    with pytest.raises(ExactlyOnceError, match="after 3 attempts; the last error: no answer; the first error: the lea"):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=3)


@pytest.mark.behaviour("Exactly once: atomic", "A fenced writer stops and leaves the winner alone")
def test_fenced_writer_stops_and_leaves_the_winner_alone(world: World) -> None:
    winners: list[Plan] = []
    newer = newer_steps(world)

    def write_rows(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"loser")
        winners.append(plan_batch(newer, QUERY, with_rows=True))
        world.send(winners[-1].driver, plan.transaction_version, b"winner")
        raise FencedError("PRODUCER_FENCED")

    with pytest.raises(FencedError, match="batch 0 was not committed: a newer driver has taken over the sink"):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=4)
    assert len(winners) == 1
    AtomicSink(newer).commit(winners[0], 0, QUERY, [world.rows])
    assert world.committed() == [b"winner"]


def test_driver_fenced_while_it_plans_names_no_batch(world: World) -> None:
    plan = world.parallel.plan(QUERY)
    newer = newer_steps(world)
    newer.client.run(newer.fence())
    with pytest.raises(FencedError, match=r"^a newer driver has taken over the sink"):
        world.steps.prove(plan)


@pytest.mark.behaviour("Exactly once: atomic", "A fenced writer stops and leaves the winner alone")
def test_refusal_of_a_transaction_still_ours_is_tried_again(world: World) -> None:
    tries = 0

    def write_rows(plan: Plan) -> list[TaskRows]:
        nonlocal tries
        tries += 1
        world.send(plan.driver, plan.transaction_version, b"row")
        if tries == 1:
            raise FencedError("INVALID_PRODUCER_EPOCH")
        return [world.rows]

    assert world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=2).attempts == 2
    assert world.committed() == [b"row"]


@pytest.mark.behaviour("Exactly once: parallel", "A batch that is given up leaves no reader waiting")
def test_parallel_batch_that_is_given_up_is_aborted_at_once(world: World) -> None:
    plan = world.parallel.plan(QUERY)
    task = world.write_task(plan, 0, b"row")
    world.parallel.give_up(plan)
    name = task.transaction.transactional_id
    assert world.client.run(world.client.describe([name]))[name].state in ABORTED


@pytest.mark.behaviour("Exactly once: parallel", "A batch that is given up leaves no reader waiting")
def test_parallel_batch_of_a_newer_driver_is_not_given_up(world: World) -> None:
    plan = world.parallel.plan(QUERY)
    newer = ParallelSink(newer_steps(world))
    newer_plan = newer.plan(QUERY)
    task = world.write_task(newer_plan, 0, b"row")
    world.parallel.give_up(plan)
    newer.commit(newer_plan, 0, QUERY, [task])
    assert world.committed() == [b"row"]


@pytest.mark.behaviour("Exactly once: atomic", "Two tasks with one partition are refused")
def test_two_tasks_with_one_partition_are_refused(world: World) -> None:
    def write_rows(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"row")
        return [world.rows, world.rows]

    with pytest.raises(ExactlyOnceError, match=f"several tasks wrote to {world.topic}-0 in one transaction"):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
    assert world.committed() == []


@pytest.mark.behaviour(
    "Exactly once: atomic", "A task that joins the driver's transaction can neither end it nor begin one"
)
def test_producer_in_joined_transaction_cannot_end_or_begin_one(world: World, caplog: pytest.LogCaptureFixture) -> None:
    plan = world.parallel.plan()
    with open_producer(producer_config.read(world.properties), plan.driver, plan.transaction_version) as producer:
        producer.send(ProducerRecord(world.topic, b"row", partition=0))
        producer.flush()
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(TransactionStateError, match="the owner of the joined transaction ends it"):
                call()
        with pytest.raises(TransactionStateError):
            producer.begin_transaction()
    assert world.client.run(world.client.describe([plan.driver.transactional_id]))[
        plan.driver.transactional_id
    ].is_ongoing
    assert "could not be aborted" not in caplog.text


@pytest.mark.behaviour(
    "Exactly once: parallel", "Every answer about a transaction that has ended is final, in both versions"
)
@pytest.mark.parametrize("transaction_version", list(TransactionVersion))
def test_answers_about_an_ended_transaction_are_final(world: World, transaction_version: TransactionVersion) -> None:
    plan = world.parallel.plan()
    transaction = world.ids.begin(world.client, plan, 0)
    world.send(transaction, transaction_version, b"row")
    for _ in range(2):
        assert {
            code.name
            for code in world.client.run(world.client.end([transaction], transaction_version, commit=True)).values()
        } == {"NONE"}
    assert {
        code.name
        for code in world.client.run(world.client.end([transaction], transaction_version, commit=False)).values()
    } == {"INVALID_TXN_STATE"}
    # Only version 2 increases the epoch with the end of a transaction.
    described = world.client.run(world.client.describe([transaction.transactional_id]))[transaction.transactional_id]
    assert described.transaction.epoch - transaction.epoch == (1 if transaction_version is TransactionVersion.V2 else 0)


@pytest.mark.behaviour("Exactly once: parallel", "All transactions of a batch are ended together")
def test_many_transactions_are_ended_together(world: World, figure: Figure) -> None:
    plan = world.parallel.plan()
    transactions = [world.ids.begin(world.client, plan, 0) for _ in range(200)]
    started = time.monotonic()
    outcomes = world.client.run(world.client.end(transactions, plan.transaction_version, commit=False))
    figure("200 transactions", f"{(time.monotonic() - started) * 1000:.0f} ms")
    assert {code.name for code in outcomes.values()} == {"NONE"}


def test_new_topic_is_waited_for_and_absent_topic_is_given_up() -> None:
    client = CoordinatorClient({"bootstrap.servers": "127.0.0.1:1"})
    client.close()

    def look_for(topic: str, found_at: int | None) -> tuple[int, int]:
        """Return the number of partitions found, and of requests until then; brokers know the topic at *found_at*."""
        looks, counting = 0, client.partitions(topic)
        step = counting.send(None)
        while True:
            answers: list[MetadataResponse] = []
            if isinstance(step, Round):
                looks += 1
                ((node, question),) = step.requests
                assert node is None
                question.build(ApiKey.METADATA.value)
                answers = [_metadata(topic if looks == found_at else None)]
            try:
                step = counting.send(answers)
            except StopIteration as end:
                return len(end.value), looks

    assert look_for("orders", 3) == (4, 3)
    assert look_for("absent", None) == (0, 7)


def _metadata(topic: str | None) -> MetadataResponse:
    """Return the response of a cluster without brokers, whose only topic is *topic* with four partitions."""
    partitions = [MetadataResponsePartition(partition_index=index, leader_id=-1) for index in range(4)]
    topics = [] if topic is None else [MetadataResponseTopic(name=topic, partitions=partitions)]
    return MetadataResponse(brokers=[], topics=topics)
