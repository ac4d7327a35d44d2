"""Both protocols of exactly once on a real Kafka, in both transaction versions; longer: KAFKALITE_DRIVER_LIVES."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from kafka_sink import ProducerRecord
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.model import LAST_PRODUCER_EPOCH, TopicPartition
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import BatchNumbering, Plan, Progress, TornBatchError, UndecidedError
from kafka_sink.exactly_once.protocols import ParallelSink
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import OpenTransaction, driver_id, sink_id
from kafka_sink.exactly_once.writing import WriterTransactions
from kafka_sink.producer import config as producer_config
from tests.compat.kafka_version import requires_kafka
from tests.conftest import Figure
from tests.exactly_once.lives import run_in_process
from tests.exactly_once.world import PARTITIONS, World, open_producer
from tests.support import amounts
from tests.support.amounts import only_long
from tests.support.readback import read_topic
from tests.support.real_kafka import RealKafka

LIVES = amounts.DRIVER_LIVES_ON_KAFKA
TIMEOUT_S = 60.0

pytestmark = requires_kafka("3.6", "the verification of transactions (KIP-890, part 1)")


@pytest.mark.behaviour(
    "Faults: exactly once", "Whatever dies or freezes, nothing is lost, torn or there twice on a real Kafka"
)
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Whatever dies or freezes, nothing is lost, torn or there twice in both transaction versions",
)
@pytest.mark.timeout(200 + 20 * LIVES)
@pytest.mark.parametrize(
    "version",
    [
        pytest.param("2", id="version 2", marks=requires_kafka("4.0", "transactions version 2 (KIP-890, part 2)")),
        pytest.param("1", id="version 1", marks=only_long),
    ],
)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_exactly_once_survives_kills_and_freezes_on_kafka(
    real_kafka: RealKafka, protocol: str, version: str, figure: Figure
) -> None:
    verdict = run_in_process(
        real_kafka.bootstrap_servers, protocol, LIVES, "--seed", "7", "--transaction-version", version
    )
    figure(f"{protocol} version {version}", verdict["text"])
    assert verdict["is_exact"], verdict


class _Decided:
    """A batch of two transactions that is decided and then abandoned until the brokers have aborted the *lost* ones.

    Only these have a short time-out, so that nothing else depends on the machine's speed.
    """

    def __init__(self, kafka: RealKafka, client: CoordinatorClient, *lost: int) -> None:
        self.topic = f"torn-{os.urandom(4).hex()}"
        self._properties = {"bootstrap.servers": kafka.bootstrap_servers}
        self._client = client
        with AdminClient(kafka.bootstrap_servers) as admin:
            admin.create_topic(self.topic, 2)
        self._steps = SinkDriver(client, self.topic, self.topic, timeout_ms=300_000)
        self.sink = ParallelSink(self._steps)
        self.plan = self.sink.plan()
        ids, brief = WriterTransactions(), replace(self.plan, timeout_ms=2000)
        plans = [brief if partition in lost else self.plan for partition in (0, 1)]
        self.written = [self._write(ids, plan, partition) for partition, plan in enumerate(plans)]

    def _write(self, ids: WriterTransactions, plan: Plan, partition: int) -> OpenTransaction:
        transaction = ids.begin(self._client, plan, 0)
        with open_producer(
            producer_config.read(self._properties), transaction, self.plan.transaction_version
        ) as producer:
            producer.send(ProducerRecord(self.topic, b"row", partition=partition))
            producer.flush()
        return OpenTransaction(transaction, frozenset({TopicPartition(self.topic, partition)}))

    def decide(self) -> Plan:
        transactions = tuple(sorted(each.transaction for each in self.written))
        self._steps.decide(self.plan, Progress(1, "query", self.plan.transaction_version, 0, transactions))
        return self.plan

    def await_abort(self, count: int) -> None:
        names = [each.transaction.transactional_id for each in self.written]
        deadline = time.monotonic() + TIMEOUT_S
        while self._aborted(names) < count:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def _aborted(self, names: list[str]) -> int:
        described = self._client.run(self._client.describe(names))
        return sum(each.state == "CompleteAbort" for each in described.values())


@pytest.mark.behaviour("Exactly once: too late", "A decided batch that timed out in part is reported with what is lost")
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Transactions that time out on a real Kafka are refused, named or run again, by how many there were",
)
def test_partly_timed_out_decided_batch_reports_what_is_lost(real_kafka: RealKafka) -> None:
    with CoordinatorClient({"bootstrap.servers": real_kafka.bootstrap_servers}) as client:
        decided = _Decided(real_kafka, client, 1)
        plan = decided.decide()
        kept, lost = (each.transaction for each in decided.written)
        client.run(client.end([kept], plan.transaction_version, commit=True))
        decided.await_abort(1)
        for _ in range(2):
            with pytest.raises(TornBatchError) as caught:
                decided.sink.plan()
            assert caught.value.lost == [lost]
            assert caught.value.committed == [kept]
            assert str(lost) in str(caught.value)


@pytest.mark.behaviour("Exactly once: too late", "A decided batch that timed out as a whole counts as not decided")
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Transactions that time out on a real Kafka are refused, named or run again, by how many there were",
)
def test_wholly_timed_out_decided_batch_counts_as_undecided(real_kafka: RealKafka) -> None:
    with CoordinatorClient({"bootstrap.servers": real_kafka.bootstrap_servers}) as client:
        decided = _Decided(real_kafka, client, 0, 1)
        decided.decide()
        decided.await_abort(2)
        plan = decided.sink.plan()
        assert plan.must_write(0, "query", BatchNumbering.OF_A_QUERY)
        assert read_topic(real_kafka.bootstrap_servers, decided.topic) == []


@pytest.mark.behaviour("Exactly once: too late", "Transactions that timed out before the decision are not committed")
@pytest.mark.behaviour(
    "Faults: exactly once",
    "Transactions that time out on a real Kafka are refused, named or run again, by how many there were",
)
def test_transactions_timed_out_before_decision_stay_uncommitted(real_kafka: RealKafka) -> None:
    with CoordinatorClient({"bootstrap.servers": real_kafka.bootstrap_servers}) as client:
        decided = _Decided(real_kafka, client, 0, 1)
        decided.await_abort(2)
        with pytest.raises(UndecidedError, match="batch 0 was not committed"):
            decided.sink.commit(decided.plan, 0, "query", decided.written)
        assert decided.sink.plan().must_write(0, "query", BatchNumbering.OF_A_QUERY)


@only_long
@pytest.mark.behaviour(
    "Exactly once: ids and versions", "The last epoch of an id is passed by drivers, and by ids that are used again"
)
@pytest.mark.behaviour("Faults: exactly once", "Every row is there once when an id passes its last epoch")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_drivers_pass_the_last_epoch_on_kafka(real_kafka: RealKafka, protocol: str, figure: Figure) -> None:
    topic = f"aged-{os.urandom(4).hex()}"
    with AdminClient(real_kafka.bootstrap_servers) as admin:
        admin.create_topic(topic, PARTITIONS)
    world = World(real_kafka.bootstrap_servers, topic, timeout_ms=90_000)
    world.write_batch(protocol, 0, b"00-a", b"00-b")
    name = driver_id(sink_id(topic, topic))
    aged = world.client.run(world.client.init_producer_id(name, 60_000, repeat_lost=False))
    while aged.epoch < LAST_PRODUCER_EPOCH - 4:
        aged = world.client.run(world.client.init_producer_id(name, 60_000, repeat_lost=False))
    world.restart()
    drivers = [aged]
    for version in range(1, 9):
        drivers.append(world.parallel.plan().driver)
        world.write_batch(protocol, version, b"%02d-a" % version, b"%02d-b" % version)
    rows = world.committed()
    world.client.close()
    figure(protocol, ", ".join(f"{each.producer_id}:{each.epoch}" for each in drivers))
    assert not any(each.is_reserved for each in drivers)
    assert drivers[-1].producer_id != aged.producer_id
    assert sorted(map(bytes, rows)) == [b"%02d-%s" % (version, half) for version in range(9) for half in (b"a", b"b")]  # type: ignore[arg-type]
