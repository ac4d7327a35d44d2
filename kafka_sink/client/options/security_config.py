"""The authentication and trust options of a client: ``security.protocol``, ``ssl.*`` and ``sasl.*``.

Read once with the rest of the configuration, on the constructing thread. This module opens no file and no connection;
passwords appear in no ``repr`` and in no error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_sink.client.options.oauth_config import OAuthConfig
from kafka_sink.common import config as c
from kafka_sink.common.sasl_mechanisms import GSSAPI, MECHANISMS
from kafka_sink.common.tls_config import ClientSslConfig

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"


@dataclass(frozen=True)
class SecurityConfig(OAuthConfig, ClientSslConfig):
    """The SASL options (apache/kafka ``SaslConfigs``)."""

    sasl_mechanism: str = c.UPPER_CASE(
        "sasl.mechanism",
        GSSAPI,
        "SASL mechanism used for authentication; GSSAPI is Kerberos, AWS_MSK_IAM is OAUTHBEARER with tokens for MSK",
        c.one_of(*MECHANISMS),
    )
    sasl_jaas_config: str = c.STRING(
        "sasl.jaas.config",
        "",
        "credentials in the form of a JAAS configuration, as in Kafka: …PlainLoginModule or …ScramLoginModule required "
        'username="…" password="…"; …OAuthBearerLoginModule required clientId="…" clientSecret="…"; '
        '…Krb5LoginModule required useKeyTab=true keyTab="…" principal="…"; any package name '
        "is accepted",
        sensitive=True,
        at_connect=True,
    )
    sasl_username: str = c.STRING(
        "sasl.username",
        "",
        "user name, if sasl.jaas.config is not set; the name of the option is librdkafka's",
        at_connect=True,
    )
    sasl_password: str = c.STRING(
        "sasl.password", "", "password, if sasl.jaas.config is not set", sensitive=True, at_connect=True
    )
    sasl_kerberos_service_name: str = c.STRING(
        "sasl.kerberos.service.name",
        "",
        "for GSSAPI: the first part of the brokers' Kerberos principal, kafka as a rule; also serviceName in "
        "sasl.jaas.config",
    )
