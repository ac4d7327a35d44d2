"""Other projects' clients and kafkalite on a real Kafka with a listener for each way to authenticate: the cells of the
table in docs/security.md that were tested."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kafka as kafka_python
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.http.oauth.token_login import LOGINS
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.compat.identity_kafka import LIFETIME_S, PASSWORD, RENEWALS, SESSION_MS, TOKENS, IdentityKafka
from tests.compat.java_producer import write_with_java
from tests.compat.kafka_version import requires_kafka
from tests.conftest import Figure
from tests.support.amounts import only_long
from tests.support.deliveries import noting
from tests.support.readback import read_topic
from tests.support.token_server import CLIENT, SECRET

pytestmark = [only_long, requires_kafka("4.3", "client assertions (KIP-1258)")]

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
#: Records, and their rate per second, for longer than two sessions.
RECORDS, PER_S = 100, 10
PASSWORDS = ("plain", "scram256", "scram512")
MECHANISMS = {"plain": "PLAIN", "scram256": "SCRAM-SHA-256", "scram512": "SCRAM-SHA-512"}


def numbers() -> Iterator[int]:
    """Yield the numbers of the records at :data:`PER_S`, for longer than two sessions."""
    for number in range(RECORDS):
        yield number
        time.sleep(1 / PER_S)


def by_java(kafka: IdentityKafka, way: str, topic: str, directory: Path) -> None:
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    write_with_java(
        kafka.properties(way),
        topic,
        directory / f"{way}.properties",
        RECORDS,
        per_s=PER_S,
        java_options=f"{allowed}.urls={kafka.idp.url} {allowed}.files={kafka.assertion_key}",
    )


def by_librdkafka(kafka: IdentityKafka, way: str, topic: str, directory: Path) -> None:
    authority, own = str(kafka.directory / "trust.pem"), str(kafka.directory / "client.pem")
    endpoint = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": kafka.idp.url,
        "https.ca.location": authority,
    }
    ways: dict[str, dict[str, object]] = {
        "mtls": {"security.protocol": "SSL", "ssl.certificate.location": own, "ssl.key.location": own},
        "oauth": {**endpoint, "sasl.oauthbearer.client.id": CLIENT, "sasl.oauthbearer.client.secret": SECRET},
        "bearer": {
            **endpoint,
            "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "sasl.oauthbearer.assertion.private.key.file": str(kafka.assertion_key),
            "sasl.oauthbearer.assertion.claim.iss": CLIENT,
            "sasl.oauthbearer.assertion.claim.aud": "idp",
        },
        "function": {
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (kafka.idp.issuer.token(), time.time() + kafka.idp.issuer.lifetime_s),
        },
        **{
            each: {"sasl.mechanism": MECHANISMS[each], "sasl.username": "alice", "sasl.password": PASSWORD}
            for each in PASSWORDS
        },
    }
    producer = Producer(
        {
            "bootstrap.servers": kafka.kafka.address(way.upper()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": authority,
            **ways[way],
        }
    )
    failed: list[KafkaError] = []
    for number in numbers():
        producer.produce(topic, b"%d" % number, on_delivery=noting(failed))
        producer.poll(0)
    assert producer.flush(30) == 0 and failed == []


def by_kafka_python(kafka: IdentityKafka, way: str, topic: str, directory: Path) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return kafka.idp.issuer.token()

    own = str(kafka.directory / "client.pem")
    ways: dict[str, dict[str, Any]] = {
        "mtls": {"security_protocol": "SSL", "ssl_certfile": own, "ssl_keyfile": own},
        "function": {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()},
        **{
            each: {"sasl_mechanism": MECHANISMS[each], "sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
            for each in PASSWORDS
        },
    }
    common = {
        "bootstrap_servers": kafka.kafka.address(way.upper()),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(kafka.directory / "trust.pem"),
    }
    with contextlib.closing(kafka_python.KafkaProducer(**{**common, **ways[way]})) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in numbers()]
        producer.flush(30)
        assert all(future.succeeded() for future in sent)


def by_kafkalite(kafka: IdentityKafka, way: str, topic: str, directory: Path) -> None:
    properties: dict[str, object] = {**kafka.properties("bearer" if way == "function" else way)}
    if way == "function":
        properties = {name: each for name, each in properties.items() if "oauthbearer" not in name}
        del properties["sasl.jaas.config"]
        properties["bootstrap.servers"] = kafka.kafka.address("FUNCTION")
        properties["sasl.login.callback.handler.class"] = kafka.idp.issuer.token
    with KafkaProducer(properties) as producer:
        for number in numbers():
            producer.send(ProducerRecord(topic, b"%d" % number))


#: Client → its writer, the ways that it supports, and how many run concurrently: a JVM needs many resources.
CLIENTS: Mapping[str, tuple[Callable[[IdentityKafka, str, str, Path], None], tuple[str, ...], int]] = {
    "Java": (by_java, ("mtls", *PASSWORDS, "oauth", "assertion", "bearer"), 2),
    "librdkafka": (by_librdkafka, ("mtls", *PASSWORDS, "function", "oauth", "bearer"), 7),
    "kafka-python": (by_kafka_python, ("mtls", *PASSWORDS, "function"), 5),
    "kafkalite": (by_kafkalite, ("mtls", *PASSWORDS, *TOKENS, "kerberos"), 9),
}


@pytest.mark.behaviour("SASL", "Each client writes in each way that docs/security.md says, and renews its sessions")
@pytest.mark.parametrize("client", CLIENTS)
def test_clients_write_in_the_ways_of_the_page(
    client: str, identity_kafka: IdentityKafka, tmp_path: Path, figure: Figure
) -> None:
    write, ways, at_once = CLIENTS[client]
    # There is no listener for Kerberos on a machine without a KDC.
    ways = tuple(way for way in ways if way.upper() in identity_kafka.kafka.ports)
    LOGINS.forget()
    topics = {way: f"{client}-{way}" for way in ways}
    with AdminClient(identity_kafka.kafka.bootstrap_servers) as admin:
        for topic in topics.values():
            admin.create_topic(topic, 1, 1)
    before, tokens = identity_kafka.noted(RENEWALS), len(identity_kafka.idp.asked)
    with ThreadPoolExecutor(at_once) as threads:
        done = {way: threads.submit(write, identity_kafka, way, topic, tmp_path) for way, topic in topics.items()}
    after = identity_kafka.noted(RENEWALS)
    LOGINS.forget()
    # The client renews the token of a producer until the producer is collected.
    gc.collect()
    problems = {way: repr(each.exception()) for way, each in done.items() if each.exception() is not None}
    assert not problems, problems
    for way, topic in topics.items():
        assert len(read_topic(identity_kafka.kafka.bootstrap_servers, topic)) == RECORDS, way
    renewals = {way: after[way] - before[way] for way in ways if way != "mtls"}
    figure(f"renewals of {client} within {RECORDS // PER_S} s, sessions of {SESSION_MS // 1000} s", renewals)
    assert all(renewals.values()), renewals
    if by_endpoint := {"oauth", "assertion", "bearer"} & set(ways):
        figure(
            f"tokens of {LIFETIME_S} s for {len(by_endpoint)} producers",
            tokens := len(identity_kafka.idp.asked) - tokens,
        )
        assert tokens >= 2 * len(by_endpoint)


def test_the_page_marks_the_ways_that_are_run() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    (clients,) = (row[1:] for row in rows if row[-1] == "kafkalite")
    marked = {
        (client, row[0]) for row in rows for client, cell in zip(clients, row[1:], strict=False) if "*run*" in cell
    }
    ways = {
        "mTLS": ("mtls",),
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512": PASSWORDS,
        "OAUTHBEARER with your own function": ("function",),
        "OAUTHBEARER with client credentials": ("oauth",),
        "… with an assertion instead of a secret": ("assertion",),
        "… with an assertion alone (`jwt-bearer`)": ("bearer",),
    }
    for client in clients:
        for row, needed in ways.items():
            assert ((client, row) in marked) == set(needed).issubset(CLIENTS[client][1]), (client, row)


@pytest.mark.behaviour("SASL", "What docs/security.md says of Kerberos in the wheel of confluent-kafka")
def test_wheel_of_librdkafka_has_no_kerberos() -> None:
    with pytest.raises(KafkaException, match="No provider for SASL mechanism GSSAPI"):
        Producer({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})
