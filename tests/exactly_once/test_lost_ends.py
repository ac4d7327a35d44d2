"""The sink writes the decided ends of transactions again if the brokers lose them, or refuses to write more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.cli.commands.txn import txn
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.common.model import Node, TopicPartition, TransactionVersion
from kafka_sink.exactly_once import planning, sink_driver
from kafka_sink.exactly_once.model import (
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    Log,
    LostEndError,
    Plan,
    Progress,
    TornBatchError,
)
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.protocols import TaskRows
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import driver_id
from tests.exactly_once.world import QUERY, World
from tests.support.losing_markers import lost_ends
from tests.support.waiting import until


class _Death(BaseException):
    """The driver dies."""


@pytest.fixture(scope="module", params=TransactionVersion, ids=lambda version: f"version {version}")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=1, config=replace(BrokerConfig(), transaction_version=request.param)) as running:
        yield running


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for ends: the embedded broker applies an end within milliseconds, or has lost it."""
    monkeypatch.setattr(planning, "PATIENCE_MS", 100)


def at_rest(world: World) -> None:
    """Wait until no end of a transaction is pending."""
    until("all ends", lambda: all(not each.state.startswith("Prepare") for each in world.ids_known().values()))


def restarted(world: World, process: str = "new") -> World:
    """Return the sink after the brokers have lost ends, in a new *process* or in the same one."""
    if process == "new":
        return World(world.bootstrap, world.topic)
    # Brokers lose ends of partitions without a leader, so the leaders have changed.
    world.steps.remembered.logs = frozenset({Log(TopicPartition(world.topic, 0), Node(9, "other", 1), 0)})
    return world


def abort_all(world: World, plan: Plan) -> None:
    """Abort all open transactions, as brokers do after transaction.timeout.ms, or the next driver."""
    open_ids = [each.transaction for each in world.ids_known().values() if each.is_ongoing]
    world.client.run(world.client.end(open_ids, plan.transaction_version, commit=False))
    at_rest(world)


def write_void_rows(world: World, protocol: str, version: int) -> Plan:
    """Write the rows of batch *version*, whose driver then dies."""
    if protocol == "parallel":
        plan = world.parallel.plan()
        world.write_task(plan, version, b"void")
        return plan
    plan = plan_batch(world.steps, QUERY, with_rows=True)
    world.send(plan.driver, plan.transaction_version, b"void")
    return plan


def values(world: World) -> list[bytes]:
    return sorted(map(bytes, world.committed()))  # type: ignore[arg-type]


@pytest.mark.behaviour("Exactly once: lost ends", "Rows of an aborted batch whose end is lost never become visible")
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
@pytest.mark.parametrize("process", ["new", "same"])
def test_lost_abort_is_not_turned_into_a_commit(world: World, protocol: str, process: str) -> None:
    world.write_batch(protocol, 0, b"0-a", b"0-b")
    at_rest(world)
    plan = write_void_rows(world, protocol, 1)
    with lost_ends():
        abort_all(world, plan)
    following = restarted(world, process)
    for version in (1, 2, 3):
        following.write_batch(protocol, version, b"%d-a" % version, b"%d-b" % version)
    assert values(following) == [b"%d-%s" % (version, half) for version in range(4) for half in (b"a", b"b")]


@pytest.mark.behaviour("Exactly once: lost ends", "A committed batch whose end is lost becomes visible, and stays so")
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
@pytest.mark.parametrize("process", ["new", "same"])
@pytest.mark.parametrize("lost", ["all", "rows", "offsets"])
def test_lost_commit_is_written_again_before_anything_else(
    world: World, protocol: str, process: str, lost: str
) -> None:
    world.write_batch(protocol, 0, b"0-a", b"0-b")
    at_rest(world)
    with lost_ends(offsets=lost != "rows", rows=lost != "offsets"):
        world.write_batch(protocol, 1, b"1-a", b"1-b")
        at_rest(world)
    following = restarted(world, process)
    # The batch is not repeated, and an abort of the next one does not affect it.
    following.write_batch(protocol, 1, b"1-a", b"1-b")
    write_void_rows(following, protocol, 2)
    following.write_batch(protocol, 2, b"2-a", b"2-b")
    assert values(following) == [b"%d-%s" % (version, half) for version in range(3) for half in (b"a", b"b")]


@pytest.mark.behaviour("Exactly once: lost ends", "A decision whose end is lost is found, and its batch completed")
def test_lost_end_of_a_decision_is_found_and_the_batch_completed(world: World) -> None:
    world.write_batch("parallel", 0, b"0")
    at_rest(world)
    plan = world.parallel.plan()
    written = world.write_task(plan, 1, b"1")
    with lost_ends():
        world.steps.decide(plan, Progress(2, QUERY, plan.transaction_version, 0, (written.transaction,)))
        at_rest(world)
    following = restarted(world)
    assert not following.parallel.plan().must_write(1, QUERY, BatchNumbering.OF_A_QUERY)
    assert values(following) == [b"0", b"1"]


