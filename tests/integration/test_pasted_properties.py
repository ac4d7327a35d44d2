"""The properties that providers of hosted Kafka tell their users to paste, with other names: the sink, the producer and
the commands accept them, and log in with them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.cli.main import run
from kafka_sink.common.properties import load_properties
from kafka_sink.http.oauth.token_login import LOGINS
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from kafka_sink.spark.options import parse_options
from tests.support.certificates import Authority
from tests.support.secure_cluster import address, secure_cluster, users
from tests.support.token_server import CLIENT, SECRET, Issuer, token_server

STORES = "changeit"
CONNECTION = "Endpoint=sb://orders.servicebus.windows.net/;SharedAccessKeyName=jobs;SharedAccessKey=a+b/c="
PASSWORDS = {"KEY": "SEC/RET+x=", "$ConnectionString": CONNECTION, "alice": "alice-secret", "avnadmin": "AVNS_x-1"}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
_HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"


class Pasted(NamedTuple):
    """A properties file, with ``{names}`` for files and the address of the token endpoint; and the listener."""

    text: str
    listener: str = "SASL_SSL"


FILES = {
    "Confluent Cloud": Pasted(f"""
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-a1b2c.eu-west-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config={_PLAIN} username='KEY' password='{PASSWORDS["KEY"]}';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips

# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000

# Best practice for Kafka producer to prevent data loss
acks=all
client.id=ccloud-java-client-1234

# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-a1b2c.eu-west-1.aws.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=KEY:SECRET
"""),
    "Confluent Cloud, OAuth": Pasted(f"""
bootstrap.servers=pkc-a1b2c.eu-west-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.oauthbearer.token.endpoint.url={{tokens}}
sasl.login.callback.handler.class={_HANDLER}
sasl.mechanism=OAUTHBEARER
sasl.jaas.config= \\
  {_TOKENS} \\
    clientId='{CLIENT}' \\
    scope='<requested-scope>' \\
    clientSecret='{SECRET}' \\
    extension_logicalCluster='lkc-1a2b3' \\
    extension_identityPoolId='pool-1a2b';
"""),
    "Event Hubs": Pasted(f"""
bootstrap.servers=orders.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config={_PLAIN} username="$ConnectionString" password="{CONNECTION}";
metadata.max.age.ms=180000
connections.max.idle.ms=180000
"""),
    "Event Hubs, Spark and Databricks": Pasted(f"""
bootstrap.servers=orders.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=kafkashaded.{_PLAIN} username="$ConnectionString" password="{CONNECTION}";
request.timeout.ms=60000
session.timeout.ms=30000
"""),
    "Event Hubs, OAuth": Pasted(f"""
bootstrap.servers=orders.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=kafkashaded.{_HANDLER}
sasl.oauthbearer.token.endpoint.url={{tokens}}
sasl.jaas.config=kafkashaded.{_TOKENS} clientId="{CLIENT}" clientSecret="{SECRET}" \\
  scope="https://orders.servicebus.windows.net/.default" ssl.protocol="SSL";
"""),
    "MSK, SCRAM": Pasted(f"""
bootstrap.servers=b-1.orders.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9096
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
ssl.truststore.location={{cacerts}}
sasl.jaas.config={_SCRAM} \\
   username="alice" \\
   password="alice-secret";
"""),
    "MSK, certificates": Pasted(
        """
bootstrap.servers=b-1.orders.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9094
security.protocol=SSL
ssl.truststore.location={cacerts}
ssl.keystore.location={keys}
ssl.keystore.password=changeit
ssl.key.password=changeit
""",
        "SSL",
    ),
    "Aiven, certificates": Pasted(
        """
bootstrap.servers=kafka-orders.aivencloud.com:12345
security.protocol=SSL
ssl.protocol=TLS
ssl.endpoint.identification.algorithm=
ssl.keystore.type=PKCS12
ssl.keystore.location={keys}
ssl.keystore.password=changeit
ssl.key.password=changeit
ssl.truststore.type=JKS
ssl.truststore.location={trust}
ssl.truststore.password=changeit
""",
        "SSL",
    ),
    "Aiven, SCRAM": Pasted(f"""
bootstrap.servers=kafka-orders.aivencloud.com:12346
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config={_SCRAM} username="avnadmin" password="AVNS_x-1";
ssl.endpoint.identification.algorithm=
ssl.truststore.type=jks
ssl.truststore.location={{trust}}
ssl.truststore.password=changeit
"""),
    "Strimzi, certificates": Pasted(
        """
bootstrap.servers=my-cluster-kafka-bootstrap.kafka.svc:9093
security.protocol=SSL
ssl.truststore.location={trust}
ssl.truststore.password=changeit
ssl.keystore.location={keys}
ssl.keystore.password=changeit
""",
        "SSL",
    ),
    "Strimzi, SCRAM": Pasted(f"""
