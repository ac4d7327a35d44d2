"""One SASL exchange, seen from either side: the seam between a mechanism and what carries its tokens.

An exchange belongs to one authentication of one connection and to its selector's thread. It knows no frame, no socket
and no time, and keeps no password longer than it needs it.

Source: RFC 4422.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

NO_EXPIRY: Final = 2**63 - 1


class SaslClient(Protocol):
    """Our part of the exchange, as a client."""

    @property
    def complete(self) -> bool:
        """We are content; for mechanisms that prove the server too, it has proved itself."""
        ...

    def initial_response(self) -> bytes:
        """The first token. :raises AuthenticationError: there is nothing to authenticate with."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """The answer to the server's token; None when there is nothing more to say.

        :raises AuthenticationError: the server is not who it should be, or says that we are not.
        """
        ...


class SaslServer(Protocol):
    """Our part of the exchange, as a broker."""

    @property
    def complete(self) -> bool:
        """The client has proved who it is."""
        ...

    @property
    def user_name(self) -> str:
        """Who the client is; of meaning once :attr:`complete`."""
        ...

    @property
    def expires_ms(self) -> int:
        """The wall-clock time at which what the client has shown ends, ms; :data:`NO_EXPIRY` for passwords."""
        ...

    def evaluate(self, response: bytes) -> bytes:
        """The answer to the client's token.

        :raises AuthenticationError: refused; the text goes to the client, and says nothing about which part was wrong.
        """
        ...


ClientExchange: TypeAlias = Callable[[], SaslClient]
ServerExchange: TypeAlias = Callable[[], SaslServer]
