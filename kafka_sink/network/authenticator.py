"""Who is at the other end: the seam where SASL goes.

An authenticator belongs to one channel and its selector's thread. After the transport's handshake it exchanges its own
frames over the transport, step by step as the selector reports events, and never waits.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafka_sink.network.receive import NetworkReceive
from kafka_sink.network.transport import TransportLayer

#: The name of whoever did not have to say theirs.
ANONYMOUS: Final = "ANONYMOUS"


class Authenticator(Protocol):
    """Proves us to the peer, or the peer to us, and again where a session ends (KIP-368)."""

    @property
    def principal(self) -> str:
        """Who the peer is, as the accepting side knows it: ``User:name``."""
        ...

    @property
    def complete(self) -> bool:
        """Nothing stands between the channel and its first request."""
        ...

    @property
    def wanted_events(self) -> int:
        """The socket events that would let the exchange get on."""
        ...

    def authenticate(self) -> None:
        """Get on with the exchange as far as is possible now.

        :raises AuthenticationError: refused.
        :raises OSError: the connection broke on the way.
        """
        ...

    @property
    def wants_reauthentication(self) -> bool:
        """Before the next frame of ours goes out it is time to authenticate again (connecting side)."""
        ...

    @property
    def session_expired(self) -> bool:
        """The peer should have authenticated again by now (accepting side)."""
        ...

    def begin_reauthentication(self, request: NetworkReceive | None) -> bool:
        """Begin again: on the accepting side with the peer's *request* for it. False when this is not the time."""
        ...

    def take_received(self) -> NetworkReceive | None:
        """A frame that came between those of the exchange and is none of it, in the order of arrival."""
        ...

    def send_failure(self) -> None:
        """Tell the peer why it is refused, as far as the socket takes it at once."""
        ...

    def close(self) -> None: ...


class PlaintextAuthenticator:
    """Nobody asks: complete from the start. Who the peer is, its certificate says, if it has shown one."""

    wants_reauthentication = False
    session_expired = False
    complete = True
    wanted_events = 0

    def authenticate(self) -> None:
        """There is nothing to exchange."""

    def __init__(self, transport: TransportLayer) -> None:
        self._transport = transport

    @property
    def principal(self) -> str:
        return f"User:{self._transport.peer_subject or ANONYMOUS}"

    def begin_reauthentication(self, request: NetworkReceive | None) -> bool:
        return False

    def take_received(self) -> NetworkReceive | None:
        return None

    def send_failure(self) -> None:
        """Nobody is refused."""

    def close(self) -> None:
        """Nothing is held."""
