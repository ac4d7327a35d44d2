"""The embedded broker's TLS and SASL, judged by clients that we did not write: librdkafka, kafka-python, aiokafka."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as ForeignAdmin
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import AuthenticationError
from kafka_sink.common.model import TopicPartition
from tests.support.certificates import Authority
from tests.support.secure_cluster import PASSWORD, address, client_properties, secure_cluster

AUTHORITY = Authority()
SASL = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
#: Protocol and mechanism.
WAYS = [("SSL", ""), *((protocol, name) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in SASL)]
COUNT = 20
ways = pytest.mark.parametrize(("protocol", "mechanism"), WAYS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with secure_cluster(AUTHORITY.issue("127.0.0.1").pem(), connections_max_reauth_ms=60_000) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    cluster.create_topic(name, 1)
    return name


@pytest.fixture(scope="module")
def truststore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trust") / "trust.pem"
    path.write_text(AUTHORITY.pem)
    return path


def check(cluster: EmbeddedCluster, topic: str) -> None:
    with AdminClient(cluster.bootstrap_servers) as admin:
        assert admin.offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): COUNT}


def librdkafka_options(
    cluster: EmbeddedCluster, protocol: str, mechanism: str, password: str = PASSWORD
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": address(cluster, protocol), "security.protocol": protocol, "ssl.ca.pem": AUTHORITY.pem,
    }  # fmt: skip
    if mechanism:
        options |= {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}
    return options


@pytest.mark.behaviour("SASL", "Other clients authenticate with SASL")
@ways
def test_librdkafka(cluster: EmbeddedCluster, topic: str, protocol: str, mechanism: str) -> None:
    producer = Producer(librdkafka_options(cluster, protocol, mechanism))
    for _ in range(COUNT):
        producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    check(cluster, topic)


@pytest.mark.parametrize("mechanism", SASL)
def test_librdkafka_is_told_of_a_wrong_password(cluster: EmbeddedCluster, mechanism: str) -> None:
    errors: list[str] = []
    options = librdkafka_options(cluster, "SASL_PLAINTEXT", mechanism, password="wrong")
    told: dict[str, Any] = {"error_cb": lambda error: errors.append(str(error)), "log_level": 0}
    admin = ForeignAdmin({**options, **told})
    for _ in range(50):
        admin.poll(0.1)
        if any("Authentication failed" in error for error in errors):
            return
    pytest.fail(f"nothing but {errors}")


@pytest.mark.behaviour("SASL", "A user that librdkafka makes logs in with it, and not when it has deleted it")
def test_librdkafka_makes_users(cluster: EmbeddedCluster, topic: str) -> None:
    admin: Any = ForeignAdmin({"bootstrap.servers": cluster.bootstrap_servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", info, b"c")])
    assert made["carol"].result() is None
    options = {**librdkafka_options(cluster, "SASL_SSL", "SCRAM-SHA-512", password="c"), "sasl.username": "carol"}
    producer = Producer(options)
    for _ in range(COUNT):
        producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    check(cluster, topic)
    [told] = admin.describe_user_scram_credentials(["carol"])["carol"].result().scram_credential_infos
    assert (told.mechanism, told.iterations) == (info.mechanism, info.iterations)
    deletion = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
    assert admin.alter_user_scram_credentials([deletion])["carol"].result() is None
    properties = client_properties(cluster, "SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512")
    properties["sasl.jaas.config"] = 'ScramLoginModule required username="carol" password="c";'
    where = properties["bootstrap.servers"]
    with pytest.raises(AuthenticationError), AdminClient(where, properties) as refused:
        refused.list_topics()


@pytest.mark.behaviour("SASL", "Other clients authenticate with SASL")
@ways
def test_kafka_python(cluster: EmbeddedCluster, topic: str, truststore: Path, protocol: str, mechanism: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": address(cluster, protocol), "security_protocol": protocol}
    if "SSL" in protocol:
        options["ssl_cafile"] = str(truststore)
    if mechanism:
        options |= {
            "sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD,
        }  # fmt: skip
    producer = kafka.KafkaProducer(**options)
    try:
        for future in [producer.send(topic, b"x") for _ in range(COUNT)]:
            future.get(timeout=20)
    finally:
        producer.close()
    check(cluster, topic)


@pytest.mark.behaviour("SASL", "Other clients authenticate with SASL")
@ways
def test_aiokafka(cluster: EmbeddedCluster, topic: str, truststore: Path, protocol: str, mechanism: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": address(cluster, protocol), "security_protocol": protocol}
    if "SSL" in protocol:
        options["ssl_context"] = ssl.create_default_context(cafile=str(truststore))
    if mechanism:
        options |= {
            "sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD,
        }  # fmt: skip

    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            for _ in range(COUNT):
                await producer.send_and_wait(topic, b"x")

    asyncio.run(asyncio.wait_for(produce(), 30))
    check(cluster, topic)
