"""Batches that a sink refuses instead of guessing, and harmless activities of other programs next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster, ProducerRecord
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.errors import SinkWriteError, UnwritableRowsError
from kafka_sink.exactly_once.model import (
    AttemptError,
    BatchNumbering,
    ExactlyOnceError,
    FencedError,
    Plan,
    Progress,
    ProgressError,
    RowRange,
    UndecidedError,
)
from kafka_sink.exactly_once.protocols import TaskRows
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import (
    OpenTransaction,
    Transaction,
    driver_id,
    is_writer_id,
    sink_id,
    writer_pattern,
)
from kafka_sink.producer import config as producer_config
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.transactional_task import write_in_drivers_transaction, write_in_transaction
from tests.exactly_once.world import PARTITIONS, QUERY, World, open_producer
from tests.fakes.clock import FakeClock
from tests.support.readback import read_topic


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed", "Transactions that the brokers have forgotten are not taken for aborted"
)
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Progress that is missing, foreign, too new or forgotten is refused before a row is written, with what to do",
)
def test_forgotten_transactions_are_not_taken_for_aborted(forgetful: World, forget_ids: Callable[[], None]) -> None:
    world = forgetful
    for version in (0, 1):
        world.write_batch("parallel", version, b"%d-a" % version, b"%d-b" % version)
    forget_ids()
    for _ in range(2):
        plan = world.parallel.plan()
        assert plan.progress is not None
        assert plan.progress.next_version == 2
        for numbers in BatchNumbering:
            with pytest.raises(
                ProgressError, match=r"batch 1 was decided, but the brokers have since forgotten .*verify"
            ):
                plan.must_write(1, QUERY, numbers)
        assert not plan.must_write(0, QUERY, BatchNumbering.OF_AN_APPLICATION)
    # Spark continues only after a commit that ended all transactions.
    world.write_batch("parallel", 2, b"2-a", b"2-b")
    assert not world.parallel.plan().must_write(2, QUERY, BatchNumbering.OF_A_QUERY)
    expected = sorted(b"%d-%s" % (version, half) for version in range(3) for half in (b"a", b"b"))
    assert sorted(map(bytes, world.committed())) == expected  # type: ignore[arg-type]


@pytest.mark.behaviour("Exactly once: neighbours", "Ids that the brokers have forgotten are given up")
@pytest.mark.usefixtures("few_ids")
def test_ids_that_the_brokers_have_forgotten_are_given_up(forgetful: World, forget_ids: Callable[[], None]) -> None:
    world = forgetful
    for version in range(3):
        world.write_batch("parallel", version, b"a", b"b")
    before = set(world.ids_known())
    assert len(before) == 5
    forget_ids()
    for version in range(3, 6):
        world.write_batch("parallel", version, b"a", b"b")
    driver = driver_id(sink_id(world.topic, world.topic))
    assert set(world.ids_known()) & before == {driver}
    assert len(world.committed()) == 12


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed",
    "A checkpoint older than the progress is refused, and only its last batch comes again",
)
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Progress that is missing, foreign, too new or forgotten is refused before a row is written, with what to do",
)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_old_checkpoint_is_refused_unless_at_the_last_batch(world: World, protocol: str) -> None:
    for version in range(4):
        world.write_batch(protocol, version, b"%d" % version)
    world.write_batch(protocol, 3, b"3")
    for version in (0, 2):
        with pytest.raises(
            ProgressError, match=rf"batch {version} of query 1 is older than batch 3, .* is out of date"
        ):
            world.write_batch(protocol, version, b"other rows")
    plan = world.parallel.plan()
    with pytest.raises(ProgressError, match="is older than"):
        plan.must_write(2, QUERY, BatchNumbering.OF_A_QUERY_UNDER_WAY)
    assert not plan.must_write(2, QUERY, BatchNumbering.OF_AN_APPLICATION)
    assert sorted(map(bytes, world.committed())) == [b"0", b"1", b"2", b"3"]  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows", "Other rows under a committed batch number are refused"
)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_last_batch_again_is_skipped_or_refused_with_other_rows(world: World, protocol: str) -> None:
    for version, digest in enumerate(("first", "second")):
        world.write_batch(protocol, version, b"%d" % version, digest=digest)
    world.write_batch(protocol, 1, b"1", digest="second")
    for _ in range(2):
        with pytest.raises(ProgressError, match=r"batch 1 of query 1 is committed, .* were second, and are now other"):
            world.write_batch(protocol, 1, b"1", b"2", digest="other")
    world.write_batch(protocol, 2, b"2", digest="third")
    assert sorted(map(bytes, world.committed())) == [b"0", b"1", b"2"]  # type: ignore[arg-type]


class _Others:
    """A second sink of the same name, which writes to another topic."""

    def __init__(self, cluster: EmbeddedCluster, world: World) -> None:
        cluster.create_topic(f"{world.topic}-2", partitions=PARTITIONS)
        self.world = World(cluster.bootstrap_servers, f"{world.topic}-2")
        self.world.ids = world.ids
        self.world.use(SinkDriver(self.world.client, world.topic, self.world.topic))


@pytest.mark.behaviour("Exactly once: neighbours", "One application may write to several topics at once")
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_one_application_may_write_to_several_topics_at_once(
    cluster: EmbeddedCluster, world: World, protocol: str
) -> None:
    second = _Others(cluster, world).world
    plan = world.parallel.plan()
    written = world.write_task(plan, 0, b"first")
    second.write_batch(protocol, 0, b"second")
    world.steps.decide(plan, Progress(1, QUERY, plan.transaction_version, 0, (written.transaction,)))
    # Another sink must not abort transactions that are decided and not yet committed.
    second.write_batch(protocol, 1, b"third")
    assert not world.parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
    assert world.committed() == [b"first"]
    assert sorted(map(bytes, second.committed())) == [b"second", b"third"]  # type: ignore[arg-type]
    second.client.close()


@pytest.mark.behaviour("Exactly once: neighbours", "Versions of one topic free no transactional ids of another")
def test_versions_of_one_topic_free_no_ids_of_another(cluster: EmbeddedCluster, world: World) -> None:
    second = _Others(cluster, world).world
    plan = world.parallel.plan()
    world.parallel.commit(plan, 5, QUERY, [world.write_task(plan, 5, b"five")])
    for version in range(1000, 1004):
        plan = second.parallel.plan()
        second.parallel.commit(plan, version, QUERY, [second.write_task(plan, version, b"row")])
    plan = world.parallel.plan()
    assert not plan.must_write(5, QUERY, BatchNumbering.OF_AN_APPLICATION)
    assert world.committed() == [b"five"]
    second.client.close()


@pytest.mark.behaviour("Exactly once: refused instead of guessed", "A missing permission is found before the first row")
@pytest.mark.parametrize(
    ("api", "error", "says"),
    [
        ("init_producer_id", "transactional_id_authorization_failed", "grant WRITE and DESCRIBE on"),
        ("offset_fetch", "group_authorization_failed", "grant READ on it"),
        ("txn_offset_commit", "group_authorization_failed", "in the consumer group .*; grant READ on it"),
        ("txn_offset_commit", "topic_authorization_failed", "as offsets of topic .*; grant READ on it"),
    ],
)
def test_a_missing_permission_comes_out_before_the_first_row(
    cluster: EmbeddedCluster, world: World, api: str, error: str, says: str
) -> None:
    def write_rows(plan: Plan) -> list[TaskRows]:
        raise AssertionError("nothing is written")

    with set_fault(cluster.faults, f"{api}:error={error}"), pytest.raises(ExactlyOnceError, match=says):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
    assert world.parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)


@pytest.mark.behaviour(
    "Exactly once: brokers that do not verify transactions", "Brokers are asked once for many batches"
)
def test_brokers_are_asked_for_verification_once_for_all_batches(
    cluster: EmbeddedCluster, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with set_fault(cluster.faults, "describe_configs:error=cluster_authorization_failed") as fault:
        for version in range(3):
            world.write_batch("parallel", version, b"%d" % version)
        # The second request was for offsets.retention.minutes, by a sink without progress.
        assert fault.hits == 2
    warned = [each.getMessage() for each in caplog.records if "verification.enable of broker" in each.getMessage()]
    assert len(warned) == 1
    assert len(world.committed()) == 3


@pytest.mark.behaviour("Exactly once: refused instead of guessed", "Another writer is refused before it fences anybody")
def test_another_writer_is_refused_before_it_fences_anybody(world: World) -> None:
    world.write_batch("parallel", 0, b"a")
    plan = world.parallel.plan(QUERY)
    written = world.write_task(plan, 1, b"b")

    def write_rows(plan: Plan) -> list[TaskRows]:
        raise AssertionError("nothing is written")

    with pytest.raises(ProgressError, match=r"belongs to query 1, .* and not to query 2"):
        world.parallel.plan("query 2")
    with pytest.raises(ProgressError, match=r"belongs to query 1, .* and not to query 2"):
        world.atomic.write(0, "query 2", BatchNumbering.OF_A_QUERY, write_rows, attempts=2)
    world.parallel.commit(plan, 1, QUERY, [written])
    assert sorted(map(bytes, world.committed())) == [b"a", b"b"]  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed",
    "A driver that died in its decision holds up no successor that names its writer",
)
def test_driver_dead_in_its_decision_blocks_no_named_successor(world: World) -> None:
    plan = world.parallel.plan(QUERY)
    written = world.write_task(plan, 0, b"undecided")
    progress = Progress(1, QUERY, plan.transaction_version, 0, (written.transaction,))
    world.client.run(world.steps.propose(plan, progress))
    assert world.parallel.plan(QUERY).must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
    world.write_batch("atomic", 0, b"row")
    assert world.committed() == [b"row"]


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed",
    "A driver that was overtaken after its decision does not call its batch undone",
)
def test_overtaken_driver_does_not_call_its_decision_undone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = world.parallel.plan()
    written = world.write_task(plan, 0, b"row")
    commit_offsets = world.client.commit_offsets

    async def commit_and_be_overtaken(
        transaction: Transaction,
        transaction_version: TransactionVersion,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        before: TopicPartition,
    ) -> OffsetAndMetadata | None:
        found = await commit_offsets(transaction, transaction_version, group, offsets, before)
        # The response to this request is lost.
        world.client.run(world.client.end([transaction], transaction_version, commit=True))
        monkeypatch.undo()
        assert not world.parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
        return found

    monkeypatch.setattr(world.client, "commit_offsets", commit_and_be_overtaken)
    with pytest.raises(FencedError, match=r"newer driver has taken over .* knows whether batch 0 was committed"):
        world.parallel.commit(plan, 0, QUERY, [written])
    assert world.committed() == [b"row"]


def test_a_task_that_fails_aborts_its_own_transaction(world: World) -> None:
    options = parse_options({"kafka.bootstrap.servers": world.bootstrap, "topic": world.topic}).spec
    plan = world.parallel.plan()

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["a"] * 1000})
        raise RuntimeError("the source is gone")

    with pytest.raises(SinkWriteError, match="the source is gone"):
        write_in_transaction(rows(), options, plan, 0, QUERY)
    names = [name for name in world.client.run(world.client.list_ids()) if is_writer_id(plan.sink, name)]
    assert len(names) == 1
    assert world.client.run(world.client.list_ids(["Ongoing"], writer_pattern(plan.sink))) == []
    assert world.client.run(world.client.describe(names))[names[0]].state in ("PrepareAbort", "CompleteAbort")


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed", "Rows that only the brokers refuse are written in one attempt"
)
def test_what_the_brokers_refuse_is_not_tried_again(world: World) -> None:
    # The options lack the topic's configuration, so the task does not check the rows.
    options = parse_options({"kafka.bootstrap.servers": world.bootstrap, "topic": world.topic}).spec
    ahead = datetime.now(UTC) + timedelta(days=1)
    attempts: list[Plan] = []

    def write_rows(plan: Plan) -> list[TaskRows]:
        attempts.append(plan)
        # Two Arrow batches form one record batch of Kafka, in which the first row is valid.
        partition = pa.array([0], pa.int32())
        first = pa.record_batch({"value": ["on time"], "partition": partition})
        second = pa.record_batch({"value": ["ahead"], "partition": partition, "timestamp": [ahead]})
        write_in_drivers_transaction(iter([first, second]), options, plan)
        return [world.rows]

    with pytest.raises(UnwritableRowsError, match=r"INVALID_TIMESTAMP.*message\.timestamp\.after\.max\.ms"):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=4)
    assert len(attempts) == 1
    assert world.committed() == []


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed", "A batch that takes a third of transaction.timeout.ms is warned of"
)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_a_batch_that_takes_a_third_of_the_time_out_is_warned_of(
    world: World, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    world.use(SinkDriver(world.client, world.topic, world.topic, timeout_ms=60_000, clock=clock))
    world.write_batch(protocol, 0, b"quick")
    assert "more than a third" not in caplog.text

    def write_rows(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"slow")
        clock.advance(20_001)
        return [world.rows]

    if protocol == "atomic":
        world.atomic.write(1, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
    else:
        plan = world.parallel.plan()
        written = world.write_task(plan, 1, b"slow")
        clock.advance(20_001)
        world.parallel.commit(plan, 1, QUERY, [written])
    assert (
        "this batch took 20001 ms, more than a third of the time that transactions may stay open (60000" in caplog.text
    )


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed", "A transaction that brokers abort at its time-out is no second driver"
)
@pytest.mark.parametrize("moment", ["rows", "commit"])
def test_a_time_out_is_no_second_driver(world: World, moment: str) -> None:
    """The brokers abort the transaction between the last acknowledgement and the commit; then a second driver does."""
    begun: list[Plan] = []
    newer = World(world.bootstrap, world.topic)

    def write_rows(plan: Plan) -> list[TaskRows]:
        begun.append(plan)
        world.send(plan.driver, plan.transaction_version, b"row")
        if len(begun) == 1:
            # A time-out has the same effect on the id.
            world.client.run(world.client.fence_open(plan.driver))
            if moment == "rows":
                raise FencedError("INVALID_PRODUCER_EPOCH")
        return [world.rows]

    outcome = world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=2)
    assert (outcome.attempts, world.committed()) == (2, [b"row"])

    def be_overtaken(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"void")
        newer.parallel.plan()
        if moment == "rows":
            raise FencedError("INVALID_PRODUCER_EPOCH")
        return [world.rows]

    with pytest.raises(FencedError, match="a newer driver has taken over"):
        world.atomic.write(1, QUERY, BatchNumbering.OF_A_QUERY, be_overtaken, attempts=2)
    assert world.committed() == [b"row"]


class SteppedClock(FakeClock):
    """A clock whose wall clock can be set."""

    wall_is_off_by_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wall_is_off_by_ms


def test_clock_set_back_does_not_make_a_batch_young_again(world: World) -> None:
    clock = SteppedClock()
    world.use(SinkDriver(world.client, world.topic, world.topic, timeout_ms=60_000, clock=clock))
    plan = world.parallel.plan()
    written = world.write_task(plan, 0, b"row")
    clock.advance(59_000)
    clock.wall_is_off_by_ms = -3_600_000
    with pytest.raises(UndecidedError, match="it took 59000 ms"):
        world.parallel.commit(plan, 0, QUERY, [written])


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed", "A failed attempt that cannot be aborted says why it failed"
)
def test_failed_abort_does_not_hide_why_the_attempt_failed(cluster: EmbeddedCluster, world: World) -> None:
    def write_rows(plan: Plan) -> list[TaskRows]:
        world.send(plan.driver, plan.transaction_version, b"row")
        set_fault(cluster.faults, "end_txn:times=1,error=cluster_authorization_failed")
        raise AttemptError("a task failed")

    with pytest.raises(ExactlyOnceError, match="after 1 attempts; the last error: a task failed"):
        world.atomic.write(0, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
    cluster.faults.clear()
    world.write_batch("atomic", 0, b"again")
    assert world.committed() == [b"again"]


@pytest.mark.behaviour("Exactly once: neighbours", "A topic that grows between plan and rows loses nothing")
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_a_topic_that_grows_between_plan_and_rows_loses_nothing(world: World, protocol: str) -> None:
    world.write_batch(protocol, 0, b"before")
    place = TopicPartition(world.topic, PARTITIONS)

    def write_rows(plan: Plan) -> list[TaskRows]:
        _grow(world)
        return [_send_to(world, plan.driver, plan.transaction_version, place)]

    if protocol == "atomic":
        assert world.atomic.write(1, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1).attempts == 1
    else:
        plan = world.parallel.plan()
        _grow(world)
        transaction = world.ids.begin(world.client, plan, 1)
        _send_to(world, transaction, plan.transaction_version, place)
        world.parallel.commit(plan, 1, QUERY, [OpenTransaction(transaction, frozenset({place}))])
    world.write_batch(protocol, 2, b"after")
    assert sorted(map(bytes, world.committed())) == [b"after", b"before", b"new"]  # type: ignore[arg-type]


def _grow(world: World) -> None:
    with AdminClient(world.bootstrap) as admin:
        admin.add_partitions(world.topic, PARTITIONS + 1)


def _send_to(
    world: World, transaction: Transaction, transaction_version: TransactionVersion, *places: TopicPartition
) -> TaskRows:
    rows = {}
    with open_producer(producer_config.read(world.properties), transaction, transaction_version) as producer:
        for place in places:
            offset = producer.send(ProducerRecord(place.topic, b"new", partition=place.partition)).result(60).offset
            rows[place] = RowRange(offset, offset + 1)
    return rows


@pytest.mark.behaviour("Exactly once: neighbours", "A batch over many topics is visible as a whole or not at all")
def test_batch_over_many_topics_is_visible_whole_or_not_at_all(cluster: EmbeddedCluster, world: World) -> None:
    topics = [f"{world.topic}-{number}" for number in range(3)]
    for topic in topics:
        cluster.create_topic(topic, partitions=2)
    places = [TopicPartition(topic, partition) for topic in topics for partition in (0, 1)]

    def found() -> list[int]:
        return [len(read_topic(world.bootstrap, topic)) for topic in topics]

    plan = world.parallel.plan()
    written = []
    for part in (places[::2], places[1::2]):
        transaction = world.ids.begin(world.client, plan, 0)
        rows = _send_to(world, transaction, plan.transaction_version, *part)
        written.append(OpenTransaction(transaction, frozenset(rows)))
    assert found() == [0, 0, 0]
    world.parallel.commit(plan, 0, QUERY, written)
    assert found() == [2, 2, 2]

    def write_rows(plan: Plan) -> list[TaskRows]:
        return [_send_to(world, plan.driver, plan.transaction_version, *part) for part in (places[::2], places[1::2])]

    world.atomic.write(1, QUERY, BatchNumbering.OF_A_QUERY, write_rows, attempts=1)
    assert found() == [4, 4, 4]
    driver = driver_id(sink_id(world.topic, world.topic))
    assert world.client.run(world.client.describe([driver]))[driver].is_over


@pytest.mark.parametrize(("minutes", "is_warned_of"), [(10_079, True), (10_080, False)])
def test_brokers_that_soon_forget_progress_are_warned_of_once(
    minutes: int, is_warned_of: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedCluster(config=BrokerConfig(offsets_retention_minutes=minutes)) as cluster:
        cluster.create_topic("kept", PARTITIONS)
        world = World(cluster.bootstrap_servers, "kept")
        for version in range(2):
            world.write_batch("parallel", version, b"a", b"b")
        found = [each.getMessage() for each in caplog.records if "offsets.retention.minutes" in each.getMessage()]
        assert len(found) == is_warned_of
        assert all("the sink 'kept' 10079 minutes after its last batch" in text for text in found)
        world.client.close()
