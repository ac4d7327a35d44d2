"""The ``ssl.*`` options that clients and brokers share, under Kafka's names; PEM only.

They are read once, with the rest of the configuration, when a client or a broker is constructed. This module opens no
file: the network reads the named files, and what references stand for, for each new connection. Keys and passwords
never appear in a ``repr``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_sink.common import config as c

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
HTTPS: Final = "https"

_CONVERT_TRUST: Final = "keytool -list -rfc -keystore FILE > truststore.pem"
_CONVERT_KEY: Final = (
    "keytool -importkeystore -srckeystore FILE -destkeystore keystore.p12 -deststoretype PKCS12; "
    "openssl pkcs12 -in keystore.p12 -out keystore.pem"
)
_PEM_TRUST: Final = c.Validator(f"PEM; to convert a JKS or PKCS12 file: {_CONVERT_TRUST}", lambda kind: kind == "PEM")
_PEM_KEY: Final = c.Validator(f"PEM; to convert a JKS or PKCS12 file: {_CONVERT_KEY}", lambda kind: kind == "PEM")


def conversion_of(is_truststore: bool) -> str:
    """The commands that convert a JKS or PKCS12 file to PEM."""
    return _CONVERT_TRUST if is_truststore else _CONVERT_KEY


@dataclass(frozen=True)
class SslConfig(c.ReferencesConfig):
    """Trusted certificates, own key and certificates, and TLS versions (apache/kafka ``SslConfigs``, KIP-651)."""

    ssl_truststore_location: str = c.key(
        "ssl.truststore.location",
        c.STRING,
        "",
        "PEM file with the certificates of the trusted authorities; reloaded for new connections when it changes",
    )
    ssl_truststore_certificates: str = c.key(
        "ssl.truststore.certificates",
        c.STRING,
        "",
        "certificates of the trusted authorities as PEM text instead of a file",
        at_connect=True,
    )
    ssl_truststore_type: str = c.key(
        "ssl.truststore.type", c.STRING, "PEM", "format of the truststore (Kafka: JKS)", validator=_PEM_TRUST
    )
    ssl_truststore_password: str = c.key(
        "ssl.truststore.password",
        c.STRING,
        "",
        "for JKS and PKCS12, which are not supported",
        sensitive=True,
        validator=c.Validator(
            f"no value, because PEM truststores have no password; to convert: {_CONVERT_TRUST}", lambda text: not text
        ),
    )
    ssl_keystore_location: str = c.key(
        "ssl.keystore.location",
        c.STRING,
        "",
        "PEM file with the private key and its certificate chain, own certificate first; reloaded when it changes",
    )
    ssl_keystore_key: str = c.key(
        "ssl.keystore.key",
        c.STRING,
        "",
        "the private key as PEM text instead of a file",
        sensitive=True,
        at_connect=True,
    )
    ssl_keystore_certificate_chain: str = c.key(
        "ssl.keystore.certificate.chain",
        c.STRING,
        "",
        "certificate chain of the private key as PEM text, own certificate first",
        at_connect=True,
    )
    ssl_keystore_type: str = c.key(
        "ssl.keystore.type", c.STRING, "PEM", "format of the keystore (Kafka: JKS)", validator=_PEM_KEY
    )
    ssl_keystore_password: str = c.key(
        "ssl.keystore.password",
        c.STRING,
        "",
        "for JKS and PKCS12, which are not supported; the password of the private key is ssl.key.password",
        sensitive=True,
        validator=c.Validator(
            f"no value, because PEM keystores have no password; to convert: {_CONVERT_KEY}", lambda text: not text
        ),
    )
    ssl_key_password: str = c.key(
        "ssl.key.password",
        c.STRING,
        "",
        "password of the private key, if it is encrypted",
        sensitive=True,
        at_connect=True,
    )
    ssl_enabled_protocols: tuple[str, ...] = c.key(
        "ssl.enabled.protocols",
        c.LIST,
        (TLS_1_2, TLS_1_3),
        "enabled TLS versions",
        validator=c.Validator(
            f"{TLS_1_2}, {TLS_1_3} or both", lambda given: bool(given) and {TLS_1_2, TLS_1_3}.issuperset(given)
        ),
    )
    ssl_cipher_suites: tuple[str, ...] = c.key(
        "ssl.cipher.suites",
        c.LIST,
        (),
        "enabled cipher suites of TLS 1.2, by IANA or OpenSSL name; TLS 1.3 is disabled if any are set",
    )
