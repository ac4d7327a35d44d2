"""One connection: a transport, an authenticator, one frame going out and one coming in.

Owned by a selector and its thread. It decides which socket events it wants; the selector does the registering. It never
waits and never holds more than one outgoing frame: a second one before the first is written is a programming error.
"""

from __future__ import annotations

from collections import deque

from kafka_sink.common.errors import AuthenticationError
from kafka_sink.network.authenticator import Authenticator
from kafka_sink.network.receive import FrameReader, NetworkReceive
from kafka_sink.network.selectable import ChannelState
from kafka_sink.network.send import NetworkSend
from kafka_sink.network.send_slot import SendSlot
from kafka_sink.network.transport import READ, WRITE, TransportLayer


class KafkaChannel:
    """A connection with its two slots."""

    __slots__ = (
        "_deferred",
        "_reader",
        "_slot",
        "authenticator",
        "cause",
        "failure",
        "id",
        "muted",
        "registered_events",
        "state",
        "transport",
    )

    def __init__(
        self, connection_id: str, transport: TransportLayer, authenticator: Authenticator, reader: FrameReader
    ) -> None:
        self.id = connection_id
        self.transport = transport
        self.authenticator = authenticator
        self._reader = reader
        self._slot = SendSlot(transport)
        # Answers that came while we authenticated again.
        self._deferred: deque[NetworkReceive] = deque()
        self.state = ChannelState.NOT_CONNECTED
        #: Text of what ended the channel, once something has.
        self.cause = ""
        self.failure: AuthenticationError | None = None
        #: No frame is read: somebody asked for it, or the memory pool is exhausted.
        self.muted = False
        #: What the selector has registered for this channel (the selector's own note).
        self.registered_events = 0

    @property
    def ready(self) -> bool:
        """Requests and answers may flow."""
        return self.transport.ready and self.authenticator.complete

    @property
    def can_send(self) -> bool:
        """The next frame may be put into the slot now."""
        return self.ready and not self._slot.taken

    @property
    def wants_write(self) -> bool:
        """Something has to leave, be it only the rest of what TLS has encrypted."""
        return self._slot.wants_write

    @property
    def has_bytes_buffered(self) -> bool:
        """Bytes or frames wait above the socket, so no socket event will announce them."""
        return bool(self._deferred) or self._reader.has_bytes_buffered or self.transport.has_bytes_buffered()

    @property
    def is_in_mutable_state(self) -> bool:
        """The next frame waits for room in the memory pool: muting it costs nothing."""
        return self._reader.awaits_memory and self.transport.ready

    @property
    def wanted_events(self) -> int:
        """The socket events that would let this channel get on."""
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
        """The connect that was begun is over. :raises OSError: and it failed."""
        self.transport.finish_connect()
        self.state = ChannelState.READY if self.ready else ChannelState.AUTHENTICATE

    def prepare(self) -> None:
        """Get on with handshake and authentication.

        :raises AuthenticationError: refused. :raises OSError: the connection broke.
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
        """Begin to authenticate again: as the client before it writes a frame, as the broker by the client's *request*.

        False when this is not the time; a frame that is partly written is never interrupted.
        """
        if not self.authenticator.begin_reauthentication(request):
            return False
        self.state = ChannelState.AUTHENTICATE
        return True

    @property
    def wants_reauthentication(self) -> bool:
        """The next frame of ours has to wait until we have authenticated again."""
        return self._slot.untouched and self.authenticator.wants_reauthentication

    def refuse(self, error: AuthenticationError) -> None:
        """The peer refuses us, or we refuse the peer: nothing is read any more."""
        self.state = ChannelState.AUTHENTICATION_FAILED
        self.failure = error

    def set_send(self, send: NetworkSend) -> None:
        """Put a frame into the slot. :raises RuntimeError: the slot is taken."""
        if self._slot.taken:
            raise RuntimeError(f"connection {self.id} has a frame that is not fully written yet")
        self._slot.put(send)

    def write(self) -> NetworkSend | None:
        """Write on; the frame when its last byte is gone, and then the slot is free."""
        return self._slot.write()

    def read(self) -> NetworkReceive | None:
        """Read on; a frame when one is whole. Mutes itself when the memory pool has no room for the next one.

        :raises InvalidReceiveError: the peer announced a frame of an impossible size. :raises EOFError: it closed.
        """
        if self._deferred:
            return self._deferred.popleft()
        received = self._reader.read_from(self.transport)
        if self._reader.awaits_memory:
            self.muted = True
        return received

    def close(self) -> None:
        """Free the socket and what the half-read frame has reserved."""
        self._slot.clear()
        while self._deferred:
            self._deferred.popleft().release()
        self._reader.discard()
        self.authenticator.close()
        self.transport.close()
