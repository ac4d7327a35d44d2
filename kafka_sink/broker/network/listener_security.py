"""The security protocol of each listener (``listener.security.protocol.map``), and the channel builder that it needs.

Called once per node when its network layer is created. Invalid settings raise an error then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from kafka_sink.broker.authorizer import Users
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.network.sasl_authenticator import AnswerVersions, SaslServerAuthenticator
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS, ScramCredential, ScramUsers
from kafka_sink.network.channel.authenticator import Authenticator
from kafka_sink.network.channel.channel import AuthenticatorFactory, ChannelBuilder
from kafka_sink.network.frames import FrameReader, LoginMemoryPool, MemoryPool
from kafka_sink.network.sasl.bearer_token import OAuthBearerServer
from kafka_sink.network.sasl.jaas import parse_jaas
from kafka_sink.network.sasl.mechanism import PlainServer, ServerExchange
from kafka_sink.network.sasl.scram import ScramServer
from kafka_sink.network.transport.transport import TransportLayer
from kafka_sink.trust.tls_context import TlsContexts

_PLAINTEXT: Final = "PLAINTEXT"
_TLS: Final = frozenset({"SSL", "SASL_SSL"})
_SASL: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
_PROTOCOLS: Final = frozenset({_PLAINTEXT}) | _TLS | _SASL
_USER_PREFIX: Final = "user_"


def users_of(config: BrokerConfig, stored: Callable[[], ScramUsers]) -> Users:
    """The users in *config*, and those that are *stored* in the cluster.

    :raises ConfigError: if an option is malformed; the error does not contain its value.
    """
    passwords: dict[str, str] = {}
    if config.sasl_jaas_config:
        options = parse_jaas("sasl.jaas.config", config.sasl_jaas_config).options
        passwords = {
            name.removeprefix(_USER_PREFIX): value for name, value in options.items() if name.startswith(_USER_PREFIX)
        }
    enabled = config.sasl_enabled_mechanisms
    configured: dict[tuple[str, str], ScramCredential] = {
        (mechanism, name): ScramCredential.of(mechanism, password)
        for mechanism in SCRAM_MECHANISMS
        if mechanism in enabled
        for name, password in passwords.items()
    }
    return Users(passwords if PLAIN in enabled else {}, configured, stored)


def security_protocols(config: BrokerConfig, listener_names: Collection[str]) -> dict[str, str]:
    """The security protocol of each of *listener_names*.

    A listener without a protocol must not be served: with PLAINTEXT as a default, a typing error would give access to
    everyone.

    :raises ConfigError: if the map has an unknown protocol, or a listener has none.
    """
    protocols = {protocol: protocol for protocol in _PROTOCOLS}
    for entry in config.listener_security_protocol_map:
        name, _, protocol = entry.partition(":")
        if protocol not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {protocol!r} of listener {name} is not supported, expected one of "
                f"{', '.join(sorted(_PROTOCOLS))}",
                option="listener.security.protocol.map",
            )
        protocols[name] = protocol
    for name in listener_names:
        if name not in protocols:
            raise ConfigError(
                f"listener.security.protocol.map: no security protocol is defined for listener {name!r}; add "
                f"{name}:PROTOCOL, or name the listener after its protocol, one of {', '.join(sorted(_PROTOCOLS))}",
                option="listener.security.protocol.map",
            )
    return {name: protocols[name] for name in listener_names}


def missing_protection(config: BrokerConfig, protocol: str) -> list[str]:
    """The protection that a listener with *protocol* lacks: TLS, authentication, both or none."""
    missing = [] if protocol in _TLS else ["TLS"]
    shows_certificate = protocol in _TLS and config.ssl_client_auth == "required"
    return missing if protocol in _SASL or shows_certificate else [*missing, "authentication"]


#: Limits on the frames of unauthenticated clients: the total of all, and the size up to which a frame is not counted.
#: A login has a few hundred bytes, a token of an identity provider some thousand.
LOGIN_BYTES: Final = 16 << 20
LOGIN_FREE_BYTES: Final = 16 << 10


class ListenerSecurity:
    """Creates the channel builders of a node's listeners; *answer_versions* answers ApiVersions before SASL."""

    def __init__(
        self,
        config: BrokerConfig,
        listener_names: Collection[str],
        users: Users,
        clock: Clock,
        answer_versions: AnswerVersions,
    ) -> None:
        """:raises ConfigError: if a listener has no security protocol, or mechanisms are malformed."""
        self._config = config
        self._clock = clock
        self._answer_versions = answer_versions
        #: Listener name → security protocol.
        self.protocols: Final = security_protocols(config, listener_names)
        self._exchanges = _exchanges(config, users, clock)
        self._contexts: TlsContexts | None = None
        self._login_pool = LoginMemoryPool(LOGIN_BYTES, LOGIN_FREE_BYTES)

    def channel_builder(self, listener_name: str, memory_pool: MemoryPool) -> ChannelBuilder:
        """A channel builder for one selector of a listener.

        :raises ConfigError: if a certificate, a key or a mechanism is missing or invalid.
        """
        protocol = self.protocols[listener_name]
        contexts = None
        if protocol in _TLS:
            # Shared, so that all threads of a listener use a renewed certificate at the same time.
            contexts = self._contexts or TlsContexts(
                self._config, server=True, client_auth=self._config.ssl_client_auth
            )
            self._contexts = contexts
        if protocol not in _SASL:
            return ChannelBuilder(contexts=contexts)
        if not self._exchanges:
            raise ConfigError(
                f"listener {listener_name} uses {protocol}, so sasl.enabled.mechanisms must not be empty",
                option="sasl.enabled.mechanisms",
            )
        return ChannelBuilder(contexts=contexts, authenticators=self._authenticators(memory_pool))

    def _authenticators(self, memory_pool: MemoryPool) -> AuthenticatorFactory:
        def create(connection_id: str, transport: TransportLayer, reader: FrameReader, peer_host: str) -> Authenticator:
            return SaslServerAuthenticator(
                self._exchanges,
                transport,
                reader,
                clock=self._clock,
                config=self._config,
                memory_pool=memory_pool,
                login_pool=self._login_pool,
                answer_versions=self._answer_versions,
            )

        return create


def _exchanges(config: BrokerConfig, users: Users, clock: Clock) -> Mapping[str, ServerExchange]:
    served: dict[str, ServerExchange] = {
        PLAIN: partial(PlainServer, users.passwords),
        OAUTHBEARER: partial(OAuthBearerServer, clock),
        **{name: partial(ScramServer, name, partial(users.scram, name)) for name in SCRAM_MECHANISMS},
    }
    return {mechanism: served[mechanism] for mechanism in config.sasl_enabled_mechanisms}
