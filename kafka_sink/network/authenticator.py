"""Who is at the other end: the seam where SASL goes.

An authenticator belongs to one channel and its selector's thread. After the transport's handshake it exchanges its own
frames over the transport, step by step as the selector reports events, and never waits.
"""

from __future__ import annotations

from typing import Protocol


class Authenticator(Protocol):
    """Proves us to the peer, or the peer to us."""

    @property
    def complete(self) -> bool:
        """Nothing stands between the channel and its first request."""
        ...

    @property
    def wants_write(self) -> bool:
        """A frame of the exchange is only partly written."""
        ...

    def authenticate(self) -> None:
        """Get on with the exchange as far as is possible now.

        :raises AuthenticationError: refused.
        :raises OSError: the connection broke on the way.
        """
        ...

    def close(self) -> None: ...


class PlaintextAuthenticator:
    """Nobody asks: complete from the start."""

    complete = True
    wants_write = False

    def authenticate(self) -> None:
        """There is nothing to exchange."""

    def close(self) -> None:
        """Nothing is held."""
