"""Both protocols of exactly once while the nodes of a real Kafka are killed; KAFKALITE_INTERRUPTIONS says how often.

Without it nothing here runs but what needs no more than seconds after the cluster's start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from kafka_sink import ProducerRecord
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import Numbers, OpenTransaction
from kafka_sink.exactly_once.names import driver_id, sink_id
from kafka_sink.exactly_once.parallel import ParallelSink
from kafka_sink.exactly_once.writing import WriterTransactions, open_producer
from kafka_sink.protocol.messages.find_coordinator import GROUP, TRANSACTION
from tests.compat.kafka_cluster import NODES, KafkaCluster, running_cluster, until
from tests.conftest import Figure
from tests.exactly_once.lives import run_in_process
from tests.support.readback import read_topic

ROUNDS = int(os.environ.get("KAFKALITE_INTERRUPTIONS", "0"))

pytestmark = pytest.mark.timeout(300 + 600 * ROUNDS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    if os.environ.get("KAFKALITE_NO_KAFKA", "") not in ("", "0"):
        pytest.skip("KAFKALITE_NO_KAFKA is set")
    if not ROUNDS:
        pytest.skip("KAFKALITE_INTERRUPTIONS is not set")
    with running_cluster(tmp_path_factory.mktemp("kafka-cluster")) as running:
        yield running


@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_a_coordinator_that_is_killed_at_every_step_costs_time_only(
    cluster: KafkaCluster, protocol: str, figure: Figure
) -> None:
    down: list[int] = []

    def kill_coordinator(point: str, sink: str) -> None:
        """The one of the driver's transaction, which another node has to take over; the one before comes back."""
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


def test_a_commit_does_not_wait_for_a_partition_whose_leader_is_down(cluster: KafkaCluster, figure: Figure) -> None:
    """What is decided is decided: rows elsewhere are visible at once, those there as soon as it is back."""
    topic = f"down-{os.urandom(4).hex()}"
    with cluster.admin() as admin:
        admin.create_topic(topic, 3, 1)
        until("leaders", lambda: len(cluster.leaders(topic, admin)) == 3)
        leaders = cluster.leaders(topic, admin)
    properties = {"bootstrap.servers": cluster.bootstrap_servers}
    ids = WriterTransactions()
    with CoordinatorClient(properties) as client:
        sink = ParallelSink(client, topic, topic)
        plan = sink.plan()
        written = []
        for partition in range(3):
            transaction = ids.begin(client, plan, 0)
            with open_producer(properties, transaction, plan.flow) as producer:
                producer.send(ProducerRecord(topic, b"%d" % partition, partition=partition))
                producer.flush()
            written.append(OpenTransaction(transaction, frozenset({TopicPartition(topic, partition)})))
        needed = {
            _coordinator(client, TRANSACTION, driver_id(sink_id(topic, topic))),
            _coordinator(client, GROUP, topic),
        }
        needed |= {_coordinator(client, TRANSACTION, each.transaction.transactional_id) for each in written}
        victim = next((node for node in NODES if node not in needed), NODES[0])
        cluster.kill(victim)
        started = time.monotonic()
        sink.commit(plan, 0, "query", written)
        committed_s = time.monotonic() - started
        cluster.start(victim)
        started = time.monotonic()
        until("every row", lambda: len(read_topic(cluster.bootstrap_servers, topic)) == 3)
        figure(
            "commit", f"{committed_s:.1f} s with node {victim} down, all rows {time.monotonic() - started:.1f} s after"
        )
        assert victim in leaders.values()
        assert committed_s < 60
        assert not sink.plan().must_write(0, "query", Numbers.OF_A_QUERY)


def _coordinator(client: CoordinatorClient, kind: int, name: str) -> int:
    requests = client._requests
    requests.locate([(kind, name)], client._clock.monotonic_ms() + 20_000)
    return requests.coordinator((kind, name)).id
