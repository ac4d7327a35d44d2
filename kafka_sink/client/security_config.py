"""The authentication and trust options of a client: ``security.protocol``, ``ssl.*`` and ``sasl.*``.

Read once with the rest of the configuration, on the constructing thread. This module opens no file and no connection;
passwords appear in no ``repr`` and in no error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.common import config as c
from kafka_sink.common.sasl_mechanisms import MECHANISMS, REFUSED
from kafka_sink.common.tls_config import HTTPS, SslConfig

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"


def _mechanism(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value.strip().upper()


_MECHANISM: Final = c.ConfigType("the name of a SASL mechanism", _mechanism)
_EXPECTED: Final = f"one of {', '.join(MECHANISMS)}; " + "; ".join(f"{name}: {todo}" for name, todo in REFUSED.items())


@dataclass(frozen=True)
class SecurityConfig(SslConfig):
    """The SASL options, and host name verification (apache/kafka ``SaslConfigs``)."""

    ssl_endpoint_identification_algorithm: str = c.key(
        "ssl.endpoint.identification.algorithm",
        c.STRING,
        HTTPS,
        "the broker's certificate has to list the name that we connect by; only an empty value leaves that unchecked",
        validator=c.Validator("https, or nothing at all", lambda value: value.lower() in (HTTPS, "")),
    )
    sasl_mechanism: str = c.key(
        "sasl.mechanism",
        _MECHANISM,
        "",
        "how to authenticate with SASL (Kafka: GSSAPI)",
        validator=c.Validator(_EXPECTED, lambda name: name in ("", *MECHANISMS)),
    )
    sasl_jaas_config: str = c.key(
        "sasl.jaas.config",
        c.STRING,
        "",
        'Kafka\'s line with user name and password: …PlainLoginModule or …ScramLoginModule required username="…" '
        'password="…"; under whatever package name it has',
        sensitive=True,
    )
    sasl_username: str = c.key(
        "sasl.username", c.STRING, "", "user name, where there is no sasl.jaas.config; the name is librdkafka's"
    )
    sasl_password: str = c.key(
        "sasl.password", c.STRING, "", "password, where there is no sasl.jaas.config", sensitive=True
    )
    sasl_login_callback_handler_class: str | object | None = c.key(
        "sasl.login.callback.handler.class",
        c.PLUGIN,
        None,
        "for OAUTHBEARER: a function, or the dotted path of one, that returns a JWT, or any token and the time at "
        "which it ends (seconds since 1970); asked again before that. Spark's executors have to be able to import it",
    )
