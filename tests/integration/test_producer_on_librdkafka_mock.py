"""Our producer against librdkafka's mock brokers, which respond with the errors that a test orders."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from tests.conftest import Figure
from tests.support import librdkafka_mock
from tests.support.librdkafka_mock import MockCluster
from tests.support.ordered_load import OrderedLoad
from tests.support.readback import read_topic

RETRIABLE = [
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
]
FATAL = [
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_RECORD,
]


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    if not librdkafka_mock.is_available():
        pytest.skip("this platform's confluent-kafka has librdkafka linked in")
    with MockCluster(brokers=3) as running:
        running.create_topic("t", 4, 1)
        yield running


def make_producer(cluster: MockCluster, **properties: object) -> KafkaProducer:
    return KafkaProducer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
    )


def check(cluster: MockCluster, load: OrderedLoad, figure: Figure) -> None:
    assert load.errors[:3] == []
    assert load.acknowledged == load.sent
    verdict = load.judge(read_topic(cluster.bootstrap_servers, "t"))
    figure("missing/twice/out of order", f"{verdict.missing}/{verdict.duplicates}/{verdict.out_of_order}")
    figure("longest stall", f"{load.longest_stall_s:.1f} s")
    assert verdict.is_clean, verdict


def test_records_arrive(cluster: MockCluster, figure: Figure) -> None:
    with make_producer(cluster) as producer:
        load = OrderedLoad(producer, "t")
        for _ in range(10):
            load.send(1_000)
        producer.flush(timeout=30)
    check(cluster, load, figure)


@pytest.mark.behaviour("Retries", "A retriable error is retried until the batch is stored")
@pytest.mark.behaviour(
    "Faults: librdkafka's mock cluster", "Each retriable code is retried, three times, and then succeeds"
)
@pytest.mark.parametrize("code", RETRIABLE, ids=lambda code: code.name)
def test_three_refusals_and_then_success(cluster: MockCluster, code: ErrorCode, figure: Figure) -> None:
    with make_producer(cluster) as producer:
        assert producer.send(ProducerRecord("t", b"first", partition=0)).result(60).offset == 0
        cluster.fail_next(ApiKey.PRODUCE, [code] * 3)
        began = time.monotonic()
        assert producer.send(ProducerRecord("t", b"second", partition=0)).result(60).offset == 1
        figure(code.name, f"{time.monotonic() - began:.2f} s for 3 retries")
        assert producer.metrics()["record-retry-total"] == 3
    assert [message.value for message in read_topic(cluster.bootstrap_servers, "t")] == [b"first", b"second"]


@pytest.mark.behaviour("Retries", "A fatal error fails its records at once, and no others")
@pytest.mark.behaviour("Faults: librdkafka's mock cluster", "Each fatal code is raised without a retry")
@pytest.mark.parametrize("code", FATAL, ids=lambda code: code.name)
def test_a_final_refusal_is_raised_at_once(cluster: MockCluster, code: ErrorCode, figure: Figure) -> None:
    with make_producer(cluster) as producer:
        producer.send(ProducerRecord("t", b"first", partition=0)).result(60)
        cluster.fail_next(ApiKey.PRODUCE, [code])
        began = time.monotonic()
        with pytest.raises(ApiError) as caught:
            producer.send(ProducerRecord("t", b"refused", partition=0)).result(60)
        took = time.monotonic() - began
        assert caught.value.code is code
        assert producer.metrics()["record-retry-total"] == 0
        figure(code.name, f"{took * 1000:.0f} ms")
        assert took < 10
        # With either sequence number, the next record is stored.
        assert producer.send(ProducerRecord("t", b"next", partition=0)).result(60).offset == 1


def test_refused_producer_ids_and_metadata_are_asked_for_again(cluster: MockCluster) -> None:
    cluster.fail_next(
        ApiKey.INIT_PRODUCER_ID, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    )
    cluster.fail_next(ApiKey.METADATA, [ErrorCode.LEADER_NOT_AVAILABLE] * 2)
    with make_producer(cluster) as producer:
        assert producer.send(ProducerRecord("t", b"v", partition=0)).result(60).offset == 0


@pytest.mark.behaviour("Faults: librdkafka's mock cluster", "Brokers that go down and leaders that move lose nothing")
def test_brokers_that_go_down_and_leaders_that_move_lose_nothing(cluster: MockCluster, figure: Figure) -> None:
    for partition in range(4):
        cluster.set_leader("t", partition, 1)
    with make_producer(cluster, reconnect_backoff_max_ms=200) as producer:
        load = OrderedLoad(producer, "t")
        leader, waiting = 1, []
        for turn in range(30):
            load.send(300)
            time.sleep(0.03)
            if turn % 10 == 3:
                leader = 2 if leader == 3 else 3
                for partition in range(4):
                    cluster.set_leader("t", partition, leader)
            elif turn % 10 == 6:
                # It remains the leader, so no broker accepts the records until it is up again.
                cluster.set_down(leader)
            elif turn % 10 == 8:
                figures = producer.metrics()
                waiting.append(figures["buffer-total-bytes"] - figures["buffer-available-bytes"])
                cluster.set_up(leader)
        producer.flush(timeout=60)
    check(cluster, load, figure)
    figure("bytes that waited for a leader that was down", f"{min(waiting):.0f} to {max(waiting):.0f}")
    assert len(waiting) == 3
    assert min(waiting) > 0


def test_a_slow_broker_is_waited_for(cluster: MockCluster, figure: Figure) -> None:
    for broker in (1, 2, 3):
        cluster.set_round_trip(broker, 300)
    with make_producer(cluster) as producer:
        load = OrderedLoad(producer, "t")
        for _ in range(5):
            load.send(500)
        producer.flush(timeout=60)
        latency = producer.metrics()["request-latency-avg"]
    check(cluster, load, figure)
    figure("request latency", f"{latency:.0f} ms at a round trip of 300 ms")
    assert latency >= 290
