"""TLS and SASL of a cluster for tests: a certificate and a user made for it, and what clients need to connect.

Nothing is written to disk. The certificate is valid for a week, for this machine only.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.requirements import RequirementError
from kafka_sink.common.sasl_mechanisms import MECHANISMS, PLAIN, SCRAM_MECHANISMS, SCRAM_SHA_512

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = (PLAIN, *SCRAM_MECHANISMS)
_HOST: Final = "127.0.0.1"
_USER: Final = "kafkalite"
_VALID: Final = datetime.timedelta(days=7)


@dataclass(frozen=True)
class ClusterSecurity:
    """*protocol* is that of the only listener; *certificate* and *key* are PEM, empty without TLS.

    Values of other processes can be made of :func:`dataclasses.asdict`.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    password: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @classmethod
    def of(cls, protocol: str, mechanism: str = SCRAM_SHA_512) -> ClusterSecurity:
        """A new certificate and a new password, where *protocol* needs them.

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
        """Options of the cluster, by Kafka's names."""
        options = {"listeners": f"{self.protocol}://{_HOST}:0"}
        if self.certificate:
            options |= {"ssl.keystore.key": self.key, "ssl.keystore.certificate.chain": self.certificate}
        if self.mechanism:
            users = f'{MECHANISMS[self.mechanism].login_module} required user_{_USER}="{self.password}";'
            options |= {"sasl.enabled.mechanisms": self.mechanism, "sasl.jaas.config": users}
        return options

    def client(self, bootstrap_servers: str) -> dict[str, str]:
        """Options of clients by the names of Kafka's own clients, which are those of this project too."""
        options = {"bootstrap.servers": bootstrap_servers, "security.protocol": self.protocol}
        if self.certificate:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.certificate}
        if self.mechanism:
            user = f'{MECHANISMS[self.mechanism].login_module} required username="{_USER}" password="{self.password}";'
            options |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": user}
        return options

    def librdkafka(self, bootstrap_servers: str) -> dict[str, Any]:
        """Options by the names of librdkafka, which confluent-kafka and many others use."""
        options = {"bootstrap.servers": bootstrap_servers, "security.protocol": self.protocol}
        if self.certificate:
            options["ssl.ca.pem"] = self.certificate
        if self.mechanism:
            options |= {"sasl.mechanism": self.mechanism, "sasl.username": _USER, "sasl.password": self.password}
        return options


def _certificate() -> tuple[str, str]:
    """A certificate that signs itself, and its key, as PEM."""
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
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem).decode(), secret.decode()
