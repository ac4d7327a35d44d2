"""Two-phase commit (KIP-939) on a real Kafka: a decided batch is complete after an outage of any length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.model import NO_TIMEOUT_MS, TransactionVersion
from kafka_sink.exactly_once.model import BatchNumbering, ExactlyOnceError, TornBatchError
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import is_writer_id
from tests.compat.kafka_version import requires_kafka
from tests.conftest import Figure
from tests.exactly_once.world import PARTITIONS, QUERY, World
from tests.support.amounts import only_long
from tests.support.four_ways import STREAM
from tests.support.killed_spark import KilledSpark
from tests.support.real_kafka import RealKafka, running_kafka
from tests.support.step_proxy import Step, StepProxy
from tests.support.waiting import until

ROUNDS = 3
#: Time-out of transactions that shall expire, long enough for one request on a busy machine.
TIMEOUT_MS = 5000

pytestmark = requires_kafka("4.3", "two-phase commit (KIP-939)")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    properties = (
        "transaction.two.phase.commit.enable=true",
        "unstable.api.versions.enable=true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    )
    with running_kafka(tmp_path_factory.mktemp("kafka"), *properties) as running:
        yield running


class _Sinks:
    """Successive drivers of one sink."""

    def __init__(self, kafka: RealKafka, *, two_phase: bool) -> None:
        self._kafka, self._two_phase = kafka, two_phase
        self.topic = f"two-phase-{os.urandom(4).hex()}"
        with AdminClient(kafka.bootstrap_servers) as admin:
            admin.create_topic(self.topic, PARTITIONS)

    def next(self) -> World:
        world = World(self._kafka.bootstrap_servers, self.topic)
        world.use(SinkDriver(world.client, self.topic, self.topic, two_phase=self._two_phase))
        return world


@pytest.mark.behaviour(
    "Exactly once: too late", "With two-phase commit, a decided batch is complete after an outage of any length"
)
@pytest.mark.parametrize("two_phase", [True, False], ids=["two-phase", "without"])
@pytest.mark.usefixtures("few_ids")
def test_decided_batch_waits_for_its_driver_on_kafka(kafka: RealKafka, two_phase: bool) -> None:
    sinks = _Sinks(kafka, two_phase=two_phase)
    for version in range(0, 2 * ROUNDS, 2):
        world = sinks.next()
        world.write_batch("parallel", version, b"%d-a" % version, b"%d-b" % version)
        rows = [b"%d-a" % (version + 1), b"%d-b" % (version + 1)]
        world.decide_and_die(version + 1, *rows, timeout_ms=TIMEOUT_MS)
        until("the time-out", world.begin_elsewhere(TIMEOUT_MS))
        successor = sinks.next()
        if not two_phase:
            with pytest.raises(TornBatchError):
                successor.parallel.plan()
            return
        assert not successor.parallel.plan().must_write(version + 1, QUERY, BatchNumbering.OF_A_QUERY)
    world = sinks.next()
    for version in range(2 * ROUNDS, 2 * ROUNDS + 4):
        world.write_batch("parallel", version, b"%d-a" % version, b"%d-b" % version)
    expected = [b"%d-%s" % (version, half) for version in range(2 * ROUNDS + 4) for half in (b"a", b"b")]
    assert sorted(map(bytes, world.committed())) == sorted(expected)  # type: ignore[arg-type]
    known = [each for name, each in world.ids_known().items() if is_writer_id(world.steps.id, name)]
    assert {each.timeout_ms for each in known} == {NO_TIMEOUT_MS}
    # Ids were reused without InitProducerId: in version 2 the end of a transaction returns the next one's epoch.
    assert world.client.transaction_version() is TransactionVersion.V2
    assert max(each.transaction.epoch for each in known) >= 2


def test_brokers_without_two_phase_commit_are_refused_on_kafka(real_kafka: RealKafka) -> None:
    world = _Sinks(real_kafka, two_phase=True).next()
    with pytest.raises(ExactlyOnceError, match=r"unstable.api.versions.enable=true .* TWO_PHASE_COMMIT"):
        world.parallel.plan()
    assert world.committed() == []


@only_long
@pytest.mark.behaviour(
    "Exactly once: too late", "A stream of two-phase commit goes on after outages between the commits of a batch"
)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("two_phase", [True, False], ids=["two-phase", "without"])
def test_stream_goes_on_after_outages_between_commits_on_kafka(
    kafka: RealKafka, two_phase: bool, tmp_path: Path, figure: Figure
) -> None:
    # Without it the outage is longer than transactions may stay open, but a batch on a busy machine is shorter.
    outage_s = 22 if two_phase else 92
    option = "kafka.transaction.two.phase.commit.enable=true" if two_phase else "kafka.transaction.timeout.ms=90000"
    with StepProxy(kafka.bootstrap_servers) as proxy:
        spark = KilledSpark(
            proxy,
            kafka.bootstrap_servers,
            [STREAM],
            tmp_path,
            point=Step.BETWEEN_ENDS,
            outage_s=outage_s,
            options=[option],
        )
        if not two_phase:
            with pytest.raises(AssertionError, match="TornBatchError"):
                spark.run(1)
            return
        verdict = spark.run(ROUNDS)[STREAM]
        figure("writeStream", verdict)
        assert verdict.is_exact, verdict
