"""The ``ssl.*`` options that clients and brokers share, under Kafka's names.

They are read once, with the rest of the configuration, when a client or a broker is constructed. This module opens no
file: for each new connection the network reads the named files and the values of references. Keys and passwords never
appear in a ``repr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from kafka_sink.common import config as c

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
HTTPS: Final = "https"

PEM: Final = "PEM"
JKS: Final = "JKS"
PKCS12: Final = "PKCS12"


_STORE_TYPES: Final = c.Validator(f"one of {PEM}, {JKS}, {PKCS12}", lambda value: value in ("", PEM, JKS, PKCS12))
_NOT_BLANK: Final = c.Validator("a value; remove the option to trust the authorities of the system", bool)


@dataclass(frozen=True)
class SslConfig(c.ReferencesConfig):
    """Trusted certificates, own key and certificates, and TLS versions (apache/kafka ``SslConfigs``, KIP-651)."""

    ssl_truststore_location: str = c.STRING(
        "",
        "file with the certificates of the trusted authorities; reloaded for new connections when it changes",
        _NOT_BLANK,
    )
    ssl_truststore_certificates: str = c.STRING(
        "", "certificates of the trusted authorities as PEM text instead of a file", _NOT_BLANK, at_connect=True
    )
    ssl_truststore_type: str = c.UPPER_CASE(
        "",
        "format of the truststore: by default detected from the file (Kafka: JKS); PKCS12 needs kafkalite[keystores]",
        _STORE_TYPES,
    )
    ssl_truststore_password: str = c.STRING(
        "", "password of a JKS or PKCS12 truststore", sensitive=True, at_connect=True
    )
    ssl_keystore_location: str = c.STRING(
        "",
        "file with the private key and its certificate chain, in PEM own certificate first; reloaded when it changes",
    )
    ssl_keystore_key: str = c.STRING(
        "", "the private key as PEM text instead of a file", sensitive=True, at_connect=True
    )
    ssl_keystore_certificate_chain: str = c.STRING(
        "", "certificate chain of the private key as PEM text, own certificate first", at_connect=True
    )
    ssl_keystore_type: str = c.UPPER_CASE(
        "",
        "format of the keystore: by default detected from the file (Kafka: JKS); PKCS12 needs kafkalite[keystores]",
        _STORE_TYPES,
    )
    ssl_keystore_password: str = c.STRING("", "password of a JKS or PKCS12 keystore", sensitive=True, at_connect=True)
    ssl_key_password: str = c.STRING(
        "",
        "password of the private key, if it is encrypted; in a JKS keystore, if it differs from the keystore's",
        sensitive=True,
        at_connect=True,
    )
    ssl_enabled_protocols: tuple[str, ...] = c.LIST(
        (TLS_1_2, TLS_1_3),
        "enabled TLS versions",
        c.Validator(
            f"{TLS_1_2}, {TLS_1_3} or both", lambda names: bool(names) and {TLS_1_2, TLS_1_3}.issuperset(names)
        ),
    )
    ssl_cipher_suites: tuple[str, ...] = c.LIST(
        (), "enabled cipher suites of TLS 1.2, by IANA or OpenSSL name; TLS 1.3 is disabled if any are set"
    )

    @property
    def checks_names(self) -> bool:
        """Whether the certificate of the other side must contain the host name that is connected to."""
        return True


_OF_THE_JVM: Final = "TLS is Python's and OpenSSL's"
_NO_JAVA: Final = "Java classes cannot be used"


@dataclass(frozen=True)
class ClientSslConfig(SslConfig):
    """The TLS options of a client of any server: a broker, a schema registry, a token endpoint."""

    #: Further options of Java's clients, which have no effect here.
    NO_EFFECT: ClassVar[Mapping[str, str]] = {
        "ssl.protocol": "Python's ssl module negotiates the newest version; ssl.enabled.protocols limits the choice",
        "ssl.provider": _OF_THE_JVM,
        "ssl.keymanager.algorithm": _OF_THE_JVM,
        "ssl.trustmanager.algorithm": _OF_THE_JVM,
        "ssl.secure.random.implementation": _OF_THE_JVM,
    }
    #: Options that would change which peers are trusted; ``{prefix}`` is the prefix of the user's options.
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = {
        "security.providers": _NO_JAVA,
        "ssl.engine.factory.class": f"{_NO_JAVA}; name PEM files with {{prefix}}ssl.truststore.location and "
        "{prefix}ssl.keystore.location",
    }

    ssl_endpoint_identification_algorithm: str = c.STRING(
        HTTPS,
        "the server's certificate must contain the host name that the client connects to; an empty value disables "
        "this check",
        c.Validator("https, or an empty value", lambda value: value.lower() in (HTTPS, "")),
    )

    @property
    def checks_names(self) -> bool:
        return bool(self.ssl_endpoint_identification_algorithm)
