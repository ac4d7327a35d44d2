"""Transactions on three Kafka nodes that crash and stop during them: every round is committed once, or not at all."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from confluent_kafka import Consumer
from confluent_kafka import KafkaException as ForeignError
from confluent_kafka import TopicPartition as ForeignPartition

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.errors import KafkaError, TransactionAbortableError
from kafka_sink.common.model import TopicPartition
from tests.compat.kafka_cluster import NODES, KafkaCluster
from tests.conftest import Figure
from tests.support import amounts
from tests.support.readback import read_topic
from tests.support.waiting import WAIT_S

PARTITIONS = 6
RECORDS_PER_ROUND = 60
#: Every fifth round is written twice; its first transaction is aborted.
ABORT_EVERY = 5

ROUNDS = amounts.INTERRUPTIONS

pytestmark = pytest.mark.timeout(1800 if amounts.LONG else 280)


@pytest.fixture
def cluster(kafka_of_three: KafkaCluster) -> KafkaCluster:
    return kafka_of_three


class Writer:
    """Writes rounds of records; the transaction of a round commits the next round's number as an offset."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group = f"group-{topic}"
        self._producer: KafkaProducer | None = None
        self.round = 0
        self.aborts = self.restarts = 0
        self.longest_s = 0.0

    def write(self) -> None:
        """Write one round; after an error repeat it, unless it is already committed."""
        started = time.monotonic()
        while not self._try():
            pass
        self.longest_s = max(self.longest_s, time.monotonic() - started)

    def _try(self) -> bool:
        producer = self._producer or self._restart()
        wanted = self.round
        try:
            producer.begin_transaction()
            if wanted % ABORT_EVERY == 0:
                self._send(producer, "dropped")
                producer.abort_transaction()
                producer.begin_transaction()
            self._send(producer, "kept")
            producer.send_offsets_to_transaction({TopicPartition(self._topic, 0): wanted + 1}, self._group)
            producer.commit_transaction()
            self.round += 1
        except TransactionAbortableError:
            self.aborts += 1
            try:
                producer.abort_transaction()
            except KafkaError:
                self._give_up(producer)
        except KafkaError:
            self._give_up(producer)
        return self.round > wanted

    def _send(self, producer: KafkaProducer, name: str) -> None:
        for number in range(RECORDS_PER_ROUND):
            value = f"{name}-{self.round}-{number}".encode()
            producer.send(ProducerRecord(self._topic, value, partition=number % PARTITIONS))

    def _give_up(self, producer: KafkaProducer) -> None:
        producer.close(timeout=0)
        self._producer = None

    def _restart(self) -> KafkaProducer:
        self.restarts += 1
        producer = self._producer = KafkaProducer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "transactional.id": f"id-{self._topic}",
                "request.timeout.ms": 10_000,
                "max.block.ms": 120_000,
            }
        )
        producer.init_transactions()
        self.round = self.committed()
        return producer

    def committed(self) -> int:
        """Return the round at which the writer resumes."""
        consumer = Consumer({"bootstrap.servers": self._cluster.bootstrap_servers, "group.id": self._group})
        deadline = time.monotonic() + WAIT_S
        try:
            while True:
                try:
                    (place,) = consumer.committed([ForeignPartition(self._topic, 0)], timeout=10)
                    return max(int(place.offset), 0)
                except ForeignError:
                    # The group's coordinator may just have crashed or stopped.
                    if time.monotonic() > deadline:
                        raise
        finally:
            consumer.close()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()


@pytest.mark.behaviour("Transactions", "Transactions are written exactly once while nodes of a cluster go and come")
@pytest.mark.parametrize(
    "way",
    [
        "killed",
        pytest.param("stopped", marks=pytest.mark.skipif(not ROUNDS, reason="KAFKALITE_INTERRUPTIONS is not set")),
    ],
)
def test_rounds_are_written_exactly_once_while_nodes_go_and_come(
    cluster: KafkaCluster, way: str, figure: Figure
) -> None:
    topic = f"rounds-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, PARTITIONS)
    cluster.await_replicas(topic)
    trouble_is_over = threading.Event()
    failures: list[BaseException] = []

    def make_trouble() -> None:
        try:
            for node in NODES[: amounts.RESTARTS]:
                time.sleep(1)
                (cluster.kill if way == "killed" else cluster.stop)(node)
                time.sleep(1)
                cluster.start(node)
                cluster.await_replicas(topic)
        except BaseException as error:
            failures.append(error)
        finally:
            trouble_is_over.set()

    thread = threading.Thread(target=make_trouble, daemon=True)
    thread.start()
    writer = Writer(cluster, topic)
    after = 5
    while after > 0:
        after -= trouble_is_over.is_set()
        writer.write()
    thread.join()
    writer.close()
    if failures:
        raise failures[0]
    rounds = writer.round
    figure("rounds", rounds)
    figure("aborted by errors", writer.aborts)
    figure("producers", writer.restarts)
    figure("longest round", f"{writer.longest_s:.1f} s")
    expected = sorted(f"kept-{number}-{item}".encode() for number in range(rounds) for item in range(RECORDS_PER_ROUND))
    found = [message.value or b"" for message in read_topic(cluster.bootstrap_servers, topic)]
    assert len(found) == len(expected)
    assert sorted(found) == expected
    assert writer.committed() == rounds
