"""The properties that all clients share, with Kafka's names, types and defaults.

Read once on the calling thread when a client is constructed, and immutable afterwards. The tables of the producer and
the consumer extend it. It opens no file and no connection: it checks the form of addresses, not whether they can be
reached. Passwords, secrets and tokens appear in no ``repr`` and in no error; references in the secrets of
OAUTHBEARER are replaced for each request for a token.

Source: apache/kafka ``CommonClientConfigs``, ``SaslConfigs``; KIP-255, KIP-768, KIP-1139, KIP-1258 (OAUTHBEARER).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

from kafka_sink.client.options import other_names
from kafka_sink.common import config as c
from kafka_sink.common.bounded import known_number
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import GSSAPI, MECHANISMS
from kafka_sink.common.tls_config import ClientSslConfig
from kafka_sink.network.sasl.bearer_token import ES256, RS256, EndpointLimits, RefreshRules

AWS_CLIENT_HANDLER: Final = "IAMClientCallbackHandler"
_REGION: Final = re.compile(r"|[a-z]{2}(-[a-z0-9]+)+-\d+")
_INT_MAX: Final = 2**31 - 1
_MILLISECONDS: Final = c.between(1, _INT_MAX)
FILE_RETRIEVER: Final = "FileJwtRetriever"
BEARER_RETRIEVER: Final = "JwtBearerJwtRetriever"
_RETRIEVERS: Final = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", FILE_RETRIEVER, BEARER_RETRIEVER)
_RETRIEVER: Final = c.ConfigType("the name of a class of Kafka", lambda text: str(text).strip().rpartition(".")[2])


@dataclass(frozen=True)
class OAuthConfig(c.Options):
    """The options ``sasl.oauthbearer.*`` of clients, and ``sasl.login.*``."""

    sasl_login_callback_handler_class: str | object | None = c.PLUGIN(
        None,
        "for OAUTHBEARER: a function, or the dotted path of one, that returns a JWT, or any token with its expiry "
        "time (seconds since 1970); called again before the token expires. Spark's executors must be able to import "
        "it. Kafka's own …OAuthBearerLoginCallbackHandler stands for sasl.oauthbearer.token.endpoint.url, and Amazon's "
        "…IAMOAuthBearerLoginCallbackHandler for sasl.oauthbearer.aws.region",
    )
    sasl_oauthbearer_token_endpoint_url: str = c.STRING(
        "",
        "for OAUTHBEARER: https:// address where the identity provider gives tokens for client credentials, or "
        "file:///path of a token",
        is_address=True,
    )
    sasl_oauthbearer_client_id: str = c.STRING(
        "",
        "the client's id at the identity provider; also clientId in sasl.jaas.config",
        name="sasl.oauthbearer.client.credentials.client.id",
        at_connect=True,
    )
    sasl_oauthbearer_client_secret: str = c.STRING(
        "",
        "the client's secret at the identity provider; also clientSecret in sasl.jaas.config",
        name="sasl.oauthbearer.client.credentials.client.secret",
        sensitive=True,
        at_connect=True,
    )
    sasl_oauthbearer_scope: str = c.STRING("", "scope of the token; also scope in sasl.jaas.config")
    sasl_oauthbearer_header_urlencode: bool = c.BOOLEAN(
        False, "encode the client's id and secret as RFC 6749 requires; some identity providers need this"
    )
    sasl_oauthbearer_jwt_retriever_class: str = _RETRIEVER(
        _RETRIEVERS[0],
        "the class of Kafka that gets tokens: the default one depends on sasl.oauthbearer.token.endpoint.url, and "
        f"{BEARER_RETRIEVER} exchanges an assertion for them, without client credentials",
        c.one_of(*_RETRIEVERS),
    )
    sasl_oauthbearer_assertion_file: str = c.STRING(
        "",
        "file with a signed JWT: it proves who the client is, instead of a secret, or is exchanged for tokens with "
        f"{BEARER_RETRIEVER}; read for each token",
    )
    sasl_oauthbearer_assertion_private_key_file: str = c.STRING(
        "",
        "PEM file with the private key that signs such JWTs, if sasl.oauthbearer.assertion.claim.iss is set; needs "
        "kafkalite[keystores]",
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str = c.STRING(
        "", "password of that private key, if it is encrypted", sensitive=True, at_connect=True
    )
    sasl_oauthbearer_assertion_algorithm: str = c.STRING(
        RS256, "algorithm that signs assertions", c.one_of(RS256, ES256)
    )
    sasl_oauthbearer_assertion_claim_iss: str = c.STRING("", "issuer of assertions: the client's id, as a rule")
    sasl_oauthbearer_assertion_claim_sub: str = c.STRING("", "subject of assertions: the client's id, as a rule")
    sasl_oauthbearer_assertion_claim_aud: str = c.STRING("", "audience of assertions: the identity provider")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = c.INT(
        300, "how long an assertion is valid, s", c.between(0, 86_400)
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = c.INT(
        60, "how long before its creation an assertion is valid, s", c.between(0, 3_600)
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = c.BOOLEAN(False, "give each assertion an id of its own")
    sasl_oauthbearer_aws_region: str = c.STRING(
        "",
        "for IAM on Amazon MSK, with OAUTHBEARER: the region of the cluster; tokens are made from the AWS credentials "
        "of the process that connects. Needs kafkalite[msk]",
        c.Validator("a region such as eu-west-1", lambda text: bool(_REGION.fullmatch(text))),
    )
    sasl_client_callback_handler_class: str = c.STRING(
        "",
        "accepted as Amazon's documentation writes it, with sasl.mechanism=AWS_MSK_IAM",
        c.Validator(
            f"…{AWS_CLIENT_HANDLER}; other Java classes cannot be used: a Python function creates tokens, "
            "sasl.login.callback.handler.class",
            lambda name: name.rpartition(".")[2] in ("", AWS_CLIENT_HANDLER),
        ),
    )
    sasl_login_connect_timeout_ms: int = c.INT(
        EndpointLimits.connect_timeout_ms,
        "how long a connection to the identity provider may take, ms (Kafka: for ever)",
        _MILLISECONDS,
    )
    sasl_login_read_timeout_ms: int = c.INT(
        EndpointLimits.read_timeout_ms, "how long its answer may take, ms (Kafka: for ever)", _MILLISECONDS
    )
    sasl_login_retry_backoff_ms: int = c.INT(
        EndpointLimits.retry_backoff_ms,
        "wait before a request for a token is tried again, ms; doubles each time",
        c.between(0, _INT_MAX),
    )
    sasl_login_retry_backoff_max_ms: int = c.INT(
        EndpointLimits.retry_backoff_max_ms,
        "how long a request for a token is tried again, ms; after that the client waits 10 s",
        c.between(0, _INT_MAX),
    )
    sasl_login_refresh_window_factor: float = c.DOUBLE(
        RefreshRules.window_factor, "share of its lifetime after which a token is renewed", c.between(0.5, 1.0)
    )
    sasl_login_refresh_window_jitter: float = c.DOUBLE(
        RefreshRules.window_jitter,
        "random share of its lifetime that is added, so that clients renew their tokens at different times",
        c.between(0.0, 0.25),
    )
    sasl_login_refresh_min_period_seconds: int = c.INT(
        RefreshRules.min_period_s,
        "shortest time between two renewals, s, if tokens live long enough",
        c.between(0, 900),
    )
    sasl_login_refresh_buffer_seconds: int = c.INT(
        RefreshRules.buffer_s,
        "how long before its expiry a token is renewed at the latest, s, if tokens live long enough",
        c.between(0, 3_600),
    )

    @property
    def refresh_rules(self) -> RefreshRules:
        """The rules for the renewal of tokens."""
        return RefreshRules(
            self.sasl_login_refresh_window_factor,
            self.sasl_login_refresh_window_jitter,
            self.sasl_login_refresh_min_period_seconds,
            self.sasl_login_refresh_buffer_seconds,
        )

    @property
    def endpoint_limits(self) -> EndpointLimits:
        """The time-outs of requests to the token endpoint."""
        return EndpointLimits(
            self.sasl_login_connect_timeout_ms,
            self.sasl_login_read_timeout_ms,
            self.sasl_login_retry_backoff_ms,
            self.sasl_login_retry_backoff_max_ms,
        )


PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
_ADDRESS = re.compile(r"^(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]+?)]?:(\d+)$")
USE_ALL_DNS_IPS = "use_all_dns_ips"
RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY = "resolve_canonical_bootstrap_servers_only"
REBOOTSTRAP = "rebootstrap"


@dataclass(frozen=True)
class SecurityConfig(OAuthConfig, ClientSslConfig):
    """The SASL options (apache/kafka ``SaslConfigs``)."""

    sasl_mechanism: str = c.UPPER_CASE(
        GSSAPI,
        "SASL mechanism used for authentication; GSSAPI is Kerberos, AWS_MSK_IAM is OAUTHBEARER with tokens for MSK",
        c.one_of(*MECHANISMS),
    )
    sasl_jaas_config: str = c.STRING(
        "",
        "credentials in the form of a JAAS configuration, as in Kafka: …PlainLoginModule or …ScramLoginModule required "
        'username="…" password="…"; …OAuthBearerLoginModule required clientId="…" clientSecret="…"; '
        '…Krb5LoginModule required useKeyTab=true keyTab="…" principal="…"; any package name '
        "is accepted",
        sensitive=True,
        at_connect=True,
    )
    sasl_username: str = c.STRING(
        "", "user name, if sasl.jaas.config is not set; the name of the option is librdkafka's", at_connect=True
    )
    sasl_password: str = c.STRING("", "password, if sasl.jaas.config is not set", sensitive=True, at_connect=True)
    sasl_kerberos_service_name: str = c.STRING(
        "",
        "for GSSAPI: the first part of the brokers' Kerberos principal, kafka as a rule; also serviceName in "
        "sasl.jaas.config",
    )


def _parse_address(entry: str) -> tuple[str, int]:
    match = _ADDRESS.match(entry)
    port = None if match is None else known_number(match[2], 1, 65535)
    if match is None or port is None:
        raise ConfigError(f"{entry!r} is not host:port, for example 127.0.0.1:9092", option="bootstrap.servers")
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
        c.REQUIRED,
        "initial broker addresses, host:port separated by commas; a few brokers of the cluster are enough",
        c.Validator("host:port, for example 127.0.0.1:9092", _are_addresses),
        is_address=True,
    )
    client_id: str = c.STRING("", "client name sent with every request, for the brokers' logs and quotas")
    client_dns_lookup: str = c.STRING(
        USE_ALL_DNS_IPS,
        "how to resolve addresses: try all addresses of a host name in turn, or replace the bootstrap addresses by "
        "canonical host names first",
        c.one_of(USE_ALL_DNS_IPS, RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY),
    )
    security_protocol: str = c.UPPER_CASE(
        "PLAINTEXT",
        "protocol of the connections to the brokers: SSL is TLS, SASL_… authenticates with sasl.mechanism",
        c.one_of(PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL),
    )
    request_timeout_ms: int = c.INT(
        30_000,
        "how long to wait for the response to a request before its connection is closed, ms",
        c.between(1, _INT_MAX),
    )
    max_in_flight_requests_per_connection: int = c.INT(
        5, "maximum number of unanswered requests per connection", c.between(1, _INT_MAX)
    )
    retry_backoff_ms: int = c.INT(
        100,
        "wait before a failed request (metadata included) is retried, ms; grows up to retry.backoff.max.ms",
        c.between(0, _INT_MAX),
    )
    retry_backoff_max_ms: int = c.INT(
        1_000, "longest wait before a failed request is retried, ms", c.between(0, _INT_MAX)
    )
    reconnect_backoff_ms: int = c.INT(
        50, "wait before reconnecting to a broker, ms; grows up to reconnect.backoff.max.ms", c.between(0, _INT_MAX)
    )
    reconnect_backoff_max_ms: int = c.INT(
        1_000, "longest wait before reconnecting to a broker, ms", c.between(0, _INT_MAX)
    )
    socket_connection_setup_timeout_ms: int = c.INT(
        10_000,
        "time-out for establishing a connection, ms; grows up to socket.connection.setup.timeout.max.ms",
        c.between(1, _INT_MAX),
    )
    socket_connection_setup_timeout_max_ms: int = c.INT(
        30_000, "longest time-out for establishing a connection, ms", c.between(1, _INT_MAX)
    )
    connections_max_idle_ms: int = c.INT(
        540_000, "close connections that have been idle for this long, ms; -1 = never", c.between(-1, _INT_MAX)
    )
    metadata_max_age_ms: int = c.INT(
        300_000, "refresh metadata after this long even if no change was seen, ms", c.between(0, _INT_MAX)
    )
    metadata_max_idle_ms: int = c.INT(
        300_000, "forget the metadata of a topic that has not been used for this long, ms", c.between(5_000, _INT_MAX)
    )
    metadata_recovery_strategy: str = c.LOWER_CASE(
        REBOOTSTRAP,
        "what to do when none of the known brokers is reachable: start again from bootstrap.servers, or keep trying",
        c.one_of(REBOOTSTRAP, "none"),
    )
    metadata_recovery_rebootstrap_trigger_ms: int = c.INT(
        300_000,
        "also start again from bootstrap.servers when no broker has answered a metadata request for this long, ms",
        c.between(0, _INT_MAX),
    )
    send_buffer_bytes: int = c.INT(
        131_072, "TCP send buffer, bytes; -1 = the system's default", c.between(-1, _INT_MAX)
    )
    receive_buffer_bytes: int = c.INT(
        32_768, "TCP receive buffer, bytes; -1 = the system's default", c.between(-1, _INT_MAX)
    )
    receive_message_max_bytes: int = c.INT(
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
    #: Those that are refused, because without them the guarantees would change.
    NOT_SUPPORTED: ClassVar[Mapping[str, str]] = other_names.NOT_SUPPORTED

    reader_of = staticmethod(other_names.reader_of)
    instead_of = staticmethod(other_names.instead_of)

    def settle(self, explicit: Collection[str]) -> Self:
        """If ``reconnect.backoff.ms`` is set without its maximum, the backoff does not grow, as in Kafka."""
        if "reconnect.backoff.ms" not in explicit or "reconnect.backoff.max.ms" in explicit:
            return self
        return replace(self, reconnect_backoff_max_ms=self.reconnect_backoff_ms)
