"""Kerberos against a real KDC and a real Kafka with a GSSAPI listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import AuthenticationError
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import CheckTarget, Status
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.support.kdc import BROKER, USER, Kdc, requires_kerberos, running_kdc
from tests.support.pages import blocks
from tests.support.readback import read_topic
from tests.support.real_kafka import RealKafka, running_kafka, skip_without_kafka
from tests.support.sessions import outlasting, renew_early
from tests.support.spark_job import run_spark_job
from tests.support.waiting import until

pytestmark = requires_kerberos

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SESSION_MS = 3000
LIFETIME_S = 5
#: So many that tickets expire during them.
LEAST_SESSIONS = 6

SPARK_JOB = """
frame = spark.range(1000).selectExpr("cast(id as string) as value").repartition(4)
frame.write.format("kafkalite").mode("append").options(**given).save()
"""


@dataclass(frozen=True)
class KerberosKafka:
    kafka: RealKafka
    kdc: Kdc

    @property
    def address(self) -> str:
        return self.kafka.address("SASL_PLAINTEXT")

    def properties(self, **further: Any) -> dict[str, Any]:
        keytab = f'useKeyTab=true storeKey=true keyTab="{self.kdc.keytab(USER)}" principal="{USER}@EXAMPLE.TEST"'
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": f"{MODULE} {keytab};",
            **{name.replace("_", "."): value for name, value in further.items()},
        }

    def create_topic(self, name: str) -> None:
        with AdminClient(self.kafka.bootstrap_servers) as admin:
            admin.create_topic(name, 1, 1)


@pytest.fixture(scope="module")
def kerberos_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosKafka]:
    skip_without_kafka()
    directory = tmp_path_factory.mktemp("kerberos-kafka")
    with running_kdc(directory / "kdc", f"{LIFETIME_S}s") as kdc:
        keytab = f'storeKey=true isInitiator=false keyTab="{kdc.keytab(BROKER)}" principal="{BROKER}@EXAMPLE.TEST"'
        prefix = "listener.name.sasl_plaintext"
        with running_kafka(
            directory / "kafka",
            f"{prefix}.sasl.enabled.mechanisms=GSSAPI",
            f"{prefix}.gssapi.sasl.jaas.config={MODULE} useKeyTab=true {keytab};",
            "sasl.kerberos.service.name=kafka",
            f"connections.max.reauth.ms={SESSION_MS}",
            listeners={"SASL_PLAINTEXT": "SASL_PLAINTEXT"},
            java_options=f"-Djava.security.krb5.conf={kdc.config}",
        ) as kafka:
            yield KerberosKafka(kafka, kdc)


@pytest.mark.behaviour("SASL", "GSSAPI: a producer goes on through re-authentications and tickets that expire")
def test_tickets_of_a_keytab_are_renewed_while_a_producer_writes(
    kerberos_kafka: KerberosKafka, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    kerberos_kafka.create_topic("renewed")
    sessions = renew_early(monkeypatch)
    count, before = 0, kerberos_kafka.kdc.logins()
    with KafkaProducer(kerberos_kafka.properties()) as producer:
        for _ in outlasting(SESSION_MS / 1000, sessions, LEAST_SESSIONS):
            producer.send(ProducerRecord("renewed", b"%d" % count))
            count += 1
            time.sleep(0.002)
    values = [int(message.value or b"") for message in read_topic(kerberos_kafka.kafka.bootstrap_servers, "renewed")]
    assert values == list(range(count))
    logins = kerberos_kafka.kdc.logins() - before
    assert logins >= 2
    figure(f"records in {len(sessions)} sessions with {logins} tickets of {LIFETIME_S} s", count)


@pytest.mark.behaviour("SASL", "GSSAPI: a ticket cache that kinit has filled is used")
def test_ticket_cache_is_used(kerberos_kafka: KerberosKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kerberos_kafka.create_topic("cached")
    cache = tmp_path / "cache"
    kerberos_kafka.kdc.kinit(cache)
    line = f'{MODULE} useTicketCache=true ticketCache="{cache}" serviceName="kafka";'
    with AdminClient(kerberos_kafka.address, kerberos_kafka.properties(sasl_jaas_config=line)) as admin:
        until("the topic", lambda: "cached" in admin.list_topics())
    # Without a sasl.jaas.config the client uses the ticket cache of the process.
    kerberos_kafka.kdc.kinit(cache)
    monkeypatch.setenv("KRB5CCNAME", str(cache))
    with AdminClient(kerberos_kafka.address, kerberos_kafka.properties(sasl_jaas_config="")) as admin:
        assert "cached" in admin.list_topics()


@pytest.mark.behaviour("SASL", "GSSAPI: executors use a keytab of theirs, by the recipe of docs/security.md")
def test_executors_use_a_keytab(kerberos_kafka: KerberosKafka, tmp_path: Path) -> None:
    kerberos_kafka.create_topic("executors")
    (recipe,) = (code for code in blocks(PAGE, "python") if "GSSAPI" in code)
    keytab = str(kerberos_kafka.kdc.keytab(USER))
    for of_page, here in {
        "broker:9092": kerberos_kafka.address,
        "SASL_SSL": "SASL_PLAINTEXT",
        "/etc/kafka/orders.keytab": keytab,
        "orders@EXAMPLE.COM": f"{USER}@EXAMPLE.TEST",
    }.items():
        assert of_page in recipe
        recipe = recipe.replace(of_page, here)
    names: dict[str, Any] = {}
    exec(recipe, names)
    run_spark_job(SPARK_JOB, {**names["options"], "topic": "executors"}, tmp_path)
    assert len(read_topic(kerberos_kafka.kafka.bootstrap_servers, "executors")) == 1000


@pytest.mark.behaviour("kafkalite check", "It names what Kerberos misses")
def test_wrong_service_is_named(kerberos_kafka: KerberosKafka) -> None:
    wrong = kerberos_kafka.properties(sasl_kerberos_service_name="kafke")
    with (
        pytest.raises(AuthenticationError, match=r"Server kafke/127\.0\.0\.1@EXAMPLE\.TEST not found"),
        AdminClient(kerberos_kafka.address, wrong) as admin,
    ):
        admin.list_topics()
    failed = [each for each in check_all(CheckTarget(wrong, ()), "here") if each.status is Status.FAILED]
    assert "Server kafke/127.0.0.1@EXAMPLE.TEST not found" in failed[0].found
    assert "sasl.kerberos.service.name" in failed[0].what_to_do
