"""Client credentials against a real Kafka that verifies the signatures of tokens, compared with Kafka's own client."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import AuthenticationError
from kafka_sink.http.oauth.token_login import LOGINS
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.compat.kafka_version import requires_kafka
from tests.support.amounts import only_long
from tests.support.certificates import Authority
from tests.support.kafka_tools import run_kafka_tool
from tests.support.readback import read_topic
from tests.support.real_kafka import RealKafka, running_kafka, skip_without_kafka
from tests.support.sessions import outlasting, renew_early
from tests.support.spark_job import run_spark_job
from tests.support.token_server import CLIENT, SECRET, Issuer, TokenServer, token_server
from tests.support.waiting import until

pytestmark = requires_kafka("4.0", "the package of its callback handlers for tokens, without deprecated ones")

HANDLERS = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
MODULE = f"{HANDLERS}LoginModule required"
SESSION_MS = 3000
#: The sessions of two connections, one of which re-authenticates twice.
LEAST_SESSIONS = 4

SPARK_JOB = """
frame = spark.range(1000).selectExpr("cast(id as string) as value").repartition(4)
frame.write.format("kafkalite").mode("append").options(**given).save()
try:
    changed = {"kafka.sasl.oauthbearer.client.credentials.client.secret": "Wr0ng"}
    frame.write.format("kafkalite").mode("append").options(**{**given, **changed}).save()
except Exception as error:
    print(error)
