"""The advice of errors, warnings and pages is followed literally, and the rows are counted afterwards."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from kafka_sink import EmbeddedCluster, ProducerRecord
from kafka_sink.cli.main import cli
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.exactly_once.model import (
    BatchNumbering,
    ExactlyOnceError,
    LostEndError,
    Plan,
    Progress,
    ProgressError,
    Skipped,
    TornBatchError,
    UndecidedError,
)
from kafka_sink.exactly_once.protocols import TaskRows
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import (
    COMPLETING_MS,
    Transaction,
    driver_id,
    record_of,
    repair_id,
    sink_id,
    writer_id,
)
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.spark.driver.write_report import WriteSummary
from tests.exactly_once.texts import FOLLOWED, OTHERS, ROOT, texts
from tests.exactly_once.world import PARTITIONS, QUERY, World
from tests.support.losing_markers import lost_ends
from tests.support.waiting import until

UNDER_WAY, APPLICATION = BatchNumbering.OF_A_QUERY_UNDER_WAY, BatchNumbering.OF_AN_APPLICATION


def commands(text: object) -> list[list[str]]:
    """Return the commands in *text*, in its order."""
    return [shlex.split(each)[1:] for each in re.findall(r"`(kafkalite [^`]+)`", str(text))]


def run(world: World, command: list[str], *more: str) -> Result:
    return CliRunner().invoke(cli, [*command, "--bootstrap-server", world.bootstrap, *more])


def followed(world: World, command: list[str], *more: str) -> None:
    answer = ("--yes",) if command[:2] == ["groups", "delete"] and "--yes" not in more else ()
    done = run(world, command, *more, *answer)
    assert done.exit_code == 0, done.output


def by_another_program(world: World, *values: bytes) -> None:
    with KafkaProducer({"bootstrap.servers": world.bootstrap}) as producer:
        for value in values:
            producer.send(ProducerRecord(world.topic, value, partition=0))


def found(world: World) -> list[bytes]:
    return sorted(map(bytes, world.committed()))  # type: ignore[arg-type]


def renamed(world: World, name: str) -> World:
    """Return a sink for the same topic with another name."""
    other = World(world.bootstrap, world.topic)
    other.use(SinkDriver(other.client, name, world.topic))
    return other


# --- a batch that is torn, or whose outcome is unknown ---------------------------------------------------------------


def torn(world: World) -> TornBatchError:
    """Write batch 1 of a, b and c, of which the brokers abort b and c; return the error of its next run."""
    world.write_batch("parallel", 0, b"0")
    world.decide_and_die(1, b"a", b"b", b"c")
    opened = [each.transaction for each in world.ids_known().values() if each.is_ongoing]
    world.client.run(world.client.end(opened, world.client.transaction_version(), commit=False))
    world.restart()
    with pytest.raises(TornBatchError) as caught:
        world.write_batch("parallel", 1, b"a", b"b", b"c")
    return caught.value


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_torn_batch_is_accepted_when_its_rows_are_there(world: World) -> None:
    error = torn(world)
    (have,) = set(found(world)) - {b"0"}
    (accept,) = commands(error)
    asked = run(world, accept)
    assert asked.exit_code == 1
    assert "aborted by the brokers" in asked.output
    assert "never write batch 1 again" in asked.output
    with pytest.raises(TornBatchError):
        world.write_batch("parallel", 1, b"a", b"b", b"c")
    by_another_program(world, *({b"a", b"b", b"c"} - {have}))
    followed(world, accept, "--yes")
    # Spark runs the batch again.
    world.restart()
    for version, rows in enumerate([[b"a", b"b", b"c"], [b"2"]], 1):
        world.write_batch("parallel", version, *rows)
    assert found(world) == [b"0", b"2", b"a", b"b", b"c"]
    again = run(world, accept, "--yes")
    assert again.exit_code == 1
    assert "its last decision is batch 2" in again.output


def test_only_what_the_sink_cannot_judge_is_accepted(world: World) -> None:
    accept = ["txn", "accept", world.topic, world.topic, "--yes", "--version"]
    assert "its writer has to be given" in run(world, [*accept, "0"]).output
    world.write_batch("parallel", 0, b"0", b"0")
    assert "batch 0 is complete: there is nothing to accept" in run(world, [*accept, "0"]).output
    for version in ("-1", "1"):
        assert "its last decision is batch 0, and no other" in run(world, [*accept, version]).output
    world.decide_and_die(1, b"a", b"b")
    assert "are not ended yet: start the sink" in run(world, [*accept, "1"]).output
    assert f"it belongs to {QUERY}" in run(world, [*accept, "1", "--writer", "query 2"]).output
    world.write_batch("parallel", 2, b"2")
    assert found(world) == [b"0", b"0", b"2", b"a", b"b"]


def test_batch_that_was_aborted_as_a_whole_is_not_accepted(world: World) -> None:
    plan = world.parallel.plan()
    written = tuple(world.write_task(plan, 0, value).transaction for value in (b"a", b"b"))
    world.client.run(world.client.end(written, plan.transaction_version, commit=False))
    world.steps.decide(plan, Progress(1, QUERY, plan.transaction_version, 0, written))
    done = run(world, ["txn", "accept", world.topic, world.topic, "--version", "0", "--yes"])
    assert "no row of batch 0 is in Kafka: start the sink, which writes the batch again" in done.output
    world.write_batch("parallel", 0, b"a", b"b")
    assert found(world) == [b"a", b"b"]


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
@pytest.mark.parametrize("in_kafka", [[], [b"a"]], ids=["nothing", "a part"])
def test_forgotten_batch_is_accepted_as_it_is(
    forgetful: World, forget_ids: Callable[[], None], in_kafka: list[bytes]
) -> None:
    world = forgetful
    world.write_batch("parallel", 0, b"0")
    plan = world.parallel.plan()
    rows = (b"a", b"b")
    written = {value: world.write_task(plan, 1, value).transaction for value in rows}
    world.steps.decide(plan, Progress(2, QUERY, plan.transaction_version, 0, tuple(sorted(written.values()))))
    for value, transaction in written.items():
        world.client.run(world.client.end([transaction], plan.transaction_version, commit=value in in_kafka))
    forget_ids()
    world.restart()
    with pytest.raises(ProgressError, match="have since forgotten its transactions") as caught:
        world.write_batch("parallel", 1, *rows)
    there, nothing = commands(caught.value)
    if in_kafka:
        by_another_program(world, *(set(rows) - set(in_kafka)))
    followed(world, there if in_kafka else nothing, "--yes")
    world.restart()
    world.write_batch("parallel", 1, *rows)
    world.write_batch("parallel", 2, b"2")
    assert found(world) == [b"0", b"2", b"a", b"b"]


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_interrupted_repair_is_accepted_as_it_is(world: World, protocol: str, is_there: bool, is_hidden: bool) -> None:
    """The driver was writing its lost commit again, when an outage or another driver aborted that. Even if a later
    fence hides the abort (*is_hidden*), the record of the commit remains."""
    world.write_batch(protocol, 0, b"0")
    rows = (b"a", b"b")
    if is_there:
        by_another_program(world, *rows)
    sink = sink_id(world.topic, world.topic)
    driver = driver_id(sink)
    begun = world.client.run(world.client.init_producer_id(driver, COMPLETING_MS[0]))
    world.client.run(world.client.add_to_transaction(begun, [TopicPartition(world.topic, 0)], world.topic))
    world.client.run(world.client.end([begun], world.client.transaction_version(), commit=False))
    if is_hidden:
        world.client.run(world.client.init_producer_id(repair_id(sink), record_of(begun.epoch)))
        world.client.run(world.client.init_producer_id(driver, 60_000))
    for _ in range(2):
        world.restart()
        with pytest.raises(LostEndError, match="may have been aborted while it was written again") as caught:
            world.write_batch(protocol, 1, *rows)
    there, nothing = commands(caught.value)
    followed(world, there if is_there else nothing, "--yes")
    world.restart()
    world.write_batch(protocol, 1, *rows)
    world.write_batch(protocol, 2, b"2")
    assert found(world) == [b"0", b"2", b"a", b"b"]


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
@pytest.mark.parametrize(("protocol", "in_kafka"), [("parallel", "all"), ("atomic", "nothing")])
def test_sink_without_progress_goes_on_as_told(world: World, protocol: str, in_kafka: str) -> None:
    """Spark repeats batch 2, or runs it for the first time."""
    for version in range(3 if in_kafka == "all" else 2):
        world.write_batch(protocol, version, b"%d" % version)
    followed(world, ["groups", "delete", world.topic, "--topic", world.topic])
    world.restart()
    with pytest.raises(ProgressError, match="has no progress of earlier batches") as caught:
        world.write_batch(protocol, 2, b"2")
    if in_kafka == "all":
        (accept,) = commands(caught.value)
        followed(world, accept, "--yes")
        world.write_batch(protocol, 2, b"2")
    else:
        assert "continue with option allowMissingProgress=true, which writes it" in str(caught.value)
        world.write_batch(protocol, 2, b"2", numbers=UNDER_WAY)
    world.write_batch(protocol, 3, b"3")
    assert found(world) == [b"0", b"1", b"2", b"3"]


# --- another writer, another checkpoint, another program -------------------------------------------------------------


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
@pytest.mark.parametrize("way", ["another name", "without the progress"])
def test_another_writer_writes_all_that_it_reads(cluster: EmbeddedCluster, world: World, way: str) -> None:
    cluster.create_topic(f"{world.topic}-2", partitions=1)
    beside = World(world.bootstrap, f"{world.topic}-2")
    beside.use(SinkDriver(beside.client, world.topic, beside.topic))
    for each in (world, beside):
        each.write_batch("parallel", 0, b"first")
    with pytest.raises(ProgressError, match="belongs to query 1") as caught:
        world.write_batch("parallel", 0, b"first", writer="query 2")
    if way == "another name":
        renamed(world, f"{world.topic}-other").write_batch("parallel", 0, b"first", writer="query 2")
    else:
        (delete,) = commands(caught.value)
        followed(world, delete)
        world.write_batch("parallel", 0, b"first", writer="query 2")
    assert "writes all rows that it reads, also those that the other has written" in str(caught.value)
    assert found(world) == [b"first", b"first"]
    # The sink of the same name, which writes to the other topic, continues.
    beside.write_batch("parallel", 0, b"first")
    beside.write_batch("parallel", 1, b"second")
    assert found(beside) == [b"first", b"second"]
    beside.client.close()


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
@pytest.mark.parametrize(("refused", "way"), [("older", "another name"), ("other rows", "newer checkpoint")])
def test_old_checkpoint_goes_on_as_told(world: World, refused: str, way: str) -> None:
    """The checkpoint has batches 0 and 1; after the newer checkpoint, batch 3 is the next one."""
    for version in range(3):
        world.write_batch("parallel", version, b"%d" % version, digest=f"digest {version}")
    version = 1 if refused == "older" else 2
    with pytest.raises(ProgressError) as caught:
        world.write_batch("parallel", version, b"other", digest="of others")
    assert "Continue with the newer checkpoint; or choose another transactionalIdPrefix" in str(caught.value)
    assert re.search("rows since (that|this) checkpoint are written again", str(caught.value))
    if way == "newer checkpoint":
        world.write_batch("parallel", 3, b"3", digest="digest 3")
        assert found(world) == [b"0", b"1", b"2", b"3"]
        return
    other = renamed(world, f"{world.topic}-other")
    for again in range(version, 4):
        other.write_batch("parallel", again, b"%d" % again, numbers=UNDER_WAY)
    since = [b"%d" % again for again in range(version, 3)]
    assert found(world) == sorted([b"0", b"1", b"2", b"3", *since])


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
@pytest.mark.parametrize("way", ["another name", "without the offsets"])
def test_group_of_another_program_is_left_or_cleared(world: World, way: str) -> None:
    theirs = {TopicPartition(world.topic, 0): OffsetAndMetadata(5, "theirs")}
    plan = world.parallel.plan()
    commit = world.client.commit_offsets(
        plan.driver, plan.transaction_version, world.topic, theirs, TopicPartition(world.topic, 0)
    )
    world.client.run(commit)
    world.client.run(world.client.end([plan.driver], plan.transaction_version, commit=True))
    with pytest.raises(ProgressError, match="another application uses the group") as caught:
        world.write_batch("parallel", 0, b"0")
    if way == "another name":
        world = renamed(world, f"{world.topic}-other")
    else:
        (delete,) = commands(caught.value)
        followed(world, delete)
    for version in (0, 1):
        world.write_batch("parallel", version, b"%d" % version)
    assert found(world) == [b"0", b"1"]


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_sink_begins_anew_as_told(world: World) -> None:
    world.write_batch("parallel", 0, b"0")
    for command in (["reset-offsets", world.topic, "--to-offset", "0"], ["delete", world.topic]):
        refused = run(world, ["groups", *command])
        assert refused.exit_code == 1
        assert re.search("writes? all rows of its source again", refused.output)
        (delete,) = commands(" ".join(refused.output.split()))
    followed(world, delete)
    for version in (0, 1):
        world.write_batch("parallel", version, b"%d" % version, writer="query 2")
    assert found(world) == [b"0", b"0", b"1"]


# --- versions and their numbers --------------------------------------------------------------------------------------


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_version_that_came_too_late_is_written_under_a_later_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for version in (0, 5):
        world.write_batch("atomic", version, b"%d" % version)
    plan = world.parallel.plan(QUERY, 1)
    assert not plan.must_write(1, QUERY, APPLICATION)
    WriteSummary(sink=world.topic).skipped(plan.skipped(1))
    assert "write them under a version that is later than 5" in caplog.messages[-1]
    world.write_batch("atomic", 6, b"1", numbers=APPLICATION)
    assert found(world) == [b"0", b"1", b"5"]
    assert Skipped(1, 5).is_older


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_version_that_failed_is_written_before_the_next(world: World) -> None:
    def write_rows(plan: Plan) -> list[TaskRows]:
        raise ExactlyOnceError("a task failed")

    world.write_batch("atomic", 0, b"0", numbers=APPLICATION)
    with pytest.raises(ExactlyOnceError):
        world.atomic.write(1, QUERY, APPLICATION, write_rows, attempts=1)
    for version in (1, 2):
        world.write_batch("atomic", version, b"%d" % version, numbers=APPLICATION)
    assert found(world) == [b"0", b"1", b"2"]


# --- what stops a batch ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_batch_of_too_many_tasks_is_written_with_fewer(cluster: EmbeddedCluster, world: World) -> None:
    cluster.create_topic(f"{world.topic}-progress", partitions=PARTITIONS)
    world.write_batch("parallel", 0, b"0")
    plan = world.parallel.plan()
    sink = sink_id(world.topic, world.topic)
    many = tuple(Transaction(writer_id(sink, number.to_bytes(6, "big"), 1), 10**15, 7) for number in range(1500))
    with pytest.raises(UndecidedError, match=r"coalesce .* or choose a topic with more partitions, and allowMissing"):
        world.steps.decide(plan, Progress(2, QUERY, plan.transaction_version, 0, many))
    world.write_batch("parallel", 1, b"1")
    other = World(world.bootstrap, world.topic)
    other.use(SinkDriver(other.client, world.topic, f"{world.topic}-progress"))
    for version in (2, 3):
        other.write_batch("parallel", version, b"%d" % version, numbers=UNDER_WAY)
    assert found(world) == [b"0", b"1", b"2", b"3"]
    other.client.close()


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
@pytest.mark.parametrize("ended", ["a task's transaction", "the driver's transaction"])
def test_undecided_batch_is_run_again(world: World, ended: str) -> None:
    world.write_batch("parallel", 0, b"0")
    plan = world.parallel.plan()
    written = world.write_task(plan, 1, b"1")
    chosen = written.transaction if ended == "a task's transaction" else plan.driver
    if chosen == plan.driver:
        world.client.run(world.steps.propose(plan, Progress(2, QUERY, plan.transaction_version, 0)))
        world.client.run(world.client.end([chosen], plan.transaction_version, commit=False))
        with pytest.raises(ExactlyOnceError):
            world.steps.end_decision(plan, Progress(2, QUERY, plan.transaction_version, 0))
    else:
        world.client.run(world.client.end([chosen], plan.transaction_version, commit=False))
        with pytest.raises(UndecidedError, match="run it again"):
            world.parallel.commit(plan, 1, QUERY, [written])
    world.restart()
    world.write_batch("parallel", 1, b"1")
    assert found(world) == [b"0", b"1"]


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_rows_of_one_partition_are_brought_to_one_task(world: World) -> None:
    def by_two(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"0")
        return [world.rows, world.rows]

    with pytest.raises(ExactlyOnceError, match="repartition the rows so that one task writes each partition"):
        world.atomic.write(0, QUERY, APPLICATION, by_two, attempts=1)
    world.write_batch("atomic", 0, b"0")
    assert found(world) == [b"0"]


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_end_that_nothing_proves_is_ended_by_hand(world: World) -> None:
    def at_rest() -> bool:
        return all(not each.state.startswith("Prepare") for each in world.ids_known().values())

    world.write_batch("atomic", 0, b"0")
    until("the ends", at_rest)
    with lost_ends(offsets=False):
        world.write_batch("atomic", 1, b"1")
        until("the ends", at_rest)
        # Another program takes over the id, so that the brokers no longer know the outcome of its last transaction.
        world.client.run(world.client.init_producer_id(driver_id(world.steps.id), 60_000))
    following = World(world.bootstrap, world.topic)
    with pytest.raises(LostEndError) as caught:
        following.write_batch("atomic", 2, b"2")
    (named,) = re.findall(r"'kafkalite (txn hanging [^']+)'", str(caught.value))
    (offset,) = re.findall(r"from offset (\d+) on", str(caught.value))
    assert run(world, shlex.split(named), "--commit-at", offset).exit_code == 1
    followed(world, shlex.split(named), "--abort-at", offset)
    by_another_program(world, b"1")
    following.write_batch("atomic", 1, b"1")
    following.write_batch("atomic", 2, b"2")
    assert found(world) == [b"0", b"1", b"2"]
    following.client.close()


# --- the texts themselves --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_every_text_that_advises_something_is_followed_by_a_test() -> None:
    unknown = [(place, text) for place, text in texts() if sum(part in text for part in (*FOLLOWED, *OTHERS)) != 1]
    assert unknown == []
    every = [text for _, text in texts()]
    assert [part for part in (*FOLLOWED, *OTHERS) if not any(part in text for text in every)] == []


@pytest.mark.behaviour("Exactly once: advice", "Advice that is followed word for word loses and repeats no row")
def test_tests_that_follow_advice_exist() -> None:
    written = "".join(path.read_text() for path in (ROOT / "tests").glob("**/test_*.py"))
    named = {name for names in FOLLOWED.values() for name in names}
    assert sorted(name for name in named if f"def {name}(" not in written) == []
