"""Both protocols of exactly once while the nodes of a real Kafka are killed; KAFKALITE_INTERRUPTIONS says how often.

Without it only those tests run that take no more than seconds after the cluster's start.
"""

from __future__ import annotations

import os
import time

import pytest

from kafka_sink import ProducerRecord
from kafka_sink.client.blocking.blocking import Tries
from kafka_sink.common.clock import SYSTEM_CLOCK, ExponentialBackoff
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import BatchNumbering, Plan
from kafka_sink.exactly_once.protocols import ParallelSink
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import OpenTransaction, driver_id, sink_id
from kafka_sink.exactly_once.writing import WriterTransactions
from kafka_sink.producer import config as producer_config
from kafka_sink.protocol.messages.metadata import GROUP, TRANSACTION
from tests.compat.kafka_cluster import NODES, KafkaCluster
from tests.conftest import Figure
from tests.exactly_once.lives import run_in_process
from tests.exactly_once.world import open_producer
from tests.support import amounts
from tests.support.readback import read_topic
from tests.support.waiting import until

ROUNDS = amounts.INTERRUPTIONS

#: So many that every node leads some.
_PARTITIONS = 12

pytestmark = pytest.mark.timeout(300 + 600 * ROUNDS)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> KafkaCluster:
    if not ROUNDS:
        pytest.skip("KAFKALITE_INTERRUPTIONS is not set")
    found: KafkaCluster = request.getfixturevalue("kafka_of_three")
    return found


@pytest.mark.behaviour(
    "Faults: exactly once", "A coordinator of a real cluster that is killed at every step costs time only"
)
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_coordinator_kill_at_every_step_costs_only_time(cluster: KafkaCluster, protocol: str, figure: Figure) -> None:
    down: list[int] = []

    def kill_coordinator(point: str, sink: str) -> None:
        """Kill the coordinator of the driver's transaction, so that another node takes over; restart the last one."""
        while down:
            cluster.start(down.pop())
            cluster.await_replicas(sink)
        with CoordinatorClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
            down.append(_coordinator(client, TRANSACTION, driver_id(sink_id(sink, sink))))
        cluster.kill(down[0])

    verdict = run_in_process(
        cluster.bootstrap_servers, protocol, ROUNDS, "--interruptions", on_reached=kill_coordinator
    )
    while down:
        cluster.start(down.pop())
    figure(protocol, f"{verdict['text']}; longest stall at each step {verdict['stalls']} s")
    assert verdict["is_exact"], verdict


@pytest.mark.behaviour(
    "Exactly once: wrong and lost answers", "A commit does not wait for a partition whose leader is down"
)
@pytest.mark.behaviour("Faults: exactly once", "A leader that is killed before the commit does not hold the commit up")
def test_commit_does_not_wait_for_partition_with_leader_down(cluster: KafkaCluster, figure: Figure) -> None:
    """Decided rows become visible immediately, those of the partition under its next leader.

    A partition without a replica that can lead has no next leader: Kafka 4.3 then takes it for deleted, writes no
    marker, and its rows stay hidden permanently (KAFKA-20734).
    """
    properties = {"bootstrap.servers": cluster.bootstrap_servers}
    with CoordinatorClient(properties) as client:
        victim: int | None = None
        while victim is None:
            # Repeated until one of the three nodes is no coordinator, and leads partitions; on a busy machine, nodes
            # whose heartbeats are late lead nothing for a while.
            topic = f"down-{os.urandom(4).hex()}"
            sink, plan, written = _written_everywhere(cluster, client, topic)
            victim = _only_leads(cluster, client, topic, written)
        cluster.kill(victim)
        started = time.monotonic()
        sink.commit(plan, 0, "query", written)
        committed_s = time.monotonic() - started
        until("every row", lambda: len(read_topic(cluster.bootstrap_servers, topic)) == _PARTITIONS)
        figure("commit", f"{committed_s:.1f} s with a node down, all rows {time.monotonic() - started:.1f} s after")
        cluster.start(victim)
        assert committed_s < 60
        assert not sink.plan().must_write(0, "query", BatchNumbering.OF_A_QUERY)


def _written_everywhere(
    cluster: KafkaCluster, client: CoordinatorClient, topic: str
) -> tuple[ParallelSink, Plan, list[OpenTransaction]]:
    """Create a topic and write an undecided row to each of its partitions."""
    with cluster.admin() as admin:
        admin.create_topic(topic, _PARTITIONS, 2, {"min.insync.replicas": "1"})
        until("leaders", lambda: len(cluster.leaders(topic, admin)) == _PARTITIONS)
    sink = ParallelSink(SinkDriver(client, topic, topic))
    plan = sink.plan()
    transaction = WriterTransactions().begin(client, plan, 0)
    partitions = frozenset(TopicPartition(topic, partition) for partition in range(_PARTITIONS))
    config = producer_config.read({"bootstrap.servers": cluster.bootstrap_servers})
    with open_producer(config, transaction, plan.transaction_version) as producer:
        for place in partitions:
            producer.send(ProducerRecord(topic, b"row", partition=place.partition))
        producer.flush()
    return sink, plan, [OpenTransaction(transaction, partitions)]


def _only_leads(
    cluster: KafkaCluster, client: CoordinatorClient, topic: str, written: list[OpenTransaction]
) -> int | None:
    """Return a node that leads partitions of *topic* and is no coordinator of its transactions or group; else None."""
    ids = [driver_id(sink_id(topic, topic)), *(each.transaction.transactional_id for each in written)]
    needed = {_coordinator(client, GROUP, topic), *(_coordinator(client, TRANSACTION, name) for name in ids)}
    with cluster.admin() as admin:
        leaders = set(cluster.leaders(topic, admin).values())
    return next((node for node in NODES if node in leaders - needed), None)


def _coordinator(client: CoordinatorClient, kind: int, name: str) -> int:
    client.run(client.locate([(kind, name)], Tries(SYSTEM_CLOCK, ExponentialBackoff(10, 500), 20_000)))
    return client.coordinator((kind, name)).id
