"""The cluster of a test run, created from its settings, in this process or shared by all processes of the run, with a
new certificate and a new user.

Nothing is written to disk. The certificate is valid for a week, for this machine only.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import keys, parse
from kafka_sink.common.errors import ConfigError, RequirementError, UnknownTopicOrPartitionError
from kafka_sink.common.sasl_mechanisms import MECHANISMS, PLAIN, SCRAM_MECHANISMS, SCRAM_SHA_512

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
_HOST: Final = "127.0.0.1"
_USER: Final = "kafkalite"


@dataclass(frozen=True)
class ClusterSecurity:
    """*protocol* is the protocol of the only listener; *certificate* and *key* are PEM, empty without TLS.

    To pass it to another process, use :func:`dataclasses.asdict`.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    password: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @classmethod
    def of(cls, protocol: str, mechanism: str = SCRAM_SHA_512) -> ClusterSecurity:
        """A new certificate and a new password, if *protocol* needs them.

        :raises ConfigError: if one of the names is unknown.
        :raises RequirementError: if TLS is wanted and the package ``cryptography`` is not installed.
        """
        if protocol not in _PROTOCOLS:
            raise ConfigError(f"security: {protocol!r} is unknown, expected one of {', '.join(_PROTOCOLS)}")
        if mechanism not in _MECHANISMS:
            raise ConfigError(f"mechanism: {mechanism!r} is unknown, expected one of {', '.join(_MECHANISMS)}")
        has_users = protocol.startswith("SASL")
        certificate, key = _certificate() if protocol.endswith("SSL") else ("", "")
        password = secrets.token_urlsafe() if has_users else ""
        return cls(protocol, mechanism if has_users else "", password, certificate, key)

    @property
    def broker_options(self) -> Mapping[str, str]:
        """Options of the cluster, under Kafka's names."""
        options = {"listeners": f"{self.protocol}://{_HOST}:0"}
        if self.certificate:
            options |= {"ssl.keystore.key": self.key, "ssl.keystore.certificate.chain": self.certificate}
        if self.mechanism:
            users = f'{MECHANISMS[self.mechanism].login_module} required user_{_USER}="{self.password}";'
            options |= {"sasl.enabled.mechanisms": self.mechanism, "sasl.jaas.config": users}
        return options

    def client(self, bootstrap_servers: str) -> dict[str, str]:
        """Options of clients under the names of Kafka's own clients, which this project uses, too."""
        options = {"bootstrap.servers": bootstrap_servers, "security.protocol": self.protocol}
        if self.certificate:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.certificate}
        if self.mechanism:
            user = f'{MECHANISMS[self.mechanism].login_module} required username="{_USER}" password="{self.password}";'
            options |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": user}
        return options

    def librdkafka(self, bootstrap_servers: str) -> dict[str, Any]:
        """Options under the names of librdkafka, which confluent-kafka and many others use."""
        options = {"bootstrap.servers": bootstrap_servers, "security.protocol": self.protocol}
        if self.certificate:
            options["ssl.ca.pem"] = self.certificate
        if self.mechanism:
            options |= {"sasl.mechanism": self.mechanism, "sasl.username": _USER, "sasl.password": self.password}
        return options

    def aiokafka(self, bootstrap_servers: str) -> dict[str, Any]:
        """Options under the names of aiokafka and kafka-python."""
        servers = bootstrap_servers.split(",")
        options: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": self.protocol}
        if self.certificate:
            options["ssl_context"] = ssl.create_default_context(cadata=self.certificate)
        if self.mechanism:
            options |= {"sasl_mechanism": self.mechanism, "sasl_plain_username": _USER}
            options["sasl_plain_password"] = self.password
        return options


def _certificate() -> tuple[str, str]:
    """A self-signed certificate, and its key, as PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise RequirementError(
            "a cluster with TLS needs the package cryptography: pip install 'kafkalite[keystores]'"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kafkalite, for tests")])
    now = datetime.datetime.fromtimestamp(SYSTEM_CLOCK.wall_ms() / 1000, datetime.UTC)
    names = [x509.IPAddress(ipaddress.ip_address(_HOST)), x509.DNSName("localhost")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of machines and containers differ a little.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem).decode(), secret.decode()


@dataclass(frozen=True)
class ClusterSettings:
    """*nodes* brokers with the options of *config*, whose only listener has *security*."""

    nodes: int
    config: BrokerConfig
    security: ClusterSecurity

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> ClusterSettings:
        """*settings* has ``nodes``, ``security`` (such as SASL_SSL), ``mechanism``, and options of the broker: under
        Kafka's names or under those of the fields of ``BrokerConfig``.

        :raises ConfigError: the text names the setting.
        """
        options = dict(settings)
        nodes = str(options.pop("nodes", "1"))
        if not nodes.isdecimal():
            raise ConfigError(f"nodes must be a whole number, got {nodes!r}")
        protocol, mechanism = options.pop("security", None), options.pop("mechanism", None)
        fields = {item.name: key for key, (_, item) in keys(BrokerConfig).items()}
        options = {fields.get(name, name): value for name, value in options.items()}
        security = ClusterSecurity()
        if protocol is not None:
            security = ClusterSecurity.of(protocol, SCRAM_SHA_512 if mechanism is None else mechanism)
            twice = sorted(security.broker_options.keys() & options.keys())
            if twice:
                raise ConfigError(f"security sets {', '.join(twice)} too: leave out one of them")
            options |= security.broker_options
        elif mechanism is not None:
            raise ConfigError("mechanism has no effect without security; set security=SASL_SSL or SASL_PLAINTEXT")
        return cls(int(nodes), parse(BrokerConfig, options), security)

    def cluster(self) -> EmbeddedCluster:
        """A cluster with these settings, which is not started."""
        return EmbeddedCluster(self.nodes, config=self.config)


class SharedCluster:
    """A cluster in another process of the test run, with the operations that work from this process."""

    def __init__(self, bootstrap_servers: str, security: ClusterSecurity) -> None:
        self.bootstrap_servers: Final = bootstrap_servers
        self._properties = security.client(bootstrap_servers)

    def create_topic(self, name: str, partitions: int = -1, *, configs: Mapping[str, str] | None = None) -> None:
        """As :meth:`EmbeddedCluster.create_topic`."""
        with AdminClient(self.bootstrap_servers, self._properties) as admin:
            admin.create_topic(name, partitions, configs=dict(configs or {}))

    def delete_topic(self, name: str) -> None:
        """As :meth:`EmbeddedCluster.delete_topic`."""
        with AdminClient(self.bootstrap_servers, self._properties) as admin:
            admin.delete_topics([name])


def delete_if_there(cluster: EmbeddedCluster | SharedCluster, name: str) -> None:
    """Delete a topic, unless a test has deleted it already."""
    with contextlib.suppress(UnknownTopicOrPartitionError):
        cluster.delete_topic(name)
