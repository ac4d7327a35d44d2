"""The interface between the users of frames and the code that moves them.

``NetworkClient`` and the broker's ``Processor`` each drive a :class:`Selectable` on one thread: they queue operations
(connect, send, mute), call :meth:`Selectable.poll` and read its results. The implementation is
:class:`kafka_sink.network.polling.selector.KSelector`; tests use a fake. Other threads may call only
:meth:`Selectable.wakeup`. Only ``poll`` blocks. The cause of a disconnection is text that helps users to act.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from kafka_sink.common.errors import AuthenticationError, KafkaError
from kafka_sink.network.frames import NetworkReceive, NetworkSend
from kafka_sink.network.transport.resolver import SocketAddress
from kafka_sink.network.transport.transport import Socket

CLOSED: Final = "closed by the other side"
RESET: Final = "connection reset by the other side"


def cause_of(error: BaseException) -> str:
    """Short lower-case text for *error*, without the address, which the caller adds."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "connection timed out"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return RESET
    if isinstance(error, EOFError):
        return CLOSED
    if isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, OSError):
        text = error.strerror or str(error)
        return text[:1].lower() + text[1:]
    return f"{type(error).__name__}: {error}"


class ChannelState(Enum):
    """The state of a channel when it was disconnected (or the cause)."""

    NOT_CONNECTED = "not connected"
    AUTHENTICATE = "authenticating"
    AUTHENTICATION_FAILED = "authentication failed"
    READY = "ready"
    EXPIRED = "expired"
    FAILED_SEND = "failed send"
    LOCAL_CLOSE = "closed locally"


@dataclass(frozen=True, slots=True)
class Disconnect:
    """A disconnection: *cause* is text for users, such as "connection refused"."""

    state: ChannelState
    cause: str
    authentication_error: AuthenticationError | None = None


class Selectable(Protocol):
    """Connections by id, and the events of the last poll. The results are valid until the next poll."""

    @property
    def completed_sends(self) -> list[NetworkSend]:
        """Frames whose bytes, and all that the transport added, were written; a response may have arrived earlier."""

    @property
    def completed_receives(self) -> list[NetworkReceive]:
        """Complete frames that were received, at most one per connection."""

    @property
    def connected(self) -> list[str]:
        """Connections that were established (handshake and authentication may not be complete yet)."""

    @property
    def disconnected(self) -> dict[str, Disconnect]:
        """Connections that ended without :meth:`close_connection`, with the cause."""

    def connect(
        self, connection_id: str, address: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> None:
        """Begin to connect; a buffer size of −1 selects the system's default.

        :raises OSError: if it failed at once. :raises RuntimeError: if the id is in use.
        """

    def register(self, connection_id: str, sock: Socket) -> None:
        """Add an accepted socket. :raises RuntimeError: if the id is in use."""

    def send(self, send: NetworkSend) -> None:
        """Queue a frame; the following polls write it.

        :raises RuntimeError: if there is no such connection, or its last frame is not written yet (see
            :meth:`can_send`).
        """

    def poll(self, timeout_ms: int) -> None:
        """Read and write; return after an event, a :meth:`wakeup`, or *timeout_ms*."""

    def wakeup(self) -> None:
        """End the current poll, or the next one (any thread)."""

    def can_send(self, connection_id: str) -> bool:
        """Whether the connection is ready (handshake and authentication are complete) and no frame is being written.

        Callers cannot derive it: a frame that the transport has accepted may still be buffered, encrypted.
        """

    def is_open(self, connection_id: str) -> bool:
        """Whether the connection exists, or is closed but still has received frames to return."""

    def mute(self, connection_id: str) -> None:
        """Return no further frames of this connection. :raises RuntimeError: if there is no such connection."""

    def unmute(self, connection_id: str) -> None:
        """Undo :meth:`mute`. :raises RuntimeError: if there is no such connection."""

    def close_connection(self, connection_id: str) -> None:
        """Close a connection, which is not reported as disconnected; unknown ids are ignored."""

    def close(self) -> None:
        """Close all connections and the selector itself."""
