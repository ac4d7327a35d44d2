"""The narrow waist between whoever speaks frames and whatever moves them.

``NetworkClient`` and the broker's ``Processor`` drive a :class:`Selectable`, one thread each: queue work (connect,
send, mute), call :meth:`Selectable.poll`, look at what it reports. The real one is
:class:`kafka_sink.network.selector.KSelector`; tests put a fake in its place. Only :meth:`Selectable.wakeup` may be
called by another thread. Nothing but ``poll`` ever waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kafka_sink.common.errors import AuthenticationError
from kafka_sink.network.receive import NetworkReceive
from kafka_sink.network.resolver import SocketAddress
from kafka_sink.network.send import NetworkSend
from kafka_sink.network.transport import Socket


class ChannelState(Enum):
    """How far a channel had come when it was lost (or what ended it)."""

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticating"
    AUTHENTICATION_FAILED = "authentication failed"
    READY = "ready"
    EXPIRED = "expired"
    FAILED_SEND = "failed send"
    LOCAL_CLOSE = "closed by us"


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The end of a connection: *cause* is text for people, such as "connection refused"."""

    state: ChannelState
    cause: str
    authentication_error: AuthenticationError | None = None


class Selectable(Protocol):
    """Connections by id, and what happened to them in the last poll. The results are valid until the next poll."""

    @property
    def completed_sends(self) -> list[NetworkSend]:
        """Frames that have left, and what the transport had to send behind them: an answer may have come before."""
        ...

    @property
    def completed_receives(self) -> list[NetworkReceive]:
        """Whole frames that came in, at most one per connection."""
        ...

    @property
    def connected(self) -> list[str]:
        """Connections that were established (handshake and authentication may still follow)."""
        ...

    @property
    def disconnected(self) -> dict[str, Disconnect]:
        """Connections that ended without our having closed them, and why."""
        ...

    def connect(
        self, connection_id: str, address: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> None:
        """Begin to connect; a buffer size of −1 leaves it to the system.

        :raises OSError: refused at once. :raises RuntimeError: the id is taken.
        """
        ...

    def register(self, connection_id: str, sock: Socket) -> None:
        """Take over an accepted socket. :raises RuntimeError: the id is taken."""
        ...

    def send(self, send: NetworkSend) -> None:
        """Queue a frame; it is written by the polls that follow.

        :raises RuntimeError: no such connection, or its last frame is not fully written yet (see :meth:`can_send`).
        """
        ...

    def poll(self, timeout_ms: int) -> None:
        """Move bytes; return when something happened, somebody called :meth:`wakeup`, or after *timeout_ms*."""
        ...

    def wakeup(self) -> None:
        """End the current poll, or the next one if none runs (any thread)."""
        ...

    def can_send(self, connection_id: str) -> bool:
        """Connected, handshake and authentication done, and no frame on its way: :meth:`send` takes the next one.

        Nobody else can tell. A frame that is used up may still lie, encrypted, in front of the socket.
        """
        ...

    def is_open(self, connection_id: str) -> bool:
        """The connection exists, or is gone but still has received frames to hand out."""
        ...

    def mute(self, connection_id: str) -> None:
        """Hand out no further frame of this connection. :raises RuntimeError: no such connection."""
        ...

    def unmute(self, connection_id: str) -> None:
        """Undo :meth:`mute`. :raises RuntimeError: no such connection."""
        ...

    def close_connection(self, connection_id: str) -> None:
        """Close without a report; unknown ids are ignored."""
        ...

    def close(self) -> None:
        """Close every connection and the selector itself."""
        ...
