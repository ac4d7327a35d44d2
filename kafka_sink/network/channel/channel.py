"""One connection: a transport, an authenticator, one outgoing frame and one incoming frame; and the builder of
connections, which a selector calls.

Owned by a selector and its thread. The channel determines the socket events that it wants; the selector registers them.
It never blocks and holds at most one outgoing frame: a second send before the first is written is a programming error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kafka_sink.common.errors import AuthenticationError
from kafka_sink.network.channel.authenticator import Authenticator, PlaintextAuthenticator
from kafka_sink.network.channel.selectable import ChannelState
from kafka_sink.network.frames import FrameReader, NetworkReceive, NetworkSend, SendSlot
from kafka_sink.network.transport.tls_transport import TlsTransport
from kafka_sink.network.transport.transport import READ, WRITE, PlaintextTransport, Socket, TransportLayer
from kafka_sink.trust.tls_context import TlsContexts


class KafkaChannel:
    """A connection with a slot for a send and a slot for a receive."""

    def __init__(
        self, connection_id: str, transport: TransportLayer, authenticator: Authenticator, reader: FrameReader
    ) -> None:
        self.id = connection_id
        self.transport = transport
        self.authenticator = authenticator
        self._reader = reader
        self._slot = SendSlot(transport)
        # Responses that arrived during reauthentication.
        self._deferred: deque[NetworkReceive] = deque()
        self.state = ChannelState.NOT_CONNECTED
        #: The cause of the disconnection, once the channel has failed.
        self.cause = ""
        self.failure: AuthenticationError | None = None
        #: Whether reading is stopped, on request or because the memory pool is exhausted.
        self.muted = False
        #: The events that are registered for this channel (set by the selector).
        self.registered_events = 0

    @property
    def ready(self) -> bool:
        """Whether requests and responses may be exchanged."""
        return self.transport.ready and self.authenticator.complete

    @property
    def can_send(self) -> bool:
        """Whether :meth:`set_send` accepts the next frame now."""
        return self.ready and not self._slot.taken

    @property
    def wants_write(self) -> bool:
        """Whether there is anything to write, which may only be encrypted bytes that TLS has left."""
        return self._slot.wants_write

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether bytes or frames are buffered above the socket, so that no socket event will announce them."""
        return bool(self._deferred) or self._reader.has_bytes_buffered or self.transport.has_bytes_buffered()

    @property
    def is_in_mutable_state(self) -> bool:
        """Whether the next frame waits for memory from the pool, so that the channel can be muted at no cost."""
        return self._reader.awaits_memory and self.transport.ready

    @property
    def wanted_events(self) -> int:
        """The socket events with which this channel can continue."""
        if self.failure is not None:
            return 0
        if not self.transport.is_connected:
            return WRITE
        if not self.transport.ready:
            return self.transport.handshake_events
        if not self.authenticator.complete:
            return self.authenticator.wanted_events
        return (0 if self.muted else READ) | (WRITE if self.wants_write else 0)

    def finish_connect(self) -> None:
        """Complete a pending connect. :raises OSError: if it failed."""
        self.transport.finish_connect()
        self.state = ChannelState.READY if self.ready else ChannelState.AUTHENTICATE

    def prepare(self) -> None:
        """Continue handshake and authentication.

        :raises AuthenticationError: if authentication failed. :raises OSError: if the connection failed.
        """
        if not self.transport.ready:
            self.transport.handshake()
        if self.transport.ready and not self.authenticator.complete:
            self.authenticator.authenticate()
        while (received := self.authenticator.take_received()) is not None:
            self._deferred.append(received)
        if self.ready:
            self.state = ChannelState.READY

    def begin_reauthentication(self, request: NetworkReceive | None = None) -> bool:
        """Begin reauthentication: as a client before a frame is sent, as a broker with the client's *request*.

        False if it is not allowed now; a partly written frame is never interrupted.
        """
        if not self.authenticator.begin_reauthentication(request):
            return False
        self.state = ChannelState.AUTHENTICATE
        return True

    @property
    def wants_reauthentication(self) -> bool:
        """Whether the next frame must wait until reauthentication is complete."""
        return self._slot.untouched and self.authenticator.wants_reauthentication

    def refuse(self, error: AuthenticationError) -> None:
        """Record an authentication failure of either side; no more frames are read."""
        self.state = ChannelState.AUTHENTICATION_FAILED
        self.failure = error

    def set_send(self, send: NetworkSend) -> None:
        """Set the frame to send. :raises RuntimeError: if another frame is being sent."""
        if self._slot.taken:
            raise RuntimeError(f"connection {self.id} has a frame that is not fully written yet")
        self._slot.put(send)

    def write(self) -> NetworkSend | None:
        """Continue to write; returns the frame when its last byte is written, which frees the slot."""
        return self._slot.write()

    def read(self) -> NetworkReceive | None:
        """Continue to read; returns a frame when it is complete. Mutes itself if the pool has no memory for the next
        frame.

        :raises InvalidReceiveError: if the peer announced a frame of invalid size. :raises EOFError: if it has closed.
        """
        if self._deferred:
            return self._deferred.popleft()
        received = self._reader.read_from(self.transport.read_into)
        if self._reader.awaits_memory:
            self.muted = True
        return received

    def close(self) -> None:
        """Close the socket and release the memory reserved for a partly read frame."""
        self._slot.clear()
        while self._deferred:
            self._deferred.popleft().release()
        self._reader.discard()
        self.authenticator.close()
        self.transport.close()


#: Creates the authenticator of a connection; it exchanges its frames through the channel's own transport and reader.
AuthenticatorFactory = Callable[[str, TransportLayer, FrameReader, str], Authenticator]


class ChannelBuilder:
    """Builds the channels of one security protocol: TLS if there are *contexts*, SASL if there are *authenticators*."""

    def __init__(
        self, *, contexts: TlsContexts | None = None, authenticators: AuthenticatorFactory | None = None
    ) -> None:
        self._contexts = contexts
        self._authenticators = authenticators

    def build_channel(
        self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader, peer_host: str
    ) -> KafkaChannel:
        """A channel over *sock*; *connected* is False while its connect is pending.

        *peer_host* is the name of the host to which we connect; empty on the accepting side.

        :raises OSError: if the transport cannot be created.
        """
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
