"""Errors of the brokers on the driver end a write before a task begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.common.acl import AclBinding, AclOperation, ResourceType
from kafka_sink.common.errors import (
    ApiError,
    AuthenticationError,
    BrokersUnreachableError,
    ErrorCode,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)
from kafka_sink.spark.driver import before_write
from kafka_sink.spark.driver.before_write import VALID_IN_STREAM_MS, limits_of
from kafka_sink.spark.write_spec import ProducerSpec, producer_spec
from tests.fakes.clock import FakeClock
from tests.support.counting_proxy import CountingProxy
from tests.support.ports import free_ports
from tests.support.secure_cluster import guarded_cluster

pytestmark = pytest.mark.behaviour("Tasks", "What the brokers refuse on the driver ends the write before a task begins")

TOPIC = "orders"


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedCluster]:
    with guarded_cluster(reader="r", writer="w") as cluster:
        cluster.create_topic(TOPIC, 1)
        may = [("User:reader", AclOperation.READ), ("User:writer", AclOperation.WRITE)]
        cluster.create_acls(
            [
                AclBinding(principal=who, operation=what, resource_type=ResourceType.TOPIC, resource_name=TOPIC)
                for who, what in may
            ]
        )
        yield cluster


def logged_in(cluster: EmbeddedCluster, user: str, password: str, port: int | None = None) -> ProducerSpec:
    (listeners,) = cluster.nodes.values()
    return producer_spec(
        {
            "bootstrap.servers": f"127.0.0.1:{port or listeners['SASL_PLAINTEXT'].port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
        }
    )


def test_wrong_password_ends_the_write_after_one_login(guarded: EmbeddedCluster) -> None:
    (listeners,) = guarded.nodes.values()
    port = free_ports()
    with CountingProxy({port: listeners["SASL_PLAINTEXT"].port}) as proxy:
        for topic in (TOPIC, None):
            with pytest.raises(AuthenticationError):
                limits_of(logged_in(guarded, "writer", "x", port), topic)
        assert proxy.connections == 2


def test_topic_without_permission_ends_the_write(guarded: EmbeddedCluster) -> None:
    for topic, expected in ((TOPIC, "grant WRITE on the topic"), ("another", "grant DESCRIBE on it")):
        with pytest.raises(ApiError, match=expected) as caught:
            limits_of(logged_in(guarded, "reader", "r"), topic)
        assert (caught.value.code, caught.value.topic) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)
    # Without DESCRIBE_CONFIGS, the limits are unknown, and the tasks begin.
    assert limits_of(logged_in(guarded, "writer", "w"), TOPIC) == {}
    assert limits_of(logged_in(guarded, "reader", "r"), None) == {}


def test_missing_topic_is_waited_for_once() -> None:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        spec = producer_spec({"bootstrap.servers": cluster.bootstrap_servers, "max.block.ms": "300"})
        with pytest.raises(UnknownTopicOrPartitionError, match="topic orders is not present in metadata after 300 ms"):
            limits_of(spec, TOPIC)
        with pytest.raises(InvalidTopicError, match="topic name 'a b' is not legal"):
            limits_of(spec, "a b")
        assert limits_of(spec, None, "rejected") == {}, "dead letters may never come"
        cluster.create_topic(TOPIC, 1)
        assert list(limits_of(spec, TOPIC)) == [TOPIC]


def test_topic_that_brokers_create_is_no_mistake() -> None:
    with EmbeddedCluster() as cluster:
        assert list(limits_of(producer_spec({"bootstrap.servers": cluster.bootstrap_servers}), TOPIC)) == [TOPIC]


def test_unreachable_brokers_are_waited_for_once() -> None:
    spec = producer_spec({"bootstrap.servers": f"127.0.0.1:{free_ports()}", "max.block.ms": "200"})
    with pytest.raises(BrokersUnreachableError, match=r"\d+ ms: .*refused \(kafka\.max\.block\.ms\); check") as found:
        limits_of(spec, TOPIC)
    assert found.value.option == "kafka.max.block.ms"


def test_outage_within_a_stream_is_left_to_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(before_write, "SYSTEM_CLOCK", clock)
    with EmbeddedCluster() as cluster:
        spec = producer_spec({"bootstrap.servers": cluster.bootstrap_servers, "max.block.ms": "200"})
        known = limits_of(spec, TOPIC, valid_ms=VALID_IN_STREAM_MS)
        assert list(known) == [TOPIC]
        clock.advance(VALID_IN_STREAM_MS)
        with set_fault(cluster.faults, "metadata:error=topic_authorization_failed"):
            assert limits_of(spec, TOPIC, valid_ms=VALID_IN_STREAM_MS) == known
    clock.advance(VALID_IN_STREAM_MS)
    assert limits_of(spec, TOPIC, valid_ms=VALID_IN_STREAM_MS) == known
    with pytest.raises(BrokersUnreachableError):
        limits_of(spec, TOPIC)
