"""Builds the channels of one security protocol.

The configuration selects the builder, once per selector; the selector's thread calls it for every connection. A builder
never connects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafka_sink.network.channel.authenticator import Authenticator, PlaintextAuthenticator
from kafka_sink.network.channel.channel import KafkaChannel
from kafka_sink.network.frames.receive import FrameReader
from kafka_sink.network.transport.tls_transport import TlsTransport
from kafka_sink.network.transport.transport import PlaintextTransport, Socket, TransportLayer
from kafka_sink.trust.tls_context import TlsContexts


class ChannelBuilder(Protocol):
    """Builds the channels of one security protocol."""

    def build_channel(
        self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader, peer_host: str
    ) -> KafkaChannel:
        """A channel over *sock*; *connected* is False while its connect is pending.

        *peer_host* is the name of the host to which we connect; empty on the accepting side.

        :raises OSError: if the transport cannot be created.
        """


#: Creates the authenticator of a connection; it exchanges its frames through the channel's own transport and reader.
AuthenticatorFactory = Callable[[str, TransportLayer, FrameReader, str], Authenticator]


class PlaintextChannelBuilder:
    """``security.protocol=PLAINTEXT``: no encryption and no authentication."""

    def build_channel(
        self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader, peer_host: str
    ) -> KafkaChannel:
        transport = PlaintextTransport(sock, connected=connected)
        return KafkaChannel(connection_id, transport, PlaintextAuthenticator(transport), reader)


class SecureChannelBuilder:
    """SSL, SASL_PLAINTEXT and SASL_SSL: TLS if *contexts* is given, SASL if *authenticators* is given."""

    def __init__(self, *, contexts: TlsContexts | None, authenticators: AuthenticatorFactory | None) -> None:
        self._contexts = contexts
        self._authenticators = authenticators

    def build_channel(
        self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader, peer_host: str
    ) -> KafkaChannel:
        transport: TransportLayer
        if self._contexts is None:
            transport = PlaintextTransport(sock, connected=connected)
        else:
            transport = TlsTransport(
                sock,
                connected=connected,
                context=self._contexts.current(),
                server_side=self._contexts.server,
                peer_host=peer_host,
            )
        if self._authenticators is None:
            return KafkaChannel(connection_id, transport, PlaintextAuthenticator(transport), reader)
        authenticator = self._authenticators(connection_id, transport, reader, peer_host)
        return KafkaChannel(connection_id, transport, authenticator, reader)
