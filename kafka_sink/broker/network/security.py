"""From the broker's configuration to what its listeners build for each connection.

Called once per node while its network layer is put together. Whatever cannot be used is an error there. Must never keep
the password of a SCRAM user.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.network.sasl_authenticator import AnswerVersions, SaslServerAuthenticator
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.sasl_mechanisms import OAUTHBEARER, PLAIN
from kafka_sink.network.authenticator import Authenticator
from kafka_sink.network.channel_builder import (
    AuthenticatorFactory,
    ChannelBuilder,
    PlaintextChannelBuilder,
    SecureChannelBuilder,
)
from kafka_sink.network.memory_pool import MemoryPool
from kafka_sink.network.receive import FrameReader
from kafka_sink.network.sasl.jaas import parse_jaas
from kafka_sink.network.sasl.mechanism import ServerExchange
from kafka_sink.network.sasl.oauthbearer import OAuthBearerServer
from kafka_sink.network.sasl.plain import PlainServer
from kafka_sink.network.sasl.scram import ScramCredential, ScramServer, parse_credential
from kafka_sink.network.tls_context import TlsContexts
from kafka_sink.network.transport import TransportLayer

_PLAINTEXT: Final = "PLAINTEXT"
_TLS: Final = frozenset({"SSL", "SASL_SSL"})
_SASL: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
_PROTOCOLS: Final = frozenset({_PLAINTEXT}) | _TLS | _SASL
_USER_PREFIX: Final = "user_"


@dataclass(frozen=True)
class Users:
    """Who may authenticate with a password: for PLAIN the passwords, for each kind of SCRAM the salted keys."""

    passwords: Mapping[str, str] = field(repr=False)
    scram: Mapping[str, Mapping[str, ScramCredential]] = field(repr=False)

    @classmethod
    def of(cls, config: BrokerConfig) -> Users:
        """The users of *config*. :raises ConfigError: an option is malformed; the text shows none of it."""
        passwords: dict[str, str] = {}
        if config.sasl_jaas_config:
            options = parse_jaas("sasl.jaas.config", config.sasl_jaas_config).options
            passwords = {
                name.removeprefix(_USER_PREFIX): value
                for name, value in options.items()
                if name.startswith(_USER_PREFIX)
            }
        mechanisms = [name for name in config.sasl_enabled_mechanisms if name not in (PLAIN, OAUTHBEARER)]
        scram = {
            mechanism: {name: ScramCredential.of(mechanism, password) for name, password in passwords.items()}
            for mechanism in mechanisms
        }
        for number, text in enumerate(filter(None, map(str.strip, config.sasl_scram_credentials.split(";"))), 1):
            try:
                mechanism, name, credential = parse_credential(text)
            except ConfigError as error:
                raise ConfigError(f"option sasl.scram.credentials, entry {number}: {error}") from None
            scram.setdefault(mechanism, {})[name] = credential
        return cls(passwords if PLAIN in config.sasl_enabled_mechanisms else {}, scram)


def security_protocols(config: BrokerConfig, listener_names: Collection[str]) -> dict[str, str]:
    """Protocol of each of *listener_names*.

    A listener that has none must not be served: PLAINTEXT in its place would let everybody in over a typing mistake.

    :raises ConfigError: the map names a protocol that does not exist, or a listener has none.
    """
    found = {protocol: protocol for protocol in _PROTOCOLS}
    for entry in config.listener_security_protocol_map:
        name, _, protocol = entry.partition(":")
        if protocol not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {protocol!r} of listener {name} is not supported, expected one of "
                f"{', '.join(sorted(_PROTOCOLS))}"
            )
        found[name] = protocol
    for name in listener_names:
        if name not in found:
            raise ConfigError(
                f"listener.security.protocol.map: no security protocol is defined for listener {name!r}; add "
                f"{name}:PROTOCOL, or name the listener after its protocol, one of {', '.join(sorted(_PROTOCOLS))}"
            )
    return {name: found[name] for name in listener_names}


class ListenerSecurity:
    """Makes the channel builders of a node's listeners; *answer_versions* answers ApiVersions before SASL."""

    def __init__(
        self, config: BrokerConfig, listener_names: Collection[str], clock: Clock, answer_versions: AnswerVersions
    ) -> None:
        """:raises ConfigError: a listener has no security protocol, or users or mechanisms are malformed."""
        self._config = config
        self._clock = clock
        self._answer_versions = answer_versions
        self._protocols = security_protocols(config, listener_names)
        self._exchanges = _exchanges(config, clock)
        self._contexts: TlsContexts | None = None

    def channel_builder(self, listener_name: str, memory_pool: MemoryPool) -> ChannelBuilder:
        """A channel builder for one selector of a listener.

        :raises ConfigError: a certificate, a key or a mechanism is missing or cannot be used.
        """
        protocol = self._protocols[listener_name]
        if protocol == _PLAINTEXT:
            return PlaintextChannelBuilder()
        contexts = None
        if protocol in _TLS:
            # One for all, so that a renewed certificate is the same for every thread of a listener.
            contexts = self._contexts or TlsContexts(
                self._config, server=True, client_auth=self._config.ssl_client_auth
            )
            self._contexts = contexts
        if protocol not in _SASL:
            return SecureChannelBuilder(contexts=contexts, authenticators=None)
        if not self._exchanges:
            raise ConfigError(f"listener {listener_name} is {protocol}, so sasl.enabled.mechanisms has to name some")
        return SecureChannelBuilder(contexts=contexts, authenticators=self._authenticators(memory_pool))

    def _authenticators(self, memory_pool: MemoryPool) -> AuthenticatorFactory:
        def create(connection_id: str, transport: TransportLayer, reader: FrameReader, peer_host: str) -> Authenticator:
            return SaslServerAuthenticator(
                self._exchanges,
                transport,
                reader,
                clock=self._clock,
                config=self._config,
                memory_pool=memory_pool,
                answer_versions=self._answer_versions,
            )

        return create


def _exchanges(config: BrokerConfig, clock: Clock) -> Mapping[str, ServerExchange]:
    users = Users.of(config)
    found: dict[str, ServerExchange] = {}
    for mechanism in config.sasl_enabled_mechanisms:
        make: Callable[[], PlainServer | ScramServer | OAuthBearerServer]
        if mechanism == PLAIN:
            make = partial(PlainServer, users.passwords)
        elif mechanism == OAUTHBEARER:
            make = partial(OAuthBearerServer, clock)
        else:
            make = partial(ScramServer, mechanism, users.scram[mechanism])
        found[mechanism] = make
    return found
