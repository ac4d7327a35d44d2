"""Transactions of the embedded broker over real sockets: kills at a bad moment, clients of others, the last epoch."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ForeignPartition
from kafka import KafkaConsumer as KafkaPythonConsumer
from kafka import KafkaProducer as KafkaPythonProducer
from kafka import TopicPartition as KafkaPythonPartition

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.coordinator.store import FILE_NAME
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.model import LAST_PRODUCER_EPOCH
from kafka_sink.protocol.api_key import ApiKey
from tests.fakes.record_batches import make_batch
from tests.support.broker_process import BrokerProcess
from tests.support.parts import producer_with_parts
from tests.support.readback import read_topic
from tests.support.wire import Wire

PARTITIONS = 100
PATIENCE_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    process.start()
    yield process
    # Nothing is kept, so nothing has to reach the disk.
    process.kill()


def values(bootstrap_servers: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    return sorted(message.value or b"" for message in read_topic(bootstrap_servers, topic, isolation=isolation))


class Writer:
    """A producer made of single requests, so that it can be stopped between any two."""

    def __init__(self, broker: BrokerProcess, name: str, topic: str) -> None:
        self._broker = broker
        self._name = name
        self._topic = topic
        self._identity = (-1, -1)

    def _ask(self, key: ApiKey, version: int, *values: Any) -> Any:
        with contextlib.closing(Wire(self._broker.bootstrap_servers)) as connection:
            return connection.ask(key, version, *values)

    def write(self, value: bytes) -> None:
        """One record to each partition, in a new transaction that stays open."""
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, 5, self._name, 60_000)
        assert answer.error_code == 0
        self._identity = (answer.producer_id, answer.producer_epoch)
        batch = make_batch(
            [value],
            base_timestamp=int(time.time() * 1000),
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=0,
            is_transactional=True,
        )
        data = {"name": self._topic, "partition_data": [(partition, batch) for partition in range(PARTITIONS)]}
        answer = self._ask(ApiKey.PRODUCE, 12, self._name, -1, 10_000, [data])
        assert {part.error_code for part in answer.responses[0].partition_responses} == {0}

    def end(self, *, committed: bool = True) -> int:
        return int(self._ask(ApiKey.END_TXN, 5, self._name, *self._identity, committed).error_code)

    def end_until_told(self, *, committed: bool = True) -> None:
        """As a producer does that does not know what became of its request."""
        until = time.monotonic() + PATIENCE_S
        while (code := self.end(committed=committed)) == 51:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert code == 0

    def described(self) -> tuple[str, int, int]:
        """State, start of the transaction, participants without a marker."""
        (state,) = self._ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, [self._name]).transaction_states
        waiting = sum(len(topic.partitions) for topic in state.topics)
        return state.transaction_state, state.transaction_start_time_ms, waiting


@pytest.mark.behaviour("Transactions in the log", "A kill between the decision and its markers changes nothing")
def test_kill_between_decision_and_markers_changes_nothing(
    broker: BrokerProcess, tmp_path: Path, figure: Callable[..., None]
) -> None:
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic("t", partitions=PARTITIONS)
    expected: list[bytes] = []
    before_the_markers = 0
    # A few blows, and more until one has fallen where it hurts most.
    for life in range(20):
        if life >= 4 and before_the_markers:
            break
        committed = life % 3 != 2
        writer = Writer(broker, f"id-{life}", "t")
        value = f"{life}".encode()
        writer.write(value)
        assert writer.end(committed=committed) == 0
        broker.kill()
        with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
            (state,) = file.execute(
                "SELECT state FROM transactions WHERE transactional_id = ?", (f"id-{life}",)
            ).fetchone()
        before_the_markers += state.startswith("Prepare")
        broker.start()
        writer.end_until_told(committed=committed)
        assert writer.end(committed=not committed) == 48
        expected += [value] * PARTITIONS if committed else []
    assert values(broker.bootstrap_servers, "t") == sorted(expected)
    assert before_the_markers > 0
    figure(
        "kills after EndTxn's answer", f"{broker.kills}, {before_the_markers} of them before all markers were written"
    )
    figure("rows", f"{len(expected)} of {len(expected)} committed ones, no other")


@pytest.mark.behaviour("Transactions in the log", "An open transaction survives a kill as it was")
def test_an_open_transaction_survives_a_kill_as_it_was(broker: BrokerProcess) -> None:
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic("t", partitions=PARTITIONS)
    writer = Writer(broker, "id", "t")
    writer.write(b"kept")
    before = writer.described()
    assert before[0] == "Ongoing" and before[2] == PARTITIONS
    broker.kill()
    broker.start()
    assert writer.described() == before
    assert values(broker.bootstrap_servers, "t") == []
    writer.end_until_told()
    assert values(broker.bootstrap_servers, "t") == [b"kept"] * PARTITIONS


@pytest.mark.parametrize("level", [2, 1])
def test_our_producer_goes_beyond_the_last_epoch(tmp_path: Path, level: int) -> None:
    config = replace(BrokerConfig(), transaction_version=level)
    with EmbeddedCluster(data_dir=tmp_path, config=config) as cluster:
        cluster.create_topic("t", partitions=1)
        first, identity = _producer(cluster)
        with first:
            old = identity()
    # Thirty thousand epochs later.
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as file:
        file.execute("UPDATE transactions SET producer_epoch = ?", (LAST_PRODUCER_EPOCH - 1,))
    with EmbeddedCluster(data_dir=tmp_path, config=config) as cluster:
        expected = []
        epochs = []
        for life in range(2):
            producer, identity = _producer(cluster)
            with producer:
                for number in range(3):
                    epochs.append(identity())
                    value = f"{life}-{number}".encode()
                    producer.begin_transaction()
                    producer.send(ProducerRecord("t", value))
                    producer.commit_transaction()
                    expected.append(value)
        assert epochs[0] == (old[0], LAST_PRODUCER_EPOCH)
        assert epochs[-1][0] != old[0] and 0 <= epochs[-1][1] <= 5
        assert values(cluster.bootstrap_servers, "t") == expected


def _producer(cluster: EmbeddedCluster) -> tuple[KafkaProducer, Callable[[], tuple[int, int]]]:
    """A producer, and its id and epoch when asked for."""
    properties = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "id"}
    producer, pipeline = producer_with_parts(properties)
    producer.init_transactions()

    def identity() -> tuple[int, int]:
        assert pipeline.transactions is not None
        return pipeline.transactions.identity.producer_id, pipeline.transactions.identity.epoch

    return producer, identity


@pytest.fixture(params=[(1, 2), (3, 2), (1, 1)], ids=["1 node", "3 nodes", "1 node, version 1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    nodes, level = request.param
    with EmbeddedCluster(nodes=nodes, config=replace(BrokerConfig(), transaction_version=level)) as embedded:
        embedded.create_topic("source", partitions=1)
        embedded.create_topic("target", partitions=3)
        yield embedded


@pytest.mark.behaviour(
    "Transactions of other clients", "confluent-kafka moves records exactly once, in both transaction versions"
)
def test_librdkafka_moves_records_exactly_once(cluster: EmbeddedCluster) -> None:
    feeding = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(50):
        feeding.produce("source", f"{number:03}".encode())
    feeding.flush()
    common = {"bootstrap.servers": cluster.bootstrap_servers}
    expected: list[bytes] = []
    for attempt in range(5):
        # A new producer and a new consumer each time: the group's offset alone says where to go on.
        consumer = Consumer(
            {**common, "group.id": "movers", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )
        producer = Producer({**common, "transactional.id": "mover"})
        producer.init_transactions(PATIENCE_S)
        (place,) = consumer.committed([ForeignPartition("source", 0)], PATIENCE_S)
        start = max(place.offset, 0)
        assert start == len(expected)
        consumer.assign([ForeignPartition("source", 0, start)])
        messages = consumer.consume(25, PATIENCE_S)
        producer.begin_transaction()
        for message in messages:
            producer.produce("target", message.value())
        producer.send_offsets_to_transaction(
            [ForeignPartition("source", 0, start + len(messages))], consumer.consumer_group_metadata(), PATIENCE_S
        )
        if attempt % 2:
            producer.flush()
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
            expected += [message.value() or b"" for message in messages]
        consumer.close()
        if len(expected) == 50:
            break
    assert len(expected) == 50
    assert values(cluster.bootstrap_servers, "target") == expected
    assert len(values(cluster.bootstrap_servers, "target", "read_uncommitted")) > 50


@pytest.mark.behaviour("Transactions of other clients", "aiokafka commits and aborts")
def test_aiokafka_commits_and_aborts(cluster: EmbeddedCluster) -> None:
    async def exchange() -> list[bytes | None]:
        servers = cluster.bootstrap_servers
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aio")
        await producer.start()
        try:
            for number in range(6):
                with contextlib.suppress(RuntimeError):
                    async with producer.transaction():
                        for partition in range(3):
                            await producer.send_and_wait("target", f"{number}".encode(), partition=partition)
                        if number % 2:
                            raise RuntimeError("which aborts it")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed")
        await consumer.start()
        try:
            partitions = [AioPartition("target", partition) for partition in range(3)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            found: list[bytes | None] = []
            until = time.monotonic() + PATIENCE_S
            while len(found) < 9 and time.monotonic() < until:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [record.value for record in records]
            return found
        finally:
            await consumer.stop()

    expected = sorted([b"0", b"2", b"4"] * 3)
    assert sorted(value or b"" for value in asyncio.run(exchange())) == expected
    assert values(cluster.bootstrap_servers, "target") == expected


@pytest.mark.behaviour("Transactions of other clients", "kafka-python commits and aborts")
def test_kafka_python_commits_and_aborts(cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    producer = KafkaPythonProducer(bootstrap_servers=servers, transactional_id="kafka-python")
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for partition in range(3):
            producer.send("target", f"{number}".encode(), partition=partition).get(PATIENCE_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    expected = sorted([b"0", b"2", b"4"] * 3)
    consumer = KafkaPythonConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", consumer_timeout_ms=int(PATIENCE_S * 1000)
    )
    partitions = [KafkaPythonPartition("target", partition) for partition in range(3)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    assert sorted(record.value for record in itertools.islice(consumer, len(expected))) == expected
    consumer.close()
    assert values(servers, "target") == expected
    assert len(values(servers, "target", "read_uncommitted")) == 2 * len(expected)
