"""PLAIN: user name and password in one token, for connections with TLS.

Used by authenticators on their selector's thread. The comparison takes constant time, so that its duration does not
reveal how much of a password was correct.

Source: RFC 4616; apache/kafka ``PlainSaslServer``.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from kafka_sink.common.errors import AuthenticationError
from kafka_sink.network.sasl.mechanism import NO_EXPIRY

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
    """Compares with *passwords*, by user."""

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
