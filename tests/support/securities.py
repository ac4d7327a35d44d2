"""The security protocols and mechanisms for users, on the embedded broker and on a real Kafka, with client properties.

A folder (:class:`Keys`) has the PEM files; the properties of clients name them, so that Spark's executors, Kafka's
Java tools and librdkafka read the same ones. Every server has a PLAINTEXT listener, with which tests read the written
records.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from confluent_kafka.admin import AdminClient as ForeignAdmin
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.config import parse
from tests.support.certificates import Authority
from tests.support.ports import free_ports
from tests.support.secure_cluster import users
from tests.support.waiting import until

HOST = "127.0.0.1"
USER, PASSWORD = "alice", "alice-s3cret"
_WAIT_S = 60
_SCRAM_ITERATIONS = 8192
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@dataclass(frozen=True)
class Security:
    """A security protocol with a mechanism: its name, in capitals, is also the name of its listener."""

    name: str
    protocol: str
    mechanism: str = ""
    shows_certificate: bool = False

    @property
    def listener(self) -> str:
        return self.name.upper()

    def client_properties(self, keys: Keys) -> dict[str, str]:
        """Return the properties by Kafka's names: for our own clients, and for those in Java."""
        properties = {"security.protocol": self.protocol}
        if "SSL" in self.protocol:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(keys.truststore)}
        if self.shows_certificate:
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys.client)}
        if self.mechanism:
            given = f'username="{USER}" password="{PASSWORD}"'
            line = f"{_SCRAM} {given};"
            if self.mechanism == "OAUTHBEARER":
                line = f'{_TOKENS} unsecuredLoginStringClaim_sub="{USER}";'
            properties |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": line}
        return properties

    def librdkafka_properties(self, keys: Keys) -> dict[str, str]:
        properties = {"security.protocol": self.protocol}
        if "SSL" in self.protocol:
            properties["ssl.ca.location"] = str(keys.truststore)
        if self.shows_certificate:
            properties |= {"ssl.certificate.location": str(keys.client), "ssl.key.location": str(keys.client)}
        if self.mechanism == "OAUTHBEARER":
            properties |= {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={USER}",
            }
        elif self.mechanism:
            properties |= {"sasl.username": USER, "sasl.password": PASSWORD}
        if self.mechanism:
            properties["sasl.mechanism"] = self.mechanism
        return properties


PLAINTEXT = Security("PLAINTEXT", "PLAINTEXT")
SSL = Security("SSL", "SSL")
MTLS = Security("mTLS", "SSL", shows_certificate=True)
SASL_PLAINTEXT = Security("SASL_PLAINTEXT", "SASL_PLAINTEXT", "SCRAM-SHA-512")
SASL_SSL = Security("SASL_SSL", "SASL_SSL", "SCRAM-SHA-512")
OAUTH = Security("OAUTHBEARER", "SASL_SSL", "OAUTHBEARER")
#: SASL_SSL again, behind a proxy: its brokers advertise another port than they listen on.
CUT = Security("CUT", "SASL_SSL", "SCRAM-SHA-512")
SECURITIES = (PLAINTEXT, SSL, MTLS, SASL_PLAINTEXT, SASL_SSL, OAUTH)


@dataclass(frozen=True)
class Keys:
    """The PEM files of one authority."""

    directory: Path

    @property
    def truststore(self) -> Path:
        return self.directory / "truststore.pem"

    @property
    def broker(self) -> Path:
        return self.directory / "broker.pem"

    @property
    def client(self) -> Path:
        return self.directory / "client.pem"


def make_keys(directory: Path) -> Keys:
    authority = Authority()
    keys = Keys(directory)
    keys.truststore.write_text(authority.pem)
    keys.broker.write_text(authority.issue(HOST).pem())
    keys.client.write_text(authority.issue(common_name=USER).pem())
    return keys


@dataclass(frozen=True)
class SecureServer:
    """A server: *addresses* are the bootstrap servers of each security, *looks* the PLAINTEXT ones of the same brokers.

    *fronts* has the port that :data:`CUT` advertises, where a proxy is to listen, and the one behind it.
    """

    addresses: Mapping[Security, str]
    looks: Mapping[Security, str]
    keys: Keys
    fronts: Mapping[int, int] = field(default_factory=dict)

    def client_properties(self, security: Security) -> dict[str, str]:
        return {"bootstrap.servers": self.addresses[security], **security.client_properties(self.keys)}

    def librdkafka_properties(self, security: Security) -> dict[str, str]:
        return {"bootstrap.servers": self.addresses[security], **security.librdkafka_properties(self.keys)}


