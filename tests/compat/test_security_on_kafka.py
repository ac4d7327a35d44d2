"""kafkalite's TLS and SASL against a real Kafka: producer and sink authenticate, renew sessions, and lose no record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from confluent_kafka.admin import AdminClient as ForeignAdmin

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import AuthenticationError, SslAuthenticationError
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import CheckReport, CheckTarget, ExactlyOnceTarget
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.compat.kafka_version import is_at_least, requires_kafka
from tests.support.amounts import only_long
from tests.support.certificates import Authority
from tests.support.readback import read_topic
from tests.support.real_kafka import RealKafka, running_kafka
from tests.support.secure_cluster import users
from tests.support.securities import create_scram_user
from tests.support.sessions import outlasting, renew_early, warnings_but_of_one_late_renewal
from tests.support.spark_job import run_spark_job
from tests.support.waiting import until

Figure = Callable[[str, object], None]
AUTHORITY = Authority()
LIMIT_MS = 60_000
PLAIN_LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{}";'
SCRAM_LINE = 'kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
#: A name with characters that SCRAM escapes, and a password that SASLprep would change.
SCRAM_USER, SCRAM_PASSWORD = "c=rol", "ª–\u00adb"
SESSION_MS = 3000
#: The sessions of two connections, one of which re-authenticates twice.
LEAST_SESSIONS = 4
SCRAM = requires_kafka("3.5", "SCRAM without ZooKeeper (KIP-900)")
NAKED_PASSWORD = "PLAIN over SASL_PLAINTEXT sends the password unencrypted; use SASL_SSL to encrypt it"

SPARK_JOB = """
def write(options):
    frame = spark.range(1000).selectExpr("cast(id as string) as value")
    frame.write.format("kafkalite").mode("append").options(**options).save()

write(given)
jaas = given["kafka.sasl.jaas.config"].partition("password=")[0] + 'password="Wr0ng";'
try:
    write({**given, "kafka.sasl.jaas.config": jaas})
except Exception as error:
    if "the broker refused the authentication (SCRAM-SHA-512)" in str(error):
        print("wrong password refused")
    print(error)