@pytest.mark.behaviour("Exactly once: lost ends", "A decision whose end is lost stays, also if a task was aborted")
def test_the_proof_of_a_torn_batch_discards_no_decision(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(world.bootstrap, world.topic, timeout_ms=4_000)
    plan = world.parallel.plan()
    committed, aborted = (world.write_task(plan, 0, value) for value in (b"a", b"b"))
    end_decision = world.steps.end_decision

    def decide(plan: Plan, progress: Progress) -> None:
        with lost_ends(rows=False):
            end_decision(plan, progress)
            at_rest(world)
        world.client.run(world.client.end([aborted.transaction], plan.transaction_version, commit=False))

    monkeypatch.setattr(world.steps, "end_decision", decide)
    with pytest.raises(KafkaTimeoutError):
        world.parallel.commit(plan, 0, QUERY, [committed, aborted])
    following = restarted(world)
    with pytest.raises(TornBatchError):
        following.write_batch("parallel", 0, b"a", b"b")
    assert values(following) == [b"a"]


@pytest.mark.behaviour("Exactly once: lost ends", "A decision whose end is lost stays, also if a task was aborted")
def test_the_proof_of_a_torn_batch_leaves_a_newer_driver_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = world.parallel.plan()
    committed, aborted = (world.write_task(plan, 0, value) for value in (b"a", b"b"))
    end_decision, following = world.steps.end_decision, World(world.bootstrap, world.topic)

    def decide(plan: Plan, progress: Progress) -> None:
        end_decision(plan, progress)
        world.client.run(world.client.end([aborted.transaction], plan.transaction_version, commit=False))
        with pytest.raises(TornBatchError):
            following.write_batch("parallel", 0, b"a", b"b")
        accept = ["accept", world.topic, world.topic, "--version", "0", "--yes", "--bootstrap-server", world.bootstrap]
        assert CliRunner().invoke(txn, accept).exit_code == 0
        following.write_batch("parallel", 1, b"c")

    monkeypatch.setattr(world.steps, "end_decision", decide)
    with pytest.raises(FencedError):
        world.parallel.commit(plan, 0, QUERY, [committed, aborted])
    following.write_batch("parallel", 2, b"d")
    assert values(following) == [b"a", b"c", b"d"]


@pytest.fixture
def apart(cluster: EmbeddedCluster, world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[World, list[int]]:
    """A sink with separate topics for its progress and its rows, and a list with an entry for each request for the
    leaders of the rows: the number of times that these leaders have changed by then."""
    cluster.create_topic(f"{world.topic}-progress", partitions=1)
    asked, partitions_of = [0], world.client.leaders.partitions_of

    async def ask(topics: Collection[str] | None) -> list[PartitionInfo]:
        found = await partitions_of(topics)
        asked.append(asked[-1])
        return [each._replace(leader_epoch=asked[-1]) if each.topic == world.topic else each for each in found]

    monkeypatch.setattr(world.client.leaders, "partitions_of", ask)
    world.use(SinkDriver(world.client, world.topic, f"{world.topic}-progress", topics={world.topic}))
    return world, asked


@pytest.mark.behaviour(
    "Exactly once: lost ends", "Lost ends of tasks are found by the leaders of the rows, wherever the progress is"
)
def test_lost_ends_are_found_by_the_leaders_of_the_rows(
    apart: tuple[World, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_driver, "MS_FOR_A_LOG", 0)
    world, asked = apart
    for version in range(3):
        world.write_batch("parallel", version, b"%d" % version)
    at_rest(world)
    with lost_ends(offsets=False):
        world.write_batch("parallel", 3, b"3")
        at_rest(world)
    world.write_batch("parallel", 4, b"4")
    assert values(world) == [b"0", b"1", b"2"]
    asked[-1] += 1
    world.write_batch("parallel", 5, b"5")
    at_rest(world)
    assert values(world) == [b"%d" % version for version in range(6)]


def test_leaders_of_many_rows_are_not_asked_for_in_every_batch(
    apart: tuple[World, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_driver, "MS_FOR_A_LOG", 60_000)
    world, asked = apart
    world.write_batch("parallel", 0, b"0")
    before = len(asked)
    for version in (1, 2, 3):
        world.write_batch("parallel", version, b"%d" % version)
    assert len(asked) == before
    assert len(values(world)) == 4


def dying(world: World, after: int) -> list[str]:
    """Let *world* die after *after* requests that change a transaction; return the names of the requests it sent."""
    sent: list[str] = []
    client = world.client

    def counted(name: str, exchange: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            if len(sent) >= after:
                raise _Death
            sent.append(name)
            return exchange(*arguments, **options)

        return call

    for name in ("init_producer_id", "add_to_transaction", "end"):
        setattr(client, name, counted(name, getattr(client, name)))
    return sent


@pytest.mark.behaviour(
    "Exactly once: atomic", "A driver whose transaction was aborted commits no progress without rows"
)
def test_an_aborted_driver_commits_no_progress_without_rows(world: World) -> None:
    world.write_batch("atomic", 0, b"0")
    newer = restarted(world)

    def write_rows(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"void")
        # A newer driver finds the transaction open, ends it, and dies before it has its own epoch.
        newer.client.run(newer.client.fence_open(plan.driver))
        return [world.rows]

    with pytest.raises(ExactlyOnceError, match="batch 1 was not committed after 1 attempts"):
        world.atomic.write(1, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
    restarted(world).write_batch("atomic", 1, b"1")
    assert values(world) == [b"0", b"1"]


@pytest.mark.behaviour("Exactly once: lost ends", "A driver may die anywhere while it writes a lost end again")
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
@pytest.mark.parametrize("ended", ["committed", "aborted"])
def test_driver_may_die_anywhere_while_it_writes_an_end_again(world: World, protocol: str, ended: str) -> None:
    for after in range(12):
        world = restarted(world)
        version = 2 * after
        world.write_batch(protocol, version, b"%02d" % version)
        at_rest(world)
        with lost_ends():
            if ended == "committed":
                world.write_batch(protocol, version + 1, b"%02d" % (version + 1))
            else:
                abort_all(world, write_void_rows(world, protocol, version + 1))
            at_rest(world)
        victim = restarted(world)
        dying(victim, after)
        has_died = False
        try:
            victim.write_batch(protocol, version + 1, b"%02d" % (version + 1))
        except _Death:
            has_died = True
        restarted(world).write_batch(protocol, version + 1, b"%02d" % (version + 1))
        assert values(world) == [b"%02d" % each for each in range(version + 2)], after
        if not has_died:
            break
    assert 3 <= after < 11


@pytest.mark.behaviour("Exactly once: lost ends", "Nothing is written if nothing proves how a transaction ended")
def test_nothing_is_written_while_an_end_is_unproven(world: World) -> None:
    world.write_batch("atomic", 0, b"0")
    at_rest(world)
    with lost_ends():
        world.write_batch("atomic", 1, b"1")
        at_rest(world)
        # Another program takes over the id, so that the brokers no longer know the outcome of its last transaction.
        name = driver_id(world.steps.id)
        world.client.run(world.client.init_producer_id(name, 60_000))
    following = restarted(world)
    place = f"{world.topic}-{0}"
    for _ in range(2):
        with pytest.raises(LostEndError, match=rf"{place} from offset 2 on .*'kafkalite txn hanging {world.topic} 0'"):
            following.write_batch("atomic", 2, b"2")


def test_lost_end_is_ended_by_hand_only_as_it_was_decided(world: World) -> None:
    def hanging(*arguments: str) -> tuple[int, str]:
        target = ("hanging", world.topic, "0", "--bootstrap-server", world.bootstrap)
        done = CliRunner().invoke(txn, [*target, *arguments])
        return done.exit_code, done.output

    world.write_batch("atomic", 0, b"0")
    at_rest(world)
    with lost_ends(offsets=False):
        world.write_batch("atomic", 1, b"1")
        at_rest(world)
    assert values(world) == [b"0"]
    code, text = hanging("--abort-at", "2")
    assert code and "was committed by its coordinator" in text
    assert hanging("--commit-at", "2")[0] == 0
    assert values(world) == [b"0", b"1"]
    plan = write_void_rows(world, "atomic", 2)
    code, text = hanging("--commit-at", "4")
    assert code and "is still open for its coordinator" in text
    with lost_ends(offsets=False):
        world.client.run(world.client.end([plan.driver], plan.transaction_version, commit=False))
        at_rest(world)
    code, text = hanging("--commit-at", "4")
    assert code and "does not prove that it was committed" in text
    assert hanging("--abort-at", "4")[0] == 0
    assert values(world) == [b"0", b"1"]


def test_completing_time_out_is_never_that_of_a_batch(world: World) -> None:
    for timeout_ms in (599_993, 74_999):
        steps = SinkDriver(world.client, world.topic, world.topic, timeout_ms=timeout_ms)
        _, given_ms = world.client.run(steps.fence())
        assert given_ms == timeout_ms - 1