"""


@dataclass(frozen=True)
class OAuthKafka:
    kafka: RealKafka
    directory: Path
    idp: TokenServer

    @property
    def address(self) -> str:
        return self.kafka.address("SASL_SSL")

    @property
    def truststore(self) -> Path:
        return self.directory / "trust.pem"

    def properties(self, **further: Any) -> dict[str, Any]:
        tls = f'ssl.truststore.type="PEM" ssl.truststore.location="{self.truststore}"'
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.truststore),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{HANDLERS}LoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.idp.url,
            "sasl.jaas.config": f'{MODULE} clientId="{CLIENT}" clientSecret="{SECRET}" scope="write" {tls};',
            **{name.replace("_", "."): value for name, value in further.items()},
        }

    def create_topic(self, name: str) -> None:
        with AdminClient(self.kafka.bootstrap_servers) as admin:
            admin.create_topic(name, 1, 1)
            until("the topic", lambda: name in admin.list_topics())


@pytest.fixture(scope="module")
def oauth_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthKafka]:
    skip_without_kafka()
    directory, authority = tmp_path_factory.mktemp("oauth-kafka"), Authority()
    issuer = Issuer(rsa.generate_private_key(65537, 2048), lifetime_s=4)
    for name, text in {
        "trust.pem": authority.pem,
        "broker.pem": authority.issue("127.0.0.1").pem(),
        "jwks.json": issuer.jwks(),
    }.items():
        (directory / name).write_text(text)
    jwks = f"file://{directory}/jwks.json"
    prefix = "listener.name.sasl_ssl"
    with (
        token_server(issuer, directory / "broker.pem") as idp,
        running_kafka(
            directory / "kafka",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={directory}/broker.pem",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={directory}/trust.pem",
            f"{prefix}.sasl.enabled.mechanisms=OAUTHBEARER",
            f"{prefix}.oauthbearer.sasl.jaas.config={MODULE};",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class={HANDLERS}ValidatorCallbackHandler",
            f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={jwks}",
            f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience=kafka",
            f"connections.max.reauth.ms={SESSION_MS}",
            listeners={"SASL_SSL": "SASL_SSL"},
            java_options=f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}",
        ) as kafka,
    ):
        yield OAuthKafka(kafka, directory, idp)
    LOGINS.forget()


@pytest.mark.behaviour("SASL", "A real Kafka accepts the tokens of client credentials, before and after their renewal")
def test_tokens_are_renewed_while_a_producer_writes(
    oauth_kafka: OAuthKafka, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    oauth_kafka.create_topic("renewed")
    sessions = renew_early(monkeypatch)
    count, before = 0, len(oauth_kafka.idp.asked)
    with KafkaProducer(oauth_kafka.properties()) as producer:
        for _ in outlasting(SESSION_MS / 1000, sessions, LEAST_SESSIONS):
            producer.send(ProducerRecord("renewed", b"%d" % count))
            count += 1
            time.sleep(0.002)
    values = [int(message.value or b"") for message in read_topic(oauth_kafka.kafka.bootstrap_servers, "renewed")]
    assert values == list(range(count))
    asked = len(oauth_kafka.idp.asked) - before
    assert 2 <= asked <= len(sessions) + 4
    figure(f"records in {len(sessions)} sessions with {asked} tokens of 4 s", count)


@pytest.mark.behaviour("SASL", "A real Kafka refuses a token with a wrong signature, and the error says so")
def test_token_with_a_wrong_signature_is_refused(oauth_kafka: OAuthKafka) -> None:
    # A separate server, because logins of other tests renew their tokens in the background and would get this one.
    with token_server(Issuer(rsa.generate_private_key(65537, 2048)), oauth_kafka.directory / "broker.pem") as forger:
        forged = forger.issuer.token()
        forger.answers.append((200, {"access_token": forged}))
        endpoint = {"sasl_oauthbearer_token_endpoint_url": forger.url}
        with (
            pytest.raises(AuthenticationError, match="invalid_token") as error,
            AdminClient(oauth_kafka.address, oauth_kafka.properties(**endpoint)) as admin,
        ):
            admin.list_topics()
    assert forged not in str(error.value)


@pytest.mark.behaviour("SASL", "A token endpoint is asked as Kafka's own client asks it")
@pytest.mark.parametrize(
    "grant", ["client_credentials", pytest.param("jwt-bearer", marks=requires_kafka("4.1", "JwtBearerJwtRetriever"))]
)
def test_endpoint_is_asked_as_by_javas_client(grant: str, oauth_kafka: OAuthKafka, tmp_path: Path) -> None:
    LOGINS.forget()
    asked = oauth_kafka.idp.asked
    properties = oauth_kafka.properties()
    if grant == "jwt-bearer":
        assertion = tmp_path / "assertion"
        assertion.write_text(oauth_kafka.idp.issuer.token())
        properties |= {
            "sasl.oauthbearer.jwt.retriever.class": f"{HANDLERS.removesuffix('OAuthBearer')}JwtBearerJwtRetriever",
            "sasl.oauthbearer.assertion.file": str(assertion),
            "sasl.oauthbearer.scope": "read write",
        }
    asked.clear()
    with AdminClient(oauth_kafka.address, properties) as admin:
        admin.list_topics()
    # Clients of earlier tests may still renew their tokens.
    ours = next(each for each in asked if grant in each.body["grant_type"][0])
    asked.clear()
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    tool, allowed = "org.apache.kafka.tools.TopicCommand", "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    run_kafka_tool(
        tool, "--bootstrap-server", oauth_kafka.address, "--command-config", str(file), "--list",
        java_options=f"{allowed}.urls={oauth_kafka.idp.url} {allowed}.files={tmp_path}/assertion"
    )  # fmt: skip
    theirs = next(each for each in asked if each.headers.get("user-agent", "").startswith("Java/"))
    assert ours.body == theirs.body
    for name in ("authorization", "accept", "content-type", "cache-control"):
        assert ours.headers.get(name) == theirs.headers.get(name), name


@pytest.mark.behaviour("SASL", "The command line takes the client.properties of a Java client with client credentials")
def test_command_line_takes_the_file_of_javas_client(oauth_kafka: OAuthKafka, tmp_path: Path) -> None:
    oauth_kafka.create_topic("listed")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in oauth_kafka.properties().items()))
    done = subprocess.run(
        [sys.executable, "-m", "kafka_sink.cli", "topics", "list", "--command-config", str(file)],
        capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[2]
    )  # fmt: skip
    assert done.returncode == 0 and "listed" in done.stdout.splitlines(), done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr


@only_long
@pytest.mark.behaviour("SASL", "Executors exchange client credentials by a reference to the secret")
def test_executors_get_tokens_by_a_reference(oauth_kafka: OAuthKafka, tmp_path: Path) -> None:
    oauth_kafka.create_topic("executors")
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"client={SECRET}\n")
    line = oauth_kafka.properties()["sasl.jaas.config"].replace(f'clientId="{CLIENT}" clientSecret="{SECRET}"', "")
    properties = oauth_kafka.properties(sasl_jaas_config=line) | {
        "sasl.oauthbearer.client.credentials.client.id": CLIENT,
        "sasl.oauthbearer.client.credentials.client.secret": f"${{file:{secrets}:client}}",
    }
    options = {f"kafka.{name}": value for name, value in properties.items()} | {"topic": "executors"}
    before = len(oauth_kafka.idp.asked)
    done = run_spark_job(SPARK_JOB, options, tmp_path)
    assert len(read_topic(oauth_kafka.kafka.bootstrap_servers, "executors")) == 1000
    assert len(oauth_kafka.idp.asked) > before
    assert "HTTP 401: invalid_client" in done.stdout
    assert SECRET not in done.stdout + done.stderr and "Wr0ng" not in done.stdout + done.stderr