"""


@dataclass(frozen=True)
class SecureKafka:
    """A real Kafka with a listener for each security protocol."""

    kafka: RealKafka

    def properties(self, protocol: str, **further: Any) -> dict[str, Any]:
        properties = {"bootstrap.servers": self.kafka.address(protocol), "security.protocol": protocol}
        if "SSL" in protocol:
            properties["ssl.truststore.certificates"] = AUTHORITY.pem
        if protocol == "SASL_PLAINTEXT":
            properties |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN_LINE.format("alice-s3cret")}
        if protocol == "SASL_SSL":
            line = SCRAM_LINE.format(SCRAM_USER, SCRAM_PASSWORD)
            properties |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": line}
        return properties | {name.replace("_", "."): value for name, value in further.items()}

    def create_topic(self, name: str) -> None:
        with AdminClient(self.kafka.bootstrap_servers) as admin:
            admin.create_topic(name, 1, 1)


@pytest.fixture(scope="module")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    directory = tmp_path_factory.mktemp("secure-kafka")
    keystore, truststore = directory / "broker.pem", directory / "trust.pem"
    keystore.write_text(AUTHORITY.issue("127.0.0.1").pem())
    truststore.write_text(AUTHORITY.pem)
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    with running_kafka(
        directory,
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={keystore}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={truststore}",
        "listener.name.ssl.ssl.client.auth=requested",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={users(alice='alice-s3cret')}",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512",
        f"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram}",
        f"connections.max.reauth.ms={SESSION_MS}",
        # A resource with ACLs is only for the users that they name, and for the tests' own client, which is anonymous.
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
        "super.users=User:ANONYMOUS",
        listeners={name: name for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")},
    ) as kafka:
        secure = SecureKafka(kafka)
        if is_at_least("3.5"):
            create_scram_user(kafka.bootstrap_servers, secure.properties("SASL_SSL"), SCRAM_USER, SCRAM_PASSWORD)
        yield secure


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return renew_early(monkeypatch)


@pytest.mark.behaviour("Faults: security", "A producer stores everything on a real Kafka while it authenticates again")
@pytest.mark.parametrize(
    "protocol", ["SSL", pytest.param("SASL_PLAINTEXT", marks=only_long), pytest.param("SASL_SSL", marks=SCRAM)]
)
def test_a_producer_stores_all_while_it_authenticates_again(
    secure_kafka: SecureKafka, protocol: str, sessions: list[int], caplog: pytest.LogCaptureFixture, figure: Figure
) -> None:
    topic = f"again-{protocol.replace('_', '-')}"
    secure_kafka.create_topic(topic)
    count = 0
    warned = [NAKED_PASSWORD] if protocol == "SASL_PLAINTEXT" else []
    with KafkaProducer(secure_kafka.properties(protocol, linger_ms=1)) as producer:
        for _ in outlasting(SESSION_MS / 1000, sessions, 0 if protocol == "SSL" else LEAST_SESSIONS):
            for _ in range(50):
                producer.send(ProducerRecord(topic, b"%d" % count))
                count += 1
            time.sleep(0.005)
        producer.flush()
    values = [int(message.value or b"") for message in read_topic(secure_kafka.kafka.bootstrap_servers, topic)]
    assert values == list(range(count))
    figure(f"records stored over {protocol} in {len(sessions)} sessions", len(values))
    # A broker closes a connection whose session was not renewed in time, and the client would log a warning.
    assert warnings_but_of_one_late_renewal(caplog) == warned


def test_kafka_refuses_what_it_should_and_says_why(secure_kafka: SecureKafka) -> None:
    unknown = Authority("x").issue()
    shown = {"ssl_keystore_key": unknown.key_pem(), "ssl_keystore_certificate_chain": unknown.certificate_pem}
    wrong = {"sasl_jaas_config": PLAIN_LINE.format("wrong")}
    nobody = {"sasl_jaas_config": SCRAM_LINE.format("x", "y")}
    other_trust = {"ssl_truststore_certificates": Authority("x").pem}
    other_mechanism = {"sasl_mechanism": "SCRAM-SHA-256"}
    for protocol, further, error, text in (
        (
            "SASL_PLAINTEXT",
            wrong,
            AuthenticationError,
            r"the broker refused the authentication \(PLAIN\): Authentication failed",
        ),
        ("SASL_SSL", nobody, AuthenticationError, "invalid credentials"),
        ("SASL_SSL", other_mechanism, AuthenticationError, r"set sasl\.mechanism to one of SCRAM-SHA-512"),
        ("SSL", other_trust, SslAuthenticationError, "authority is not trusted"),
        ("SSL", shown, SslAuthenticationError, "does not trust|does not accept our certificate"),
    ):
        with KafkaProducer(secure_kafka.properties(protocol, **further)) as producer, pytest.raises(error, match=text):
            producer.send(ProducerRecord("never", b"x")).result(LIMIT_MS / 1000)


def test_clients_show_their_certificate(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    keystore = tmp_path / "client.pem"
    keystore.write_text(AUTHORITY.issue(common_name="carol").pem("k3y-p4ss"))
    secure_kafka.create_topic("mtls")
    properties = secure_kafka.properties("SSL", ssl_keystore_location=str(keystore), ssl_key_password="k3y-p4ss")
    with KafkaProducer(properties) as producer:
        producer.send(ProducerRecord("mtls", b"x")).result(LIMIT_MS / 1000)


@pytest.mark.behaviour(
    "Faults: security", "The sink writes over SASL_SSL to a real Kafka, and shows no password in Spark's output"
)
@only_long
@SCRAM
def test_sink_writes_over_tls_and_scram_and_shows_no_password(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    secure_kafka.create_topic("sink")
    options = {f"kafka.{name}": str(value) for name, value in secure_kafka.properties("SASL_SSL").items()}
    truststore = tmp_path / "trust.pem"
    truststore.write_text(options.pop("kafka.ssl.truststore.certificates"))
    options |= {"kafka.ssl.truststore.location": str(truststore), "topic": "sink"}
    done = run_spark_job(SPARK_JOB, options, tmp_path)
    assert len(read_topic(secure_kafka.kafka.bootstrap_servers, "sink")) == 1000
    assert "wrong password refused" in done.stdout
    assert SCRAM_PASSWORD not in done.stdout + done.stderr
    assert "Wr0ng" not in done.stdout + done.stderr


@pytest.mark.behaviour("Faults: security", "A transaction goes on through authentications on a real Kafka")
@SCRAM
def test_a_transaction_goes_on_through_authentications(
    secure_kafka: SecureKafka, sessions: list[int], caplog: pytest.LogCaptureFixture, figure: Figure
) -> None:
    secure_kafka.create_topic("transaction")
    count = 0
    with KafkaProducer(secure_kafka.properties("SASL_SSL", transactional_id="through")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in outlasting(SESSION_MS / 1000, sessions, LEAST_SESSIONS):
            producer.send(ProducerRecord("transaction", b"%d" % count))
            count += 1
            time.sleep(0.002)
        producer.commit_transaction()
    values = [int(message.value or b"") for message in read_topic(secure_kafka.kafka.bootstrap_servers, "transaction")]
    assert values == list(range(count))
    assert warnings_but_of_one_late_renewal(caplog) == []
    figure(f"records of one transaction in {len(sessions)} sessions", len(values))


def grant_to_bob(kafka: RealKafka, *resources: tuple[ResourceType, str, ResourcePatternType]) -> None:
    """Permit every operation on these *resources* to bob, and so none to others."""
    rules = [
        AclBinding(kind, name, pattern, "User:bob", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for kind, name, pattern in resources
    ]
    admin = ForeignAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    for outcome in admin.create_acls(rules).values():
        outcome.result(20)


@pytest.mark.behaviour("kafkalite check", "Missing permissions are found on a real Kafka, which is left as it was")
@requires_kafka("3.6", "the verification of transactions (KIP-890, part 1)")
def test_check_finds_missing_permissions(secure_kafka: SecureKafka) -> None:
    at = secure_kafka.kafka.bootstrap_servers
    for name in ("for-all", "for-bob"):
        secure_kafka.create_topic(name)
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    grant_to_bob(
        secure_kafka.kafka,
        (ResourceType.TOPIC, "for-bob", literal),
        (ResourceType.GROUP, "bobs-sink", literal),
        (ResourceType.TRANSACTIONAL_ID, "bobs-sink", prefixed),
    )
    properties = secure_kafka.properties("SASL_PLAINTEXT")
    with AdminClient(at) as admin:
        until("the topics", lambda: {"for-all", "for-bob"} <= {*admin.list_topics()})
        before = admin.list_topics(include_internal=True)

    def checked(sink: str, *topics: str) -> CheckReport:
        return CheckReport(check_all(CheckTarget(properties, topics, ExactlyOnceTarget(sink, topics[0])), "here"))

    allowed = checked("anyones-sink", "for-all")
    assert allowed.is_ok, allowed

    def is_found() -> bool:
        return {each.step for each in checked("bobs-sink", "for-all", "for-bob").problems} == {
            "topic", "transactional ids", "group of the progress",
        }  # fmt: skip

    # The brokers learn of new ACLs one after the other.
    until("the rules", is_found)
    with AdminClient(at) as admin:
        assert admin.list_topics(include_internal=True) == before
