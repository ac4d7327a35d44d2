"""Two-phase commit (KIP-939): decided transactions wait for their driver without a time-out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner

from kafka_sink import EmbeddedCluster, KafkaProducer
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.cli.commands.txn import txn
from kafka_sink.common.errors import ConfigError, KafkaError
from kafka_sink.common.model import NO_TIMEOUT_MS, TransactionVersion
from kafka_sink.exactly_once.model import BatchNumbering, ExactlyOnceError, TornBatchError
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import is_writer_id
from kafka_sink.spark.options import parse_options
from tests.exactly_once.conftest import LaterClock
from tests.exactly_once.world import QUERY, World
from tests.support.waiting import until

NEEDED = r"transaction.two.phase.commit.enable=true and unstable.api.versions.enable=true .* TWO_PHASE_COMMIT"
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}
OPTION = "kafka.transaction.two.phase.commit.enable"
_TIMEOUT_MS = 600_000


@pytest.fixture(scope="module")
def brokers_clock() -> LaterClock:
    return LaterClock()


@pytest.fixture(scope="module", params=TransactionVersion, ids=lambda version: f"version {version}")
def cluster(request: pytest.FixtureRequest, brokers_clock: LaterClock) -> Iterator[EmbeddedCluster]:
    config = replace(
        BrokerConfig(),
        transaction_version=request.param,
        transaction_two_phase_commit_enable=True,
        unstable_api_versions_enable=True,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=50,
    )
    with EmbeddedCluster(nodes=1, config=config, clock=brokers_clock) as running:
        yield running


def patient(world: World, *, two_phase: bool = True) -> World:
    """Return the sink as in a new process, with transactions that time out within the hour or never."""
    made = World(world.bootstrap, world.topic)
    made.use(SinkDriver(made.client, made.topic, made.topic, timeout_ms=_TIMEOUT_MS, two_phase=two_phase))
    return made


def await_time_out(world: World, brokers_clock: LaterClock) -> None:
    """Advance the brokers' clock, and wait until they have aborted transactions that time out."""
    is_aborted = world.begin_elsewhere(_TIMEOUT_MS)
    brokers_clock.later_by_ms += _TIMEOUT_MS
    until("the time-out", is_aborted)


@pytest.mark.behaviour(
    "Exactly once: too late", "With two-phase commit, a decided batch is complete after an outage of any length"
)
@pytest.mark.parametrize("two_phase", [True, False], ids=["two-phase", "without"])
def test_decided_batch_waits_for_its_driver(world: World, brokers_clock: LaterClock, two_phase: bool) -> None:
    # Repeated several times, so that the ids are reused.
    for version in range(0, 8, 2):
        sink = patient(world, two_phase=two_phase)
        sink.write_batch("parallel", version, b"%d-a" % version, b"%d-b" % version)
        sink.decide_and_die(version + 1, b"%d-a" % (version + 1), b"%d-b" % (version + 1))
        await_time_out(world, brokers_clock)
        successor = patient(world, two_phase=two_phase)
        if not two_phase:
            with pytest.raises(TornBatchError):
                successor.parallel.plan()
            return
        assert not successor.parallel.plan().must_write(version + 1, QUERY, BatchNumbering.OF_A_QUERY)
    expected = [b"%d-%s" % (version, half) for version in range(8) for half in (b"a", b"b")]
    assert sorted(map(bytes, world.committed())) == expected  # type: ignore[arg-type]


@pytest.mark.behaviour("Exactly once: too late", "Transactions of two-phase commit never time out, also as they go on")
@pytest.mark.usefixtures("few_ids")
def test_ids_that_go_on_keep_having_no_time_out(world: World) -> None:
    sink = patient(world)
    for version in range(4):
        sink.write_batch("parallel", version, b"a", b"b")
    known = {name: each for name, each in sink.ids_known().items() if is_writer_id(sink.steps.id, name)}
    assert len(known) == 4
    assert {each.timeout_ms for each in known.values()} == {NO_TIMEOUT_MS}


@pytest.mark.behaviour("Exactly once: too late", "What nobody decided is aborted by the next driver, or by hand")
def test_undecided_is_ended_by_the_next_driver_or_by_hand(world: World) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(txn, [*arguments, "--bootstrap-server", world.bootstrap])
        assert done.exit_code == 0, done.output
        return done.output

    sink = patient(world)
    sink.write_task(sink.parallel.plan(), 0, b"void")
    patient(world).parallel.plan()
    assert world.client.run(world.client.list_ids(["Ongoing"], ".*")) == []
    sink = patient(world)
    undecided = sink.write_task(sink.parallel.plan(), 0, b"void").transaction.transactional_id
    assert "none" in run("list", "--prefix", undecided) and "none" in run("describe", undecided)
    assert f"aborted {undecided}" in run("abort", "--prefix", f"{world.topic}/")
    patient(world).decide_and_die(0, b"a", b"b")
    assert run("abort", "--prefix", f"{world.topic}/").count("has decided to commit") == 1
    assert not patient(world).parallel.plan().must_write(0, QUERY, BatchNumbering.OF_A_QUERY)
    assert len(world.committed()) == 2
    patient(world).decide_and_die(1, b"c", b"d")
    assert run("abort", "--prefix", f"{world.topic}/").count("has decided to commit") == 1
    assert run("commit", "--prefix", f"{world.topic}/").count("committed ") == 1
    assert len(world.committed()) == 4


@pytest.mark.behaviour(
    "Exactly once: too late", "Brokers without two-phase commit are refused before the first row, with what they need"
)
@pytest.mark.parametrize(
    "config",
    [
        BrokerConfig(),
        replace(BrokerConfig(), unstable_api_versions_enable=True),
        replace(BrokerConfig(), transaction_two_phase_commit_enable=True),
    ],
    ids=["neither", "switched off", "version not offered"],
)
def test_brokers_without_two_phase_commit_are_refused(config: BrokerConfig) -> None:
    with EmbeddedCluster(nodes=1, config=config) as cluster:
        cluster.create_topic("rows", partitions=3)
        world = patient(World(cluster.bootstrap_servers, "rows"))
        with pytest.raises(ExactlyOnceError, match=NEEDED):
            world.parallel.plan()
        properties = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "own",
            "transaction.two.phase.commit.enable": "true",
        }
        with KafkaProducer(properties) as producer, pytest.raises(KafkaError, match=NEEDED):
            producer.init_transactions()


def test_producer_asks_for_two_phase_commit(world: World) -> None:
    properties = {
        "bootstrap.servers": world.bootstrap,
        "transactional.id": f"{world.topic}-own",
        "transaction.two.phase.commit.enable": "true",
    }
    with KafkaProducer(properties) as producer:
        producer.init_transactions()
    described = world.client.run(world.client.describe([f"{world.topic}-own"]))
    assert described[f"{world.topic}-own"].timeout_ms == NO_TIMEOUT_MS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({OPTION: "true"}, "has no effect at least once"),
        ({OPTION: "true", "kafka.transaction.timeout.ms": "9000"}, "transaction.timeout.ms=9000 contradicts"),
        ({OPTION: "perhaps"}, "perhaps"),
    ],
)
def test_option_that_cannot_be_followed_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_options({**SERVERS, **options})
    exactly_once = {**SERVERS, OPTION: "true", "txnAppId": "job", "txnVersion": "1"}
    once = parse_options(exactly_once).spec.exactly_once
    assert once is not None and once.two_phase