bootstrap.servers=my-cluster-kafka-bootstrap.kafka.svc:9094
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config={_SCRAM} username="alice" password="alice-secret";
ssl.truststore.type=PEM
ssl.truststore.location={{ca}}
"""),
    "Redpanda": Pasted(f"""
bootstrap.servers=seed-1.orders.fmc.prd.cloud.redpanda.com:9092
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config={_SCRAM} username="alice" password="alice-secret";
group.id=demo
auto.offset.reset=earliest
"""),
}
HOSTS = [file.text.partition("bootstrap.servers=")[2].partition(":")[0] for file in FILES.values()]
OF_AMAZON = """
bootstrap.servers=b-1.orders.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required{options};
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""
AUTHORITY = Authority()
IDENTITY = AUTHORITY.issue(*HOSTS, "127.0.0.1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with secure_cluster(
        IDENTITY.pem(),
        sasl_jaas_config=users(**PASSWORDS),
        ssl_truststore_certificates=AUTHORITY.pem,
        ssl_client_auth="requested",
    ) as running:
        yield running


@pytest.fixture
def names(tmp_path: Path, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The files and the token endpoint that the properties name. Every host name resolves to this machine, which has a
    certificate that the system trusts."""
    own = AUTHORITY.issue("client", common_name="client")
    encryption = BestAvailableEncryption(STORES.encode())
    trusted = pkcs12.PKCS12Certificate(load_pem_x509_certificate(AUTHORITY.pem.encode()), b"ca")
    contents = {
        "ca": AUTHORITY.pem.encode(),
        "broker": IDENTITY.pem().encode(),
        # Without a password, as in current versions of Java.
        "cacerts": pkcs12.serialize_java_truststore([trusted], NoEncryption()),
        "trust": pkcs12.serialize_java_truststore([trusted], encryption),
        "keys": pkcs12.serialize_key_and_certificates(b"client", own.key, own.chain[0], None, encryption),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    look_up = socket.getaddrinfo

    def look_up_here(host: str, *arguments: Any, **named: Any) -> Any:
        return look_up("127.0.0.1", *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca"))
    with token_server(Issuer(None), tmp_path / "broker") as server:
        yield {"tokens": server.url, **{name: str(tmp_path / name) for name in contents}}
    LOGINS.forget()


def written(text: str, port: str, folder: Path) -> Path:
    file = folder / "client.properties"
    before, _, after = text.partition(".servers=")
    host, _, rest = after.partition(":")
    file.write_text(f"{before}.servers={host}:{port}\n{rest.partition(chr(10))[2]}")
    return file


def of_sink(properties: Mapping[str, str]) -> dict[str, str]:
    """Return *properties* as options of the sink: those of a registry have no prefix, and need a format."""
    registry = {name: value for name, value in properties.items() if name.startswith(("schema.registry.", "basic."))}
    kafka = {f"kafka.{name}": value for name, value in properties.items() if name not in registry}
    return {**kafka, **registry, **({"value.format": "avro"} if registry else {}), "topic": "t"}


@pytest.mark.behaviour("What people paste", "The documented properties of hosted Kafkas are taken, and log in")
@pytest.mark.parametrize("provider", FILES)
def test_documented_properties_log_in(
    provider: str,
    cluster: EmbeddedCluster,
    names: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pasted = FILES[provider]
    text = pasted.text
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    file = written(text, address(cluster, pasted.listener).rpartition(":")[2], tmp_path)
    properties = load_properties(str(file))
    parse_options(of_sink(properties))
    with KafkaProducer(properties) as producer:
        assert producer.send(ProducerRecord("t", provider.encode())).result(60).offset >= 0
    (tmp_path / "rows").write_text("a row\n")
    with (tmp_path / "rows").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        for command in (("topics", "list"), ("produce", "t", "--raw")):
            assert run([*command, "--command-config", str(file)]) == 0, capsys.readouterr()
    said = capsys.readouterr()
    assert not any(password in said.out + said.err for password in (*PASSWORDS.values(), SECRET))


@pytest.mark.parametrize(
    "options",
    [
        "",
        ' awsProfileName="jobs"',
        " awsDebugCreds=true",
        ' awsRoleArn="arn:aws:iam::1:role/jobs" awsRoleSessionName="spark"',
        ' awsRoleArn="arn:aws:iam::1:role/jobs" awsStsRegion="eu-west-1"',
        ' awsMaxRetries="7" awsMaxBackOffTimeMs="500"',
    ],
)
@pytest.mark.behaviour("What people paste", "The documented lines of Amazon's login module are taken")
def test_documented_lines_of_amazon_are_taken(
    options: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, names: dict[str, str]
) -> None:
    file = written(OF_AMAZON.replace("{options}", options), "9098", tmp_path)
    properties = load_properties(str(file))
    parse_options(of_sink(properties))
    KafkaProducer(properties).close(timeout=0)
    ignored = [said for said in caplog.messages if "login module in" in said and "without effect here" in said]
    assert bool(ignored) == any(name in options for name in ("Debug", "Sts", "Max"))
