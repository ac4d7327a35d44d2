"""A real Kafka with a listener for each way to authenticate, whose sessions, tokens and tickets expire in seconds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.certificates import Authority
from tests.support.kafka_tools import run_kafka_tool
from tests.support.kdc import BROKER, Kdc, requires_kerberos, running_kdc
from tests.support.kdc import USER as KERBEROS_USER
from tests.support.ports import free_ports
from tests.support.real_kafka import RealKafka, running_kafka
from tests.support.secure_cluster import users
from tests.support.securities import create_scram_user
from tests.support.token_server import CLIENT, SECRET, Issuer, TokenServer, token_server

OF_TOKENS = "org.apache.kafka.common.security.oauthbearer."
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
#: Ways to get a token: for the client's secret, from a function, for an assertion with the client's id, and for an
#: assertion alone (the grant jwt-bearer).
TOKENS = ("oauth", "function", "assertion", "bearer")
WAYS = ("mtls", "plain", "scram256", "scram512", *TOKENS, "kerberos")
SESSION_MS, LIFETIME_S = 4000, 6
PASSWORD = "alice-s3cret"
#: Metrics of Kafka's network threads: re-authentications of connections (KIP-368), and connections that Kafka closed
#: because their clients did not re-authenticate in time.
RENEWALS, EXPIRED = "successful-reauthentication-total", "expired-connections-killed-count"


@dataclass(frozen=True)
class IdentityKafka:
    """A Kafka with a listener for each way, whose name is that of the way."""

    kafka: RealKafka
    jmx_port: int
    directory: Path
    idp: TokenServer
    kdc: Kdc | None

    @property
    def assertion_key(self) -> Path:
        """Return the path of the private key that signs assertions."""
        return self.directory / "assertion.pem"

    def noted(self, what: str) -> dict[str, int]:
        """Return the metric *what* of Kafka's network threads, summed for each way."""
        printed = run_kafka_tool(
            "org.apache.kafka.tools.JmxTool",
            "--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{self.jmx_port}/jmxrmi",
            "--object-name", "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*",
            "--attributes", what, "--one-time", "--report-format", "properties"
        )  # fmt: skip
        found = dict.fromkeys(WAYS, 0)
        for line in printed.splitlines():
            if way := re.search(rf"listener=(\w+),.*:{what}=", line):
                found[way[1].lower()] = found.get(way[1].lower(), 0) + int(float(line.rpartition("=")[2]))
        return found

    def properties(self, way: str) -> dict[str, str]:
        """Return the properties of a client, for Java's and for kafkalite's; secrets are references."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.directory / "trust.pem")}
        secret = f"${{file:{self.directory}/secrets.properties:"
        password = f'username="alice" password="{secret}alice}}"'
        keytab = "" if self.kdc is None else str(self.kdc.keytab(KERBEROS_USER))
        tokens = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{OF_TOKENS}OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": (
                f"{OF_TOKENS}OAuthBearerLoginModule required "
                f'ssl.truststore.type="PEM" ssl.truststore.location="{self.directory}/trust.pem";'
            ),
            "sasl.oauthbearer.token.endpoint.url": self.idp.url,
        }
        assertion = {
            "sasl.oauthbearer.assertion.private.key.file": str(self.assertion_key),
            "sasl.oauthbearer.assertion.claim.iss": CLIENT,
            "sasl.oauthbearer.assertion.claim.sub": CLIENT,
            "sasl.oauthbearer.assertion.claim.aud": "idp",
        }
        of_way = {
            "mtls": {
                "security.protocol": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.directory / "client.pem"),
            },
            "plain": {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required {password};"},
            "scram256": {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f"{SCRAM} required {password};"},
            "scram512": {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f"{SCRAM} required {password};"},
            "oauth": {
                **tokens,
                "sasl.oauthbearer.client.credentials.client.id": CLIENT,
                "sasl.oauthbearer.client.credentials.client.secret": f"{secret}client}}",
            },
            "assertion": {**tokens, **assertion, "sasl.oauthbearer.client.credentials.client.id": CLIENT},
            "bearer": {
                **tokens,
                **assertion,
                "sasl.oauthbearer.jwt.retriever.class": f"{OF_TOKENS}JwtBearerJwtRetriever",
            },
            "kerberos": {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": f'{KERBEROS} keyTab="{keytab}" principal="{KERBEROS_USER}@EXAMPLE.TEST";',
            },
        }[way]
        common = {"bootstrap.servers": self.kafka.address(way.upper()), "security.protocol": "SASL_SSL", **trust}
        return {**common, **of_way}


def _broker_properties(directory: Path, kdc: Kdc | None) -> list[str]:
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
        *(
            f"{prefix(way)}.{line}"
            for way in TOKENS
            for line in (
                "sasl.enabled.mechanisms=OAUTHBEARER",
                f"oauthbearer.sasl.jaas.config={OF_TOKENS}OAuthBearerLoginModule required;",
                f"oauthbearer.sasl.server.callback.handler.class={OF_TOKENS}OAuthBearerValidatorCallbackHandler",
                f"oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://{directory}/jwks.json",
                "oauthbearer.sasl.oauthbearer.expected.audience=kafka",
            )
        ),
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


@contextlib.contextmanager
def running_identity_kafka(directory: Path) -> Iterator[IdentityKafka]:
    """Start the Kafka; without Kerberos where the machine has no KDC."""
    authority, key = Authority(), rsa.generate_private_key(65537, 2048)
    issuer = Issuer(key, lifetime_s=LIFETIME_S)
    for name, text in {
        "trust.pem": authority.pem,
        "broker.pem": authority.issue("127.0.0.1").pem(),
        "client.pem": authority.issue(common_name="alice").pem(),
        "jwks.json": issuer.jwks(),
        "assertion.pem": _pem(key),
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
                *_broker_properties(directory, kdc),
                listeners={way.upper(): "SSL" if way == "mtls" else "SASL_SSL" for way in ways},
                java_options=" ".join(java_options),
            )
        )
        served = IdentityKafka(kafka, jmx_port, directory, idp, kdc)
        create_scram_user(kafka.bootstrap_servers, served.properties("scram512"), "alice", PASSWORD)
        yield served


def _pem(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
