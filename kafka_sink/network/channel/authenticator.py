"""Authentication of the peer of a connection; SASL implements this interface.

An authenticator belongs to one channel and its selector's thread. After the transport's handshake it exchanges its own
frames over the transport, step by step as the selector reports events. It must not block.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafka_sink.network.frames import NetworkReceive
from kafka_sink.network.transport.transport import TransportLayer

#: The name of an unauthenticated peer.
ANONYMOUS: Final = "ANONYMOUS"


class Authenticator(Protocol):
    """Authenticates us to the peer or the peer to us, and reauthenticates when a session ends (KIP-368)."""

    @property
    def principal(self) -> str:
        """The principal of the peer, on the accepting side: ``User:name``."""

    @property
    def complete(self) -> bool:
        """Whether authentication is complete, so that requests may be sent."""

    @property
    def wanted_events(self) -> int:
        """The socket events with which the exchange can continue."""

    def authenticate(self) -> None:
        """Continue the exchange as far as possible without blocking.

        :raises AuthenticationError: if authentication failed.
        :raises OSError: if the connection failed during the exchange.
        """

    @property
    def wants_reauthentication(self) -> bool:
        """Whether reauthentication is due before the next frame is sent (connecting side)."""

    @property
    def session_expired(self) -> bool:
        """Whether the session has expired without reauthentication by the peer (accepting side)."""

    def begin_reauthentication(self, request: NetworkReceive | None) -> bool:
        """Begin reauthentication, on the accepting side with the peer's *request*. False if it is not allowed now."""

    def take_received(self) -> NetworkReceive | None:
        """The next frame that was received during the exchange but is not part of it, in order of arrival."""

    def send_failure(self) -> None:
        """Send the reason for the rejection to the peer, as far as the socket accepts it without blocking."""

    def close(self) -> None: ...


class PlaintextAuthenticator:
    """No authentication: complete from the start. The principal is the subject of the peer's certificate, if any."""

    wants_reauthentication = False
    session_expired = False
    complete = True
    wanted_events = 0

    def authenticate(self) -> None:
        """Does nothing: there is no exchange."""

    def __init__(self, transport: TransportLayer) -> None:
        self._transport = transport

    @property
    def principal(self) -> str:
        subject = self._transport.peer_subject
        return f"User:{ANONYMOUS if subject is None else subject}"

    def begin_reauthentication(self, request: NetworkReceive | None) -> bool:
        return False

    def take_received(self) -> NetworkReceive | None:
        return None

    def send_failure(self) -> None:
        """Does nothing: authentication cannot fail."""

    def close(self) -> None:
        """Does nothing: there are no resources."""
