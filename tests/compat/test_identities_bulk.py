"""100 MB from Spark for each way to authenticate, at least once and exactly once, to a real Kafka whose sessions,
tokens and tickets end meanwhile: nothing is missing, nothing is there twice."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from kafka_sink.client.admin import AdminClient
from tests.compat.kafka_version import requires_kafka
from tests.support.amounts import IDENTITY_MB, only_long
from tests.support.certificates import Authority
from tests.support.kdc import BROKER, Kdc, requires_kerberos, running_kdc
from tests.support.kdc import USER as KERBEROS_USER
from tests.support.ports import free_ports
from tests.support.readback import read_topic
from tests.support.real_kafka import RealKafka, running_kafka, skip_without_kafka
from tests.support.secure_cluster import users
from tests.support.securities import create_scram_user
from tests.support.token_server import CLIENT, SECRET, Issuer, TokenServer, token_server

pytestmark = [
    only_long,
    requires_kafka("4.0", "the package of its callback handlers for tokens, without deprecated ones"),
]

HANDLERS = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
WAYS = ("mtls", "plain", "scram256", "scram512", "oauth", "kerberos")
#: A write takes longer than several sessions, tokens and tickets live.
SESSION_MS, LIFETIME_S, WRITE_S = 4000, 6, 12
TASKS, ROW_BYTES = 2, 1000
#: Of Kafka's network threads: authentications of connections that were authenticated already (KIP-368).
RENEWALS = "successful-reauthentication-total"
PASSWORD = "alice-s3cret"

SPARK_JOB = """
import json, sys
from pyspark.sql import SparkSession
from kafka_sink import register

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
given = json.load(open(sys.argv[1]))
value = f"concat(cast(id as string), ' ', repeat('x', {given['row_bytes']}))"
ids = spark.range(0, given["rows"], 1, given["tasks"])
frame = ids.selectExpr(f"substring({value}, 1, {given['row_bytes']}) as value")
for topic, further in given["topics"].items():
    options = {**given["options"], **further, "topic": topic, "maxRecordsPerSecond": str(given["rate"])}
    frame.write.format("kafkalite").mode("append").options(**options).save()
"""


@dataclass(frozen=True)
class IdentityKafka:
    """A Kafka with a listener for each way, whose names are those of the ways."""

    kafka: RealKafka
    jmx_port: int
    directory: Path
    idp: TokenServer
    kdc: Kdc | None

    def noted(self, way: str, what: str) -> int:
        """The sum of a metric of the way's network threads, as Kafka itself counts."""
        printed = self.kafka.run_tool(
            "org.apache.kafka.tools.JmxTool",
            "--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{self.jmx_port}/jmxrmi",
            "--object-name", f"kafka.server:type=socket-server-metrics,listener={way.upper()},networkProcessor=*",
            "--attributes", what, "--one-time", "--report-format", "properties",
        )  # fmt: skip
        found = [float(line.rpartition("=")[2]) for line in printed.splitlines() if f":{what}=" in line]
        assert found, printed
        return int(sum(found))

    def options(self, way: str) -> dict[str, str]:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.directory / "trust.pem")}
        secret = f"${{file:{self.directory}/secrets.properties:"
        scram = f'{SCRAM} required username="alice" password="{secret}alice}}";'
        keytab = "" if self.kdc is None else str(self.kdc.keytab(KERBEROS_USER))
        of_way = {
            "mtls": {"security.protocol": "SSL", "ssl.keystore.location": str(self.directory / "client.pem")},
            "plain": {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": f"{secret}alice}}"},
            "scram256": {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": scram},
            "scram512": {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": scram},
            "oauth": {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": (
                    f"{HANDLERS}LoginModule required "
                    f'ssl.truststore.type="PEM" ssl.truststore.location="{self.directory}/trust.pem";'
                ),
                "sasl.oauthbearer.token.endpoint.url": self.idp.url,
                "sasl.oauthbearer.client.credentials.client.id": CLIENT,
                "sasl.oauthbearer.client.credentials.client.secret": f"{secret}client}}",
            },
            "kerberos": {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": f'{KERBEROS} keyTab="{keytab}" principal="{KERBEROS_USER}@EXAMPLE.TEST";',
            },
        }[way]
        common = {"bootstrap.servers": self.kafka.address(way.upper()), "security.protocol": "SASL_SSL", **trust}
        return {f"kafka.{name}": value for name, value in {**common, **of_way}.items()}


def broker_properties(directory: Path, kdc: Kdc | None) -> list[str]:
    def prefix(way: str) -> str:
        return f"listener.name.{way}"

    found = [
        "ssl.keystore.type=PEM", f"ssl.keystore.location={directory}/broker.pem",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={directory}/trust.pem",
        f"{prefix('mtls')}.ssl.client.auth=required",
        f"{prefix('plain')}.sasl.enabled.mechanisms=PLAIN",
        f"{prefix('plain')}.plain.sasl.jaas.config={users(alice=PASSWORD)}",
        *(
            f"{prefix(f'scram{bits}')}.{line}"
            for bits in (256, 512)
            for line in (
                f"sasl.enabled.mechanisms=SCRAM-SHA-{bits}",
                f"scram-sha-{bits}.sasl.jaas.config={SCRAM} required;",
            )
        ),
        f"{prefix('oauth')}.sasl.enabled.mechanisms=OAUTHBEARER",
        f"{prefix('oauth')}.oauthbearer.sasl.jaas.config={HANDLERS}LoginModule required;",
        f"{prefix('oauth')}.oauthbearer.sasl.server.callback.handler.class={HANDLERS}ValidatorCallbackHandler",
        f"{prefix('oauth')}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://{directory}/jwks.json",
        f"{prefix('oauth')}.oauthbearer.sasl.oauthbearer.expected.audience=kafka",
        f"connections.max.reauth.ms={SESSION_MS}",
    ]  # fmt: skip
    if kdc is not None:
        keytab = f'isInitiator=false keyTab="{kdc.keytab(BROKER)}" principal="{BROKER}@EXAMPLE.TEST"'
        found += [
            f"{prefix('kerberos')}.sasl.enabled.mechanisms=GSSAPI",
            f"{prefix('kerberos')}.gssapi.sasl.jaas.config={KERBEROS} {keytab};",
            "sasl.kerberos.service.name=kafka",
        ]
    return found


