"""The interface between SASL mechanisms and the code that transports their tokens, for both sides; and PLAIN, user name
and password in one token, for connections with TLS.

An exchange belongs to one authentication of one connection and to its selector's thread. It uses no frames, no sockets
and no clock, and keeps a password no longer than necessary.

Source: RFC 4422, RFC 4616; apache/kafka ``PlainSaslServer``.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from kafka_sink.common.errors import AuthenticationError

NO_EXPIRY: Final = 2**63 - 1


class SaslClient(Protocol):
    """The client's side of an exchange."""

    @property
    def complete(self) -> bool:
        """Whether the exchange is complete; with mutual authentication, the server has then been authenticated too."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets to redact from texts of the broker."""

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
        """The expiry of the client's credentials (wall clock, ms); :data:`NO_EXPIRY` for passwords."""

    def evaluate(self, response: bytes) -> bytes:
        """The response to the client's token.

        :raises AuthenticationError: if authentication failed; the text is sent to the client and does not reveal which
            part was wrong.
        """


ClientExchange: TypeAlias = Callable[[], SaslClient]
ServerExchange: TypeAlias = Callable[[], SaslServer]


_REFUSED = "Authentication failed: Invalid username or password"


class PlainClient:
    """Sends user name and password."""

    complete = False

    def __init__(self, user_name: str, password: str) -> None:
        self._user_name = user_name
        self._password = password
        self.secrets = (password,)

    def initial_response(self) -> bytes:
        self.complete = True
        return f"\0{self._user_name}\0{self._password}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise AuthenticationError(
                "the broker continued the PLAIN exchange after the password, but PLAIN has only one step"
            )
        return None


class PlainServer:
    """Verifies a user's password against *passwords*, by user."""

    expires_ms = NO_EXPIRY

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.complete = False
        self.user_name = ""

    def evaluate(self, response: bytes) -> bytes:
        try:
            parts = response.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationError("Invalid SASL/PLAIN response: not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name or not password:
            missing = "password" if name else "username"
            raise AuthenticationError(f"Authentication failed: {missing} not specified")
        expected = self._passwords.get(name)
        matches = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not matches:
            raise AuthenticationError(_REFUSED)
        if authorization_id and authorization_id != name:
            raise AuthenticationError("Authentication failed: Client requested an authorization id that is different")
        self.complete = True
        self.user_name = name
        return b""