# --- the embedded broker ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def embedded_server(keys: Keys) -> Iterator[SecureServer]:
    """Within, an embedded cluster runs with a listener for every security but mTLS, and a second one for mTLS."""
    addresses: dict[Security, str] = {}
    looks: dict[Security, str] = {}
    front, behind = free_ports(1), free_ports(1)
    with contextlib.ExitStack() as running:
        for client_auth, securities in (
            ("none", [each for each in (*SECURITIES, CUT) if not each.shows_certificate]),
            ("required", [PLAINTEXT, MTLS]),
        ):
            cluster = running.enter_context(_cluster(keys, securities, client_auth, front, behind))
            (node,) = cluster.nodes.values()
            for each in securities:
                addresses.setdefault(each, f"{HOST}:{node[each.listener].port}")
                looks.setdefault(each, f"{HOST}:{node[PLAINTEXT.listener].port}")
        yield SecureServer(addresses, looks, keys, {front: behind})


def _cluster(keys: Keys, securities: Sequence[Security], client_auth: str, front: int, behind: int) -> EmbeddedCluster:
    properties = {
        "listeners": [f"{each.listener}://{HOST}:{behind if each is CUT else 0}" for each in securities],
        "advertised.listeners": [f"{CUT.listener}://{HOST}:{front}"] if CUT in securities else [],
        "listener.security.protocol.map": [f"{each.listener}:{each.protocol}" for each in securities],
        "ssl.keystore.location": str(keys.broker),
        "ssl.truststore.location": str(keys.truststore),
        "ssl.client.auth": client_auth,
        "sasl.enabled.mechanisms": ["SCRAM-SHA-512", "OAUTHBEARER"],
        "sasl.jaas.config": users(**{USER: PASSWORD}),
    }
    return EmbeddedCluster(config=parse(BrokerConfig, properties))


# --- a real Kafka ----------------------------------------------------------------------------------------------------


def kafka_arguments(
    keys: Keys, ports: Mapping[Security, int], fronts: Mapping[Security, int] = MappingProxyType({})
) -> list[str]:
    """Return the arguments of ``scripts/kafka.sh start`` for these securities, on these ports of its first node.
    *fronts* are the ports that it advertises for some of them."""
    protocols = ",".join(f"{each.listener}:{each.protocol}" for each in ports)
    arguments = []
    for each, port in ports.items():
        front = f":{fronts[each]}" if each in fronts else ""
        arguments += ["--listener", f"{each.listener}:{port}{front}"]
    arguments += [
        # Repeats the property: of two lines with the same name, Java uses the last.
        f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={keys.broker}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={keys.truststore}",
    ]
    for each in ports:
        prefix = f"listener.name.{each.listener.lower()}"
        if each.shows_certificate:
            arguments.append(f"{prefix}.ssl.client.auth=required")
        if each.mechanism:
            line = f'{_TOKENS} unsecuredLoginStringClaim_sub="broker";' if each is OAUTH else f"{_SCRAM};"
            arguments += [
                f"{prefix}.sasl.enabled.mechanisms={each.mechanism}",
                f"{prefix}.{each.mechanism.lower()}.sasl.jaas.config={line}",
            ]
    return arguments


def kafka_server(
    keys: Keys, plaintext: str, ports: Mapping[Security, int], fronts: Mapping[int, int] | None = None
) -> SecureServer:
    """Return the Kafka that was started with :func:`kafka_arguments`; SCRAM needs :func:`create_scram_user`, too."""
    nodes = len(plaintext.split(","))
    addresses = {each: ",".join(f"{HOST}:{port + node}" for node in range(nodes)) for each, port in ports.items()}
    addresses[PLAINTEXT] = plaintext
    return SecureServer(addresses, dict.fromkeys(addresses, plaintext), keys, fronts or {})


def create_scram_user(plaintext: str, login: Mapping[str, str], user: str = USER, password: str = PASSWORD) -> None:
    """Must be called once after the first start of a real Kafka; *login* are the properties of its clients."""
    # Without a reference to the client, its responses would be lost.
    admin = ForeignAdmin({"bootstrap.servers": plaintext})
    # A request may have only one credential per user.
    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = ScramCredentialInfo(kind, _SCRAM_ITERATIONS)
        change = UserScramCredentialUpsertion(user, credential, password.encode(), os.urandom(20))
        admin.alter_user_scram_credentials([change])[user].result(_WAIT_S)

    def lets_in(broker: str) -> bool:
        with AdminClient(broker, login) as client:
            client.cluster()
        return True

    # The controller responds before the brokers know the user, and each of them learns of it independently.
    for address in login["bootstrap.servers"].split(","):
        until(f"a login of {user} at {address}", partial(lets_in, address), _WAIT_S)