@pytest.fixture(scope="module")
def identity_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityKafka]:
    skip_without_kafka()
    directory, authority = tmp_path_factory.mktemp("identities"), Authority()
    issuer = Issuer(rsa.generate_private_key(65537, 2048), lifetime_s=LIFETIME_S)
    for name, text in {
        "trust.pem": authority.pem,
        "broker.pem": authority.issue("127.0.0.1").pem(),
        "client.pem": authority.issue(common_name="alice").pem(),
        "jwks.json": issuer.jwks(),
        "secrets.properties": f"alice={PASSWORD}\nclient={SECRET}\n",
    }.items():
        (directory / name).write_text(text)
    has_kdc = not requires_kerberos.args[0]
    ways = [way for way in WAYS if has_kdc or way != "kerberos"]
    with contextlib.ExitStack() as running:
        kdc = running.enter_context(running_kdc(directory / "kdc", f"{LIFETIME_S}s")) if has_kdc else None
        idp = running.enter_context(token_server(issuer, directory / "broker.pem"))
        jmx_port = free_ports()
        java_options = [
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{directory}/jwks.json",
            "-Djava.rmi.server.hostname=127.0.0.1",
            *(
                f"-Dcom.sun.management.jmxremote.{setting}"
                for setting in (
                    "host=127.0.0.1", f"port={jmx_port}", f"rmi.port={jmx_port}", "authenticate=false", "ssl=false",
                )
            ),
        ]  # fmt: skip
        if kdc is not None:
            java_options.append(f"-Djava.security.krb5.conf={kdc.config}")
        kafka = running.enter_context(
            running_kafka(
                directory / "kafka",
                *broker_properties(directory, kdc),
                listeners={way.upper(): "SSL" if way == "mtls" else "SASL_SSL" for way in ways},
                java_options=" ".join(java_options),
            )
        )
        create_scram_user(kafka.bootstrap_servers, "alice", PASSWORD)
        yield IdentityKafka(kafka, jmx_port, directory, idp, kdc)


@pytest.mark.behaviour("SASL", "Every way to authenticate carries 100 MB through renewals, 0/0")
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=requires_kerberos if way == "kerberos" else ()) for way in WAYS]
)
def test_each_way_carries_bulk_through_renewals(
    way: str, identity_kafka: IdentityKafka, tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    rows = IDENTITY_MB * 1_000_000 // ROW_BYTES
    topics = {
        f"{way}-at-least-once": {},
        f"{way}-exactly-once": {"txnAppId": f"bulk-{way}", "txnVersion": "1"},
    }
    with AdminClient(identity_kafka.kafka.bootstrap_servers) as admin:
        for topic in topics:
            admin.create_topic(topic, 2, 1)
    given = {
        "options": identity_kafka.options(way),
        "topics": topics,
        "rows": rows,
        "row_bytes": ROW_BYTES,
        "tasks": TASKS,
        # Of each task.
        "rate": max(rows // WRITE_S // TASKS, 1),
    }
    (tmp_path / "given.json").write_text(json.dumps(given))
    renewals = 0 if way == "mtls" else identity_kafka.noted(way, RENEWALS)
    tokens, tickets = len(identity_kafka.idp.asked), 0 if identity_kafka.kdc is None else identity_kafka.kdc.logins()
    done = subprocess.run(
        [sys.executable, "-c", SPARK_JOB, str(tmp_path / "given.json")],
        capture_output=True, text=True, timeout=280, check=False, cwd=Path(__file__).parents[2],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert PASSWORD not in done.stdout + done.stderr and SECRET not in done.stdout + done.stderr
    for topic in topics:
        counts = Counter(
            int((message.value or b"").split(b" ")[0])
            for message in read_topic(identity_kafka.kafka.bootstrap_servers, topic)
        )
        missing, twice = rows - len(counts), sum(count > 1 for count in counts.values())
        figure(f"{topic}, {IDENTITY_MB} MB: missing/twice", f"{missing}/{twice}")
        assert (missing, twice) == (0, 0)
    if way != "mtls":
        renewals = identity_kafka.noted(way, RENEWALS) - renewals
        figure(f"renewals of sessions of {SESSION_MS // 1000} s", renewals)
        # A client on a busy machine is late for some; it connects again.
        figure("sessions that ended", identity_kafka.noted(way, "expired-connections-killed-count"))
        assert renewals >= len(topics) * TASKS
    if way == "oauth":
        figure(f"tokens of {LIFETIME_S} s", renewed := len(identity_kafka.idp.asked) - tokens)
        assert renewed > 2
    if way == "kerberos" and identity_kafka.kdc is not None:
        figure(f"tickets of {LIFETIME_S} s", renewed := identity_kafka.kdc.logins() - tickets)
        assert renewed > 2
