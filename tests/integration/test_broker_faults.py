"""Clients against a broker that goes wrong on demand: each fault is survived with nothing lost or twice, or reported.

Our producer and librdkafka write while a fault holds; librdkafka reads what is there when it is over.
KAFKALITE_BROKER_FAULT_RECORDS sets how many records each of them writes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as RdError

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaTimeoutError
from kafka_sink.common.model import TopicPartition as Place
from tests.conftest import Figure
from tests.support import amounts
from tests.support.ordered_load import OrderedLoad
from tests.support.readback import read_topic, read_values

RECORDS = amounts.BROKER_FAULT_RECORDS
REQUEST_TIMEOUT_MS = 1_000

SURVIVED = {
    "error": "produce:every=3,error=not_leader_or_follower",
    "error-of-one-partition": "produce:topic={topic},partition=1,every=2,times=20,error=not_enough_replicas",
    "late": "produce:every=5,delay_ms=200",
    "too-late": "produce:nth=5,delay_ms=1500",
    "request-lost": "produce:nth=4,drop=request",
    "answer-lost": "produce:nth=4,drop=answer",
    "closed-at-once": "produce:every=5,close=request",
    "closed-unanswered": "produce:every=5,close=answer",
    "closed-half-way": "produce:every=5,close=half",
    "twice": "produce:every=3,duplicate=true",
    "slow": "produce:every=7,slow_ms=300",
    "no-leader": "metadata:topic={topic},times=3,error=leader_not_available",
    "metadata-closed": "metadata:times=3,close=half",
    "no-producer-id": "init_producer_id:times=2,error=coordinator_load_in_progress",
    "versions-closed": "api_versions:nth=1,close=answer",
    "anything": "any:probability=0.05,seed=1,close=half",
    "disk-full": "disk.write:every=4,times=5,topic={topic}",
}


#: Those of them that librdkafka meets as well.
FOREIGN = ("error-of-one-partition", "answer-lost", "closed-half-way", "twice", "slow", "no-producer-id", "disk-full")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=2) as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults(cluster: EmbeddedCluster) -> Iterator[None]:
    yield
    cluster.faults.clear()


def write_ours(cluster: EmbeddedCluster, topic: str) -> OrderedLoad:
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "batch.size": 1_000,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 50,
        "linger.ms": 0,
    }
    with KafkaProducer(properties) as producer:
        load = OrderedLoad(producer, topic)
        for _ in range(10):
            load.send(RECORDS // 10)
        producer.flush(timeout=60)
    return load


@pytest.mark.behaviour("Faults on demand", "Our producer stores every record once and in order under each fault")
@pytest.mark.parametrize("name", SURVIVED)
def test_our_producer_stores_all_once_in_order_under_faults(
    cluster: EmbeddedCluster, figure: Figure, name: str
) -> None:
    topic = f"ours-{name}"
    cluster.create_topic(topic, partitions=3)
    with set_fault(cluster.faults, SURVIVED[name].format(topic=topic)) as fault:
        load = write_ours(cluster, topic)
    verdict = load.judge(read_topic(cluster.bootstrap_servers, topic))
    figure("faults", fault.hits)
    assert load.errors[:3] == [] and load.acknowledged == load.sent
    assert verdict.is_clean, verdict
    assert fault.hits


@pytest.mark.behaviour("Faults on demand", "librdkafka stores every record once and in order under each fault")
@pytest.mark.parametrize("name", FOREIGN)
def test_librdkafka_survives(cluster: EmbeddedCluster, figure: Figure, name: str) -> None:
    topic = f"rd-{name}"
    cluster.create_topic(topic, partitions=3)
    failed: list[RdError] = []
    values = [b"%d" % number for number in range(RECORDS)]
    with set_fault(cluster.faults, SURVIVED[name].format(topic=topic)) as fault:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "batch.num.messages": 20,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        for number, value in enumerate(values):
            producer.produce(
                topic, value, partition=number % 3, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)
        assert producer.flush(60) == 0
    assert failed == []
    found = read_values(cluster.bootstrap_servers, topic)
    assert sorted(found) == sorted(values)
    figure("faults", fault.hits)
    assert fault.hits


@pytest.mark.behaviour("Faults on demand", "A lost answer without idempotence is a duplicate")
def test_without_idempotence_a_lost_answer_is_a_duplicate(cluster: EmbeddedCluster) -> None:
    """So what the tests above prove is not for want of faults."""
    cluster.create_topic("without", partitions=1)
    properties = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": "false"}
    with cluster.faults.on("produce", nth=1, close="answer"), KafkaProducer(properties) as producer:
        producer.send(ProducerRecord("without", b"v")).result(60)
    assert [message.value for message in read_topic(cluster.bootstrap_servers, "without")] == [b"v", b"v"]


@pytest.mark.behaviour("Faults on demand", "A fault that never passes is reported by its name")
def test_lasting_fault_is_reported_by_its_error_name(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("never", partitions=1)
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "request.timeout.ms": 1_000,
        "delivery.timeout.ms": 4_000,
        "linger.ms": 0,
    }
    for text, words in (
        ("produce:error=not_leader_or_follower", "NOT_LEADER_OR_FOLLOWER"),
        ("produce:drop=request", "not answered within 1000 ms"),
        ("disk.write:topic=never", "KAFKA_STORAGE_ERROR"),
    ):
        with set_fault(cluster.faults, text), KafkaProducer(properties) as producer:
            with pytest.raises(KafkaTimeoutError) as caught:
                producer.send(ProducerRecord("never", b"v")).result(60)
            assert words in str(caught.value)
    with (
        cluster.faults.on("produce", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        KafkaProducer(properties) as producer,
        pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        producer.send(ProducerRecord("never", b"v")).result(60)
    assert read_topic(cluster.bootstrap_servers, "never") == []


TRANSACTIONAL = {
    "init": "init_producer_id:times=2,error=concurrent_transactions",
    "coordinator": "find_coordinator:times=2,error=coordinator_not_available",
    "add": "add_partitions_to_txn:times=2,error=concurrent_transactions",
    "add-offsets": "add_offsets_to_txn:times=2,error=coordinator_load_in_progress",
    "offsets": "txn_offset_commit:times=2,error=coordinator_load_in_progress",
    "end": "end_txn:times=2,error=concurrent_transactions",
    "end-moved": "end_txn:times=1,error=not_coordinator",
    "end-unanswered": "end_txn:every=2,close=answer",
    "end-half": "end_txn:every=2,close=half",
    "end-twice": "end_txn:every=2,duplicate=true",
    "produce-unanswered": "produce:every=2,close=answer",
}


@pytest.fixture(scope="module", params=[1, 2], ids=["version-1", "version-2"])
def transactional(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=BrokerConfig(transaction_version=request.param)) as running:
        running.create_topic("input", partitions=1)
        yield running


@pytest.mark.behaviour("Faults on demand", "Transactions of both versions survive each fault")
@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_transactions_survive(transactional: EmbeddedCluster, name: str) -> None:
    transactional.faults.clear()
    transactional.create_topic(name, partitions=2)
    properties = {
        "bootstrap.servers": transactional.bootstrap_servers,
        "transactional.id": name,
        "retry.backoff.ms": 10,
        "linger.ms": 0,
    }
    with set_fault(transactional.faults, TRANSACTIONAL[name]) as fault, KafkaProducer(properties) as producer:
        producer.init_transactions()
        for turn in range(4):
            producer.begin_transaction()
            for partition in range(2):
                producer.send(ProducerRecord(name, b"%d" % turn, partition=partition))
            producer.send_offsets_to_transaction({Place("input", 0): turn}, f"group-{name}")
            producer.abort_transaction() if turn == 2 else producer.commit_transaction()
    found = read_values(transactional.bootstrap_servers, name)
    assert sorted(found) == [b"0", b"0", b"1", b"1", b"3", b"3"]
    assert fault.hits or "add" in name


GROUPS = {
    "coordinator": "find_coordinator:times=1,error=coordinator_not_available",
    "join-unanswered": "join_group:nth=1,close=answer",
    "sync": "sync_group:nth=1,error=rebalance_in_progress",
    "heartbeat": "heartbeat:nth=1,error=rebalance_in_progress",
    "fetch": "fetch:every=3,times=5,error=not_leader_or_follower",
    "fetch-half": "fetch:every=3,times=5,close=half",
    "offsets": "offset_fetch:times=2,error=coordinator_load_in_progress",
    "commit": "offset_commit:nth=1,error=coordinator_load_in_progress",
}


@pytest.mark.behaviour("Faults on demand", "A consumer group survives each fault, and gets every record once")
@pytest.mark.parametrize("name", GROUPS)
def test_a_consumer_group_survives(cluster: EmbeddedCluster, name: str) -> None:
    topic = f"group-{name}"
    cluster.create_topic(topic, partitions=2)
    values = {b"%d" % number for number in range(100)}
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for value in values:
            producer.send(ProducerRecord(topic, value))
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 100,
            "retry.backoff.ms": 20,
            "fetch.error.backoff.ms": 20,
            "log_level": 0,
        }
    )
    found: list[bytes | None] = []
    with set_fault(cluster.faults, GROUPS[name]) as fault:
        consumer.subscribe([topic])
        deadline = threading.Event()
        timer = threading.Timer(30, deadline.set)
        timer.start()
        while not deadline.is_set() and (len(found) < len(values) or (name == "heartbeat" and not fault.hits)):
            found += [message.value() for message in consumer.consume(100, timeout=0.2) if message.error() is None]
        timer.cancel()
        ends = [TopicPartition(topic, number, end) for number in range(2) for end in [_end(consumer, topic, number)]]
        for _ in range(3):
            try:
                consumer.commit(offsets=ends, asynchronous=False)
                break
            except KafkaException as error:
                assert error.args[0].retriable() or name == "commit"
        committed = [place.offset for place in consumer.committed(ends, timeout=60)]
        consumer.close()
    assert set(found) == values and len(found) == len(values)
    assert committed == [place.offset for place in ends]
    assert fault.hits


def _end(consumer: Consumer, topic: str, number: int) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=60)[1])


def test_a_flush_that_fails_is_no_acknowledgement() -> None:
    config = BrokerConfig(log_flush_interval_messages=1)
    with EmbeddedCluster(config=config) as cluster:
        cluster.create_topic("flushed", partitions=1)
        properties = {"bootstrap.servers": cluster.bootstrap_servers, "delivery.timeout.ms": 4_000, "linger.ms": 0}
        properties["request.timeout.ms"] = 2_000
        with KafkaProducer(properties) as producer:
            producer.send(ProducerRecord("flushed", b"before")).result(60)
            with cluster.faults.on("disk.flush", topic="flushed") as fault:
                with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
                    producer.send(ProducerRecord("flushed", b"lost?")).result(60)
                assert fault.hits
