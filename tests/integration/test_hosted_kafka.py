"""A producer, a check and both protocols of exactly once on what hosted Kafkas offer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.config import parse
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.driver_steps import DriverSteps
from kafka_sink.exactly_once.model import ExactlyOnceError
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import Status
from kafka_sink.preflight.target import CheckTarget, ExactlyOnceTarget
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.registry import APIS
from tests.support.hosted_proxy import HostedProxy
from tests.support.secure_cluster import PASSWORD, quoted, users

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f"username=alice password={quoted(PASSWORD)};",
}
#: What Apache Kafka offers, but for DescribeConfigs.
WITHOUT_SETTINGS: dict[ApiKey, tuple[int, int]] = {
    key: (api.versions.min, api.versions.max) for key, api in APIS.items() if key is not ApiKey.DESCRIBE_CONFIGS
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    config = parse(
        BrokerConfig,
        {
            "listeners": ["PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"],
            "sasl.enabled.mechanisms": ["PLAIN"],
            "sasl.jaas.config": users(alice=PASSWORD),
        },
    )
    with EmbeddedCluster(config=config) as running:
        running.create_topic("t", partitions=1)
        yield running


def servers(cluster: EmbeddedCluster, protocol: str) -> str:
    endpoint = cluster.nodes[1][protocol]
    return f"{endpoint.host}:{endpoint.port}"


@pytest.mark.behaviour("ApiVersions", "Event Hubs, which closes the connection at version 4, is written to")
@pytest.mark.parametrize("login", [{}, SASL], ids=["PLAINTEXT", "SASL"])
@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_producer_writes_to_event_hubs(
    cluster: EmbeddedCluster, login: dict[str, str], idempotence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with HostedProxy(servers(cluster, login.get("security.protocol", "PLAINTEXT"))) as proxy:
        config = {"bootstrap.servers": proxy.bootstrap_servers, "enable.idempotence": idempotence, **login}
        with KafkaProducer(config) as producer:
            producer.send(ProducerRecord("t", b"x")).get(30_000)
    assert "by the other side" not in caplog.text


def findings(proxy: HostedProxy, once: ExactlyOnceTarget | None) -> dict[str, Any]:
    target = CheckTarget({"bootstrap.servers": proxy.bootstrap_servers}, ("t",), once)
    return {each.step: each for each in check_all(target, "here")}


def plan(proxy: HostedProxy) -> object:
    client = CoordinatorClient({"bootstrap.servers": proxy.bootstrap_servers}, timeout_ms=20_000)
    try:
        return plan_batch(DriverSteps(client, "sink", "t", timeout_ms=60_000, topics=("t",)))
    finally:
        client.close()


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed",
    "Brokers without transactions are refused by a sentence that says what to do",
)
def test_exactly_once_on_event_hubs_is_refused_with_advice(cluster: EmbeddedCluster) -> None:
    with HostedProxy(servers(cluster, "PLAINTEXT")) as proxy:
        assert {each.status for each in findings(proxy, None).values()} <= {Status.OK, Status.WARNING}
        found = findings(proxy, ExactlyOnceTarget("sink", "t", None, False))["API versions"]
        assert (found.status, found.what_to_do.split("; ")[0]) == (Status.FAILED, "write at least once")
        with pytest.raises(ExactlyOnceError) as refused:
            plan(proxy)
    text = str(refused.value)
    assert text.startswith("these brokers do not support exactly-once writes: broker 1 at 127.0.0.1:")
    assert "Write at least once instead: a stream without deliveryGuarantee=exactly-once" in text
    assert "upgrade" not in text and "3.3" not in text


@pytest.mark.behaviour(
    "Exactly once: refused instead of guessed", "Brokers that do not offer DescribeConfigs are written to once"
)
def test_exactly_once_needs_no_settings(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    with HostedProxy(servers(cluster, "PLAINTEXT"), WITHOUT_SETTINGS) as proxy:
        assert findings(proxy, ExactlyOnceTarget("sink", "t", None, False))["API versions"].status is Status.OK
        assert plan(proxy) is not None
    assert "cannot read transaction.partition.verification.enable" in caplog.text
