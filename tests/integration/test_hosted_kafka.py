"""A producer, a check and both protocols of exactly once on what hosted Kafkas offer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.config import parse
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import ExactlyOnceError
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import CheckTarget, ExactlyOnceTarget, Status
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from kafka_sink.protocol.api_key import ApiKey
from tests.exactly_once.world import World
from tests.support.hosted_proxy import HOSTED, HostedProxy
from tests.support.readback import read_topic
from tests.support.secure_cluster import PASSWORD, quoted, users

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f"username=alice password={quoted(PASSWORD)};",
}
PAGE = " ".join((Path(__file__).parents[2] / "docs" / "versions.md").read_text(encoding="utf-8").split())
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


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
            producer.send(ProducerRecord("t", b"x")).result(30)
    assert "by the other side" not in caplog.text


def findings(proxy: HostedProxy, once: ExactlyOnceTarget | None, topic: str = "t") -> dict[str, Any]:
    target = CheckTarget({"bootstrap.servers": proxy.bootstrap_servers}, (topic,), once)
    return {each.step: each for each in check_all(target, "here")}


def plan(proxy: HostedProxy) -> object:
    client = CoordinatorClient({"bootstrap.servers": proxy.bootstrap_servers}, timeout_ms=20_000)
    try:
        return plan_batch(SinkDriver(client, "sink", "t", timeout_ms=60_000, topics=("t",)))
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
    with HostedProxy(
        servers(cluster, "PLAINTEXT"), "Amazon MSK, Kafka 3.9", without=[ApiKey.DESCRIBE_CONFIGS]
    ) as proxy:
        assert findings(proxy, ExactlyOnceTarget("sink", "t", None, False))["API versions"].status is Status.OK
        assert plan(proxy) is not None
    assert "cannot read transaction.partition.verification.enable" in caplog.text


@pytest.mark.behaviour(
    "ApiVersions", "What hosted services offer is written to, or exactly once is refused as the page says"
)
@pytest.mark.parametrize("service", HOSTED)
def test_each_service_is_written_to(cluster: EmbeddedCluster, service: str) -> None:
    topic = f"of-{list(HOSTED).index(service)}"
    cluster.create_topic(topic, partitions=1)
    with HostedProxy(servers(cluster, "PLAINTEXT"), service) as proxy:
        sent = [
            b"%s %s" % (codec.encode(), idempotence.encode()) for codec in CODECS for idempotence in ("true", "false")
        ]
        for value in sent:
            codec, idempotence = value.decode().split()
            config = {"bootstrap.servers": proxy.bootstrap_servers, "compression.type": codec}
            with KafkaProducer({**config, "enable.idempotence": idempotence}) as producer:
                producer.send(ProducerRecord(topic, value)).result(30)
        world = World(proxy.bootstrap_servers, topic)
        refused = HOSTED[service].get("refused")
        for once, fails in ((None, False), (ExactlyOnceTarget(topic, topic, None, False), refused is not None)):
            statuses = {each.status for each in findings(proxy, once, topic).values()}
            assert (Status.FAILED in statuses) == fails
        try:
            for version, protocol in enumerate(("atomic", "parallel", "atomic")):
                rows = [b"%d %d" % (version, number) for number in range(4)]
                if refused is None:
                    world.write_batch(protocol, version, *rows)
                    sent += rows
                else:
                    with pytest.raises(ExactlyOnceError) as error:
                        world.write_batch(protocol, version, *rows)
                    assert refused in str(error.value) and refused in PAGE
        finally:
            world.client.close()
    assert sorted(message.value or b"" for message in read_topic(servers(cluster, "PLAINTEXT"), topic)) == sorted(sent)
    assert f"| {service} |" in PAGE


@pytest.mark.behaviour("ApiVersions", "A build between releases, whose number has a plus sign, is accepted (KIP-511)")
def test_builds_between_releases_are_accepted(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_sink.client.connection.api_versions.VERSION", "1.0.0.dev1066+g839acf39")
    with KafkaProducer({"bootstrap.servers": servers(cluster, "PLAINTEXT")}) as producer:
        producer.send(ProducerRecord("t", b"x")).result(30)
