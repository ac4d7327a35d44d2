"""The interface between SASL mechanisms and the code that transports their tokens, for both sides.

An exchange belongs to one authentication of one connection and to its selector's thread. It uses no frames, no sockets
and no clock, and keeps a password no longer than necessary.

Source: RFC 4422.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

NO_EXPIRY: Final = 2**63 - 1


class SaslClient(Protocol):
    """The client's side of an exchange."""

    @property
    def complete(self) -> bool:
        """Whether the exchange is complete; with mutual authentication, the server has then been authenticated too."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no text of the broker may show."""

    def initial_response(self) -> bytes:
        """The first token. :raises AuthenticationError: if there are no credentials."""

    def respond(self, challenge: bytes) -> bytes | None:
        """The response to the server's token; None if the exchange needs no further response.

        :raises AuthenticationError: if the server fails to authenticate itself, or rejects the client.
        """


class SaslServer(Protocol):
    """The broker's side of an exchange."""

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated."""

    @property
    def user_name(self) -> str:
        """The name of the client; valid only once :attr:`complete`."""

    @property
    def expires_ms(self) -> int:
        """When the client's credentials expire (wall clock, ms); :data:`NO_EXPIRY` for passwords."""

    def evaluate(self, response: bytes) -> bytes:
        """The response to the client's token.

        :raises AuthenticationError: if authentication failed; the text is sent to the client and does not reveal which
            part was wrong.
        """


ClientExchange: TypeAlias = Callable[[], SaslClient]
ServerExchange: TypeAlias = Callable[[], SaslServer]
