"""Quotas, limits and memory of a running broker, seen from its sockets."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.broker.network.connection_quotas import ConnectionLimits
from kafka_sink.broker.network.quotas import CLIENT, CONSUMER_RATE, PRODUCER_RATE
from kafka_sink.common.config import parse
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response
from kafka_sink.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_sink.protocol.messages.metadata import MetadataRequest
from kafka_sink.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafka_sink.protocol.messages.users import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tests.conftest import Figure
from tests.fakes.record_batches import make_batch
from tests.support.good_client import frame, read_frame

ASK = frame(ApiKey.METADATA, 9, MetadataRequest([]))


def connect(bootstrap_servers: str) -> socket.socket:
    host, _, port = bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def write(size: int, client_id: str = "writer") -> bytes:
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, make_batch([bytes(size)]))])]
    return frame(ApiKey.PRODUCE, 9, ProduceRequest(None, 1, 5000, data), client_id)


def written(sock: socket.socket) -> ProduceResponse:
    _, answer = decode_response(ApiKey.PRODUCE, 9, read_frame(sock))
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer


def set_quota(cluster: EmbeddedCluster, rate: str, bytes_per_s: int | None, client_id: str) -> None:
    op = OpData(rate, float(bytes_per_s or 0), bytes_per_s is None)
    request = AlterClientQuotasRequest([EntryData([EntityData(CLIENT, client_id)], [op])])
    with connect(cluster.bootstrap_servers) as sock:
        sock.sendall(frame(ApiKey.ALTER_CLIENT_QUOTAS, 1, request))
        _, answer = decode_response(ApiKey.ALTER_CLIENT_QUOTAS, 1, read_frame(sock))
    assert isinstance(answer, AlterClientQuotasResponse) and answer.entries[0].error_code == 0


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=parse(BrokerConfig, {"quota.window.num": 2, "num.partitions": 1})) as running:
        running.create_topic("t", 1)
        yield running


@pytest.mark.behaviour("Throttling and quotas", "A client over its quota is answered at once with the throttle time")
def test_client_over_quota_is_answered_at_once_and_read_later(cluster: EmbeddedCluster) -> None:
    set_quota(cluster, PRODUCER_RATE, 100_000, "writer")
    with connect(cluster.bootstrap_servers) as sock, connect(cluster.bootstrap_servers) as other:
        began = time.monotonic()
        sock.sendall(write(800_000))
        throttle_ms = written(sock).throttle_time_ms
        # Long enough for what follows on a busy machine.
        assert 6900 <= throttle_ms <= 7100
        sock.sendall(write(10))
        # The broker serves other clients, and other connections of the same client, during the throttle time.
        other.sendall(write(10, "somebody else"))
        assert written(other).throttle_time_ms == 0
        assert time.monotonic() - began < throttle_ms / 1000, "the machine stood still"
        written(sock)
        assert time.monotonic() - began >= throttle_ms / 1000
        set_quota(cluster, PRODUCER_RATE, None, "writer")
        sock.sendall(write(500_000))
        assert written(sock).throttle_time_ms == 0


@pytest.mark.behaviour("Throttling and quotas", "Foreign clients keep to their quotas")
def test_foreign_clients_keep_to_their_quotas(cluster: EmbeddedCluster, figure: Figure) -> None:
    records, size, quota = 400, 1000, 200_000
    set_quota(cluster, PRODUCER_RATE, quota, "writer")
    set_quota(cluster, CONSUMER_RATE, quota, "reader")
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "writer",
            "batch.num.messages": 20,
            "linger.ms": 1,
        }
    )
    began = time.monotonic()
    for number in range(records):
        producer.produce("t", number.to_bytes(size, "big"), partition=0)
    assert producer.flush(30) == 0
    write_s = time.monotonic() - began
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "reader",
            "group.id": "g",
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        began = time.monotonic()
        found: list[int] = []
        while len(found) < records:
            messages = consumer.consume(100, timeout=10)
            assert messages
            found += [int.from_bytes(message.value() or b"", "big") for message in messages]
        read_s = time.monotonic() - began
    finally:
        consumer.close()
    assert found == list(range(records))
    # The quota allows a burst of one second, and no request follows the last one to wait for its throttling.
    least_s = records * size / quota - 1
    assert write_s >= least_s * 0.7 and read_s >= least_s * 0.7
    figure("400 kB at 200 kB/s", f"written in {write_s:.1f} s, read in {read_s:.1f} s")


@pytest.mark.behaviour(
    "Request memory", "Little memory makes clients wait and loses nothing; waiting readers hold none"
)
def test_little_request_memory_makes_clients_wait_loses_nothing() -> None:
    config = parse(BrokerConfig, {"queued.max.request.bytes": 150_000, "num.partitions": 1})
    with EmbeddedCluster(config=config) as cluster:
        cluster.create_topic("t", 1)
        clients = [connect(cluster.bootstrap_servers) for _ in range(20)]
        try:
            for _ in range(5):
                for sock in clients:
                    sock.sendall(write(60_000) * 2)
                for sock in clients:
                    written(sock)
                    written(sock)
        finally:
            for sock in clients:
                sock.close()


@pytest.mark.behaviour(
    "Request memory", "Little memory makes clients wait and loses nothing; waiting readers hold none"
)
@pytest.mark.behaviour("Faults: the embedded broker", "Readers that wait for records hold no memory for requests")
def test_waiting_fetches_hold_no_request_memory(figure: Figure) -> None:
    asked = FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)])
    # The write ends the wait of the fetches.
    wait_ms = 60_000
    poll = frame(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[asked]))
    with EmbeddedCluster(config=parse(BrokerConfig, {"queued.max.request.bytes": 3 * len(poll)})) as cluster:
        cluster.create_topic("t", 1)
        readers = [connect(cluster.bootstrap_servers) for _ in range(20)]
        try:
            for sock in readers:
                sock.sendall(poll)
            with connect(cluster.bootstrap_servers) as other:
                began = time.monotonic()
                other.sendall(write(10))
                written(other)
                took_ms = (time.monotonic() - began) * 1000
            for sock in readers:
                decode_response(ApiKey.FETCH, 12, read_frame(sock))
        finally:
            for sock in readers:
                sock.close()
    assert took_ms < wait_ms / 2, "it had to wait until the readers' time was up"
    figure("write with 20 waiting readers and memory for 3 of their requests", f"{took_ms:.0f} ms")


@pytest.mark.behaviour("Processor", "One request of a connection is in process at a time, and answers leave in order")
def test_pipelined_requests_of_many_clients_keep_their_order(cluster: EmbeddedCluster) -> None:
    clients = [connect(cluster.bootstrap_servers) for _ in range(20)]
    try:
        for sock in clients:
            sock.sendall((write(10) + ASK) * 20)
        for sock in clients:
            for _ in range(20):
                written(sock)
                decode_response(ApiKey.METADATA, 9, read_frame(sock))
    finally:
        for sock in clients:
            sock.close()


@pytest.mark.behaviour(
    "ConnectionQuotas", "Connections beyond a limit that was lowered are closed, the longest silent first"
)
def test_connections_beyond_a_limit_that_was_lowered_are_closed(cluster: EmbeddedCluster) -> None:
    clients = [connect(cluster.bootstrap_servers) for _ in range(10)]
    try:
        for sock in clients:
            sock.sendall(ASK)
            read_frame(sock)
        cluster.set_connection_limits(ConnectionLimits(total=4))
        left = clients
        until = time.monotonic() + 20
        while len(left) > 4 and time.monotonic() < until:
            readable, _, _ = select.select(left, [], [], 0.1)
            # No request was sent, so a readable socket is at its end.
            left = [sock for sock in left if sock not in readable]
        # Two network threads that detect one connection too many at the same time may close one each.
        served = 0
        for sock in left:
            with contextlib.suppress(OSError, EOFError):
                sock.sendall(ASK)
                served += bool(read_frame(sock))
        assert 3 <= served <= 4
    finally:
        for sock in clients:
            sock.close()


@pytest.mark.behaviour("Request metrics", "Metrics have Kafka's names")
def test_figures_are_there_under_kafkas_names(cluster: EmbeddedCluster) -> None:
    with connect(cluster.bootstrap_servers) as sock:
        for _ in range(10):
            sock.sendall(write(10))
            written(sock)
        sock.sendall(ASK)
        read_frame(sock)
        found = {
            (metric.name, dict(metric.tags).get("request"), dict(metric.tags).get("attribute")): metric.value
            for metric in cluster.metrics()
        }
    assert found["RequestsPerSec", "Produce", "Count"] == 10
    for name in (
        "RequestQueueTimeMs",
        "LocalTimeMs",
        "RemoteTimeMs",
        "ThrottleTimeMs",
        "ResponseQueueTimeMs",
        "ResponseSendTimeMs",
        "TotalTimeMs",
    ):
        of = [found[name, "Produce", attribute] for attribute in ("50thPercentile", "99thPercentile", "Max")]
        assert 0 <= of[0] <= of[1] <= of[2]
        assert 0 <= found[name, "Produce", "Mean"] <= of[2]
    assert 0 < found["NetworkProcessorAvgIdlePercent", None, None] <= 1
    assert 0 < found["RequestHandlerAvgIdlePercent", None, None] <= 1
    assert found["connection-count", None, None] == 1
    assert found["expired-connections-killed-count", None, None] == 0
    assert (
        'kafka_RequestMetrics_TotalTimeMs{attribute="99thPercentile",node="1",request="Produce"}'
        in cluster.prometheus()
    )
