"""The client.properties that providers document for Java's clients, with their names replaced, as they are pasted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from cryptography.x509 import load_pem_x509_certificate

from kafka_sink import KafkaProducer
from kafka_sink.cli import output
from kafka_sink.cli.main import run
from kafka_sink.client.blocking.admin import AdminConfig
from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common import config as c
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.properties import load_properties
from kafka_sink.consumer.config import ConsumerConfig
from kafka_sink.spark.options import parse_options
from tests.support.certificates import Authority

#: Nobody listens there.
SERVERS = "127.0.0.1:1"
DOCUMENTED = {
    "Confluent Cloud": """
        bootstrap.servers=127.0.0.1:1
        security.protocol=SASL_SSL
        sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='KEY';
        sasl.mechanism=PLAIN
        client.dns.lookup=use_all_dns_ips
        session.timeout.ms=45000
        acks=all
        client.id=ccloud-java-client-1
        schema.registry.url=https://127.0.0.1:1
        basic.auth.credentials.source=USER_INFO
        basic.auth.user.info=KEY:SECRET
        """,
    "Event Hubs, connection string": """
        bootstrap.servers=127.0.0.1:1
        security.protocol=SASL_SSL
        sasl.mechanism=PLAIN
        sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
            username="$ConnectionString" password="Endpoint=sb://n.example.com/;SharedAccessKeyName=k;SharedAccessKey=s=";
        request.timeout.ms=60000
        metadata.max.age.ms=180000
        connections.max.idle.ms=180000
        """,
    "Event Hubs, OAuth": """
        bootstrap.servers=127.0.0.1:1
        security.protocol=SASL_SSL
        sasl.mechanism=OAUTHBEARER
        sasl.login.callback.handler.class=\\
            org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler
        sasl.oauthbearer.token.endpoint.url=https://127.0.0.1:1/tenant/oauth2/v2.0/token
        sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
            clientId="CLIENT" clientSecret="SECRET" scope="https://n.example.com/.default" ssl.protocol="SSL";
        """,
    "Amazon MSK, IAM": """
        bootstrap.servers=127.0.0.1:1
        security.protocol=SASL_SSL
        sasl.mechanism=AWS_MSK_IAM
        sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
        sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
        sasl.oauthbearer.aws.region=eu-west-1
        """,
    "Amazon MSK, SCRAM": """
        bootstrap.servers=127.0.0.1:1
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        ssl.truststore.location=FOLDER/trust
        ssl.truststore.password=changeit
        sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";
        """,
    "Aiven": """
        bootstrap.servers=127.0.0.1:1
        security.protocol=SSL
        ssl.protocol=TLS
        ssl.key.password=changeit
        ssl.keystore.location=FOLDER/keys
        ssl.keystore.password=changeit
        ssl.keystore.type=PKCS12
        ssl.truststore.location=FOLDER/trust
        ssl.truststore.password=changeit
        """,
    "Strimzi": """
        bootstrap.servers=127.0.0.1:1
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-512
        sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
          username="my-user" \\
          password="p";
        ssl.truststore.location=FOLDER/trust
        ssl.truststore.type=PKCS12
        ssl.truststore.password=changeit
        """,
    "Redpanda": """
        bootstrap.servers=127.0.0.1:1
        security.protocol=SASL_SSL
        sasl.mechanism=SCRAM-SHA-256
        sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";
        group.id=demo
        auto.offset.reset=earliest
        key.serializer=bytes
        """,
}
#: What the sink has its own word for.
NOT_OF_THE_SINK = frozenset({"key.serializer"})
KINDS = (ClientConfig, AdminConfig, ConsumerConfig)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, authority = tmp_path_factory.mktemp("stores"), Authority()
    own = authority.issue("localhost")
    encryption = BestAvailableEncryption(b"changeit")
    trusted = pkcs12.PKCS12Certificate(load_pem_x509_certificate(authority.pem.encode()), b"authority")
    (folder / "trust").write_bytes(pkcs12.serialize_java_truststore([trusted], encryption))
    (folder / "keys").write_bytes(
        pkcs12.serialize_key_and_certificates(b"own", own.key, own.chain[0], None, encryption)
    )
    return folder


@pytest.fixture(params=DOCUMENTED)
def file(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text(DOCUMENTED[request.param].replace("FOLDER", str(folder)))
    return file


def without(names: frozenset[str], properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in names}


@pytest.mark.behaviour(
    "What people paste", "The client.properties that providers document are taken by sink and clients"
)
def test_documented_properties_are_taken_by_every_client(file: Path) -> None:
    properties = load_properties(str(file))
    of_the_sink = without(NOT_OF_THE_SINK, properties)
    parse_options({"topic": "t", **{f"kafka.{name}": value for name, value in of_the_sink.items()}})
    for kind in KINDS:
        create_channel_builder(c.parse(kind, properties), SYSTEM_CLOCK, "")
    KafkaProducer(properties).close(0)


@pytest.mark.behaviour("What people paste", "The client.properties that providers document are taken by the commands")
def test_documented_properties_are_taken_by_a_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["topics", "list", "--command-config", str(file), "--timeout", "0.1"])
    printed = capsys.readouterr().err
    assert code == output.EXIT_FAILURE, printed
    assert SERVERS in printed
