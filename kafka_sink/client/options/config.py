"""The properties that all clients share, with Kafka's names, types and defaults.

Read once on the calling thread when a client is constructed, and immutable afterwards. The tables of the producer and
the consumer extend it. It opens no file and no connection: it checks the form of addresses, not whether they can be
reached. Passwords appear in no ``repr`` and in no error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

from kafka_sink.client.options import other_names, other_readers
from kafka_sink.client.options.oauth_config import OAuthConfig
from kafka_sink.common import config as c
from kafka_sink.common.bounded import known_number
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import GSSAPI, MECHANISMS
from kafka_sink.common.tls_config import ClientSslConfig

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
_INT_MAX = 2**31 - 1
_ADDRESS = re.compile(r"^(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]+?)]?:(\d+)$")
USE_ALL_DNS_IPS = "use_all_dns_ips"
RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY = "resolve_canonical_bootstrap_servers_only"
REBOOTSTRAP = "rebootstrap"


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


def _parse_address(entry: str) -> tuple[str, int]:
    match = _ADDRESS.match(entry)
    port = None if match is None else known_number(match[2], 1, 65535)
    if match is None or port is None:
        raise ConfigError(f"{entry!r} is not host:port, for example 127.0.0.1:9092")
    return match[1], port


def parse_addresses(bootstrap_servers: tuple[str, ...]) -> list[tuple[str, int]]:
    """Host and port of every entry, once; IPv6 addresses are written in brackets, ``[::1]:9092``.

    :raises ConfigError: if an entry is not host:port.
    """
    return [_parse_address(entry) for entry in dict.fromkeys(bootstrap_servers)]


def _are_addresses(bootstrap_servers: tuple[str, ...]) -> bool:
    try:
        return bool(parse_addresses(bootstrap_servers))
    except ConfigError:
        return False


@dataclass(frozen=True)
class ConnectionConfig(c.Options):
    """The properties of the connections to the cluster, and their time-outs."""

    #: The prefix that the user writes before each name; not an option itself.
    option_prefix: str = field(default="", kw_only=True)

    bootstrap_servers: tuple[str, ...] = c.LIST(
        "bootstrap.servers",
        c.REQUIRED,
        "initial broker addresses, host:port separated by commas; a few brokers of the cluster are enough",
        c.Validator("host:port, for example 127.0.0.1:9092", _are_addresses),
        is_address=True,
    )
    client_id: str = c.STRING("client.id", "", "client name sent with every request, for the brokers' logs and quotas")
    client_dns_lookup: str = c.STRING(
        "client.dns.lookup",
        USE_ALL_DNS_IPS,
        "how to resolve addresses: try all addresses of a host name in turn, or replace the bootstrap addresses by "
        "canonical host names first",
        c.one_of(USE_ALL_DNS_IPS, RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY),
    )
    security_protocol: str = c.UPPER_CASE(
        "security.protocol",
        "PLAINTEXT",
        "protocol of the connections to the brokers: SSL is TLS, SASL_… authenticates with sasl.mechanism",
        c.one_of(PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL),
    )
    request_timeout_ms: int = c.INT(
        "request.timeout.ms",
        30_000,
        "how long to wait for the response to a request before its connection is closed, ms",
        c.between(1, _INT_MAX),
    )
    max_in_flight_requests_per_connection: int = c.INT(
        "max.in.flight.requests.per.connection",
        5,
        "maximum number of unanswered requests per connection",
        c.between(1, _INT_MAX),
    )
    retry_backoff_ms: int = c.INT(
        "retry.backoff.ms",
        100,
        "wait before a failed request (metadata included) is retried, ms; grows up to retry.backoff.max.ms",
        c.between(0, _INT_MAX),
    )
    retry_backoff_max_ms: int = c.INT(
        "retry.backoff.max.ms", 1_000, "longest wait before a failed request is retried, ms", c.between(0, _INT_MAX)
    )
    reconnect_backoff_ms: int = c.INT(
        "reconnect.backoff.ms",
        50,
        "wait before reconnecting to a broker, ms; grows up to reconnect.backoff.max.ms",
        c.between(0, _INT_MAX),
    )
    reconnect_backoff_max_ms: int = c.INT(
        "reconnect.backoff.max.ms", 1_000, "longest wait before reconnecting to a broker, ms", c.between(0, _INT_MAX)
    )
    socket_connection_setup_timeout_ms: int = c.INT(
        "socket.connection.setup.timeout.ms",
        10_000,
        "time-out for establishing a connection, ms; grows up to socket.connection.setup.timeout.max.ms",
        c.between(1, _INT_MAX),
    )
    socket_connection_setup_timeout_max_ms: int = c.INT(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "longest time-out for establishing a connection, ms",
        c.between(1, _INT_MAX),
    )
    connections_max_idle_ms: int = c.INT(
        "connections.max.idle.ms",
        540_000,
        "close connections that have been idle for this long, ms; -1 = never",
        c.between(-1, _INT_MAX),
    )
    metadata_max_age_ms: int = c.INT(
        "metadata.max.age.ms",
        300_000,
        "refresh metadata after this long even if no change was seen, ms",
        c.between(0, _INT_MAX),
    )
    metadata_max_idle_ms: int = c.INT(
        "metadata.max.idle.ms",
        300_000,
        "forget the metadata of a topic that has not been used for this long, ms",
        c.between(5_000, _INT_MAX),
    )
    metadata_recovery_strategy: str = c.LOWER_CASE(
        "metadata.recovery.strategy",
        REBOOTSTRAP,
        "what to do when none of the known brokers is reachable: start again from bootstrap.servers, or keep trying",
        c.one_of(REBOOTSTRAP, "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = c.INT(
        "metadata.recovery.rebootstrap.trigger.ms",
        300_000,
        "also start again from bootstrap.servers when no broker has answered a metadata request for this long, ms",
        c.between(0, _INT_MAX),
    )
    send_buffer_bytes: int = c.INT(
        "send.buffer.bytes", 131_072, "TCP send buffer, bytes; -1 = the system's default", c.between(-1, _INT_MAX)
    )
    receive_buffer_bytes: int = c.INT(
        "receive.buffer.bytes", 32_768, "TCP receive buffer, bytes; -1 = the system's default", c.between(-1, _INT_MAX)
    )
    receive_message_max_bytes: int = c.INT(
        "receive.message.max.bytes",
        104_857_600,
        "largest response accepted from a broker, bytes; the connection is closed if a response is larger. Apache "
        "Kafka's clients have no such limit; the name is librdkafka's",
        c.between(1_000, _INT_MAX),
    )

    def option(self, name: str) -> str:
        """The option *name* as the user writes it, for use in messages."""
        return f"{self.option_prefix}{name}"


@dataclass(frozen=True)
class ClientConfig(SecurityConfig, ConnectionConfig):
    """The common properties of producer, consumer and admin client (apache/kafka ``CommonClientConfigs``)."""

    #: Options of Kafka's Java clients; a configuration copied from one must not fail because of them.
    NO_EFFECT: ClassVar[Mapping[str, str]] = other_names.NO_EFFECT
    #: Those that would change what was promised.
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = other_names.NOT_SUPPORTED

    @staticmethod
    def reader_of(name: str) -> str | None:
        return other_readers.reader_of(name)

    @staticmethod
    def instead_of(name: str, prefix: str, known: Collection[str]) -> str | None:
        return other_names.instead_of(name, prefix, known)

    def settle(self, explicit: Collection[str]) -> Self:
        """A wait before reconnecting that was set does not grow unless its maximum was set too, as in Kafka."""
        if "reconnect.backoff.ms" not in explicit or "reconnect.backoff.max.ms" in explicit:
            return self
        return replace(self, reconnect_backoff_max_ms=self.reconnect_backoff_ms)
