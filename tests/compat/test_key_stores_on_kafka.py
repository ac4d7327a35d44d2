"""Key stores of Java's keytool for clients and for a real Kafka, which requires client certificates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import SslAuthenticationError
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.compat.java_producer import write_with_java
from tests.compat.kafka_version import requires_kafka
from tests.support.amounts import only_long
from tests.support.key_stores import KINDS, KeytoolStores, requires_keytool
from tests.support.readback import read_topic
from tests.support.real_kafka import RealKafka, running_kafka, skip_without_kafka
from tests.support.spark_job import run_spark_job

pytestmark = [only_long, requires_keytool]

PASSWORD, KEY_PASSWORD = "st0re-s3cret", "k3y-s3cret"
RECORDS = 1000

SPARK_JOB = """
frame = spark.range(given["records"]).selectExpr("cast(id as string) as value").repartition(4)
for options in given["writes"]:
    frame.write.format("kafkalite").mode("append").options(**options).save()
"""


@dataclass(frozen=True)
class StoreKafka:
    """A Kafka with a listener for each kind of store, which has the name of the kind."""

    kafka: RealKafka
    stores: KeytoolStores

    def properties(self, kind: str, identity: str = "alice") -> dict[str, str]:
        """Return the properties of a client with stores of *kind* and references to their passwords; without an
        *identity* it has no key store."""
        secret = f"${{file:{self.stores.directory}/secrets.properties:"
        trust = {
            "ssl.truststore.type": kind,
            "ssl.truststore.location": str(self.stores.path("trust", kind)),
            "ssl.truststore.password": f"{secret}store}}",
        }
        own = {
            "ssl.keystore.type": kind,
            "ssl.keystore.location": str(self.stores.path(identity, kind)),
            "ssl.keystore.password": f"{secret}store}}",
            **({"ssl.key.password": f"{secret}key}}"} if kind == "JKS" else {}),
        }
        common = {"bootstrap.servers": self.kafka.address(kind), "security.protocol": "SSL", "max.block.ms": "20000"}
        return {**common, **trust, **(own if identity else {})}

    def create_topic(self, name: str) -> None:
        with AdminClient(self.kafka.bootstrap_servers) as admin:
            admin.create_topic(name, 1, 1)


def broker_properties(stores: KeytoolStores, kind: str) -> list[str]:
    key_password = KEY_PASSWORD if kind == "JKS" else PASSWORD
    return [
        f"listener.name.{kind.lower()}.ssl.{name}={value}"
        for name, value in {
            "client.auth": "required",
            "truststore.type": kind,
            "truststore.location": stores.path("trust", kind),
            "truststore.password": PASSWORD,
            "keystore.type": kind,
            "keystore.location": stores.path("broker", kind),
            "keystore.password": PASSWORD,
            "key.password": key_password,
        }.items()
    ]


@pytest.fixture(scope="module")
def store_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreKafka]:
    skip_without_kafka()
    directory = tmp_path_factory.mktemp("key-stores")
    stores = KeytoolStores(directory, PASSWORD, KEY_PASSWORD)
    stores.make({"broker": "san=ip:127.0.0.1", "alice": "eku=clientAuth"})
    (directory / "secrets.properties").write_text(f"store={PASSWORD}\nkey={KEY_PASSWORD}\n")
    with running_kafka(
        directory / "kafka",
        *(line for kind in KINDS for line in broker_properties(stores, kind)),
        listeners=dict.fromkeys(KINDS, "SSL"),
    ) as kafka:
        yield StoreKafka(kafka, stores)


@pytest.mark.behaviour(
    "TLS", "A real Kafka and a producer, each with stores of keytool, prove to each other who they are"
)
@pytest.mark.parametrize("kind", KINDS)
def test_producer_and_kafka_use_stores_of_keytool(kind: str, store_kafka: StoreKafka) -> None:
    topic = f"produced-{kind}"
    store_kafka.create_topic(topic)
    with KafkaProducer(store_kafka.properties(kind)) as producer:
        for number in range(RECORDS):
            producer.send(ProducerRecord(topic, b"%d" % number))
    values = [int(message.value or b"") for message in read_topic(store_kafka.kafka.bootstrap_servers, topic)]
    assert values == list(range(RECORDS))
    with pytest.raises(SslAuthenticationError), KafkaProducer(store_kafka.properties(kind, identity="")) as nobody:
        nobody.send(ProducerRecord(topic, b"unproven")).result(60)


@requires_kafka("4.3", "the options of its performance tool")
@pytest.mark.behaviour("TLS", "Java's client and librdkafka read the stores of keytool that docs/security.md says")
@pytest.mark.parametrize(("client", "kind"), [("Java", "JKS"), ("Java", "PKCS12"), ("librdkafka", "PKCS12")])
def test_other_clients_use_stores_of_keytool(client: str, kind: str, store_kafka: StoreKafka, tmp_path: Path) -> None:
    topic = f"{client}-{kind}"
    store_kafka.create_topic(topic)
    if client == "Java":
        write_with_java(store_kafka.properties(kind), topic, tmp_path / "client.properties", RECORDS)
    else:
        own = {
            "ssl.keystore.location": str(store_kafka.stores.path("alice", kind)),
            "ssl.keystore.password": PASSWORD,
            "ssl.ca.location": str(store_kafka.stores.authority),
        }
        producer = Producer({"bootstrap.servers": store_kafka.kafka.address(kind), "security.protocol": "SSL", **own})
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(30) == 0
    assert len(read_topic(store_kafka.kafka.bootstrap_servers, topic)) == RECORDS


@pytest.mark.behaviour("TLS", "Spark tasks write to a real Kafka with stores of keytool, JKS and PKCS12")
def test_spark_tasks_use_stores_of_keytool(store_kafka: StoreKafka, tmp_path: Path) -> None:
    topics = {kind: f"spark-{kind}" for kind in KINDS}
    for topic in topics.values():
        store_kafka.create_topic(topic)
    writes = [
        {"topic": topic, **{f"kafka.{name}": value for name, value in store_kafka.properties(kind).items()}}
        for kind, topic in topics.items()
    ]
    done = run_spark_job(SPARK_JOB, {"records": RECORDS, "writes": writes}, tmp_path)
    assert PASSWORD not in done.stdout + done.stderr and KEY_PASSWORD not in done.stdout + done.stderr
    for topic in topics.values():
        values = [int(message.value or b"") for message in read_topic(store_kafka.kafka.bootstrap_servers, topic)]
        assert sorted(values) == list(range(RECORDS))
