"""OAUTHBEARER: authentication with a token instead of a password.

The exchange runs on a selector's thread, which may fetch the first token (``http.oauth``). Tokens never appear in a
text.

Source: RFC 7628, KIP-255; apache/kafka ``OAuthBearerSaslServer`` and its unsecured tokens for development.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import AuthenticationError
from kafka_sink.common.repeated_secrets import RepeatedSecrets
from kafka_sink.network.sasl.bearer_token import Token, claims_of, milliseconds, number
from kafka_sink.network.sasl.mechanism import NO_EXPIRY

_SEPARATOR: Final = "\1"
_PAIR: Final = "[A-Za-z]+=[^\1]*\1"
_CLIENT_FIRST: Final = re.compile(
    f"n,(?:a=(?P<authzid>(?:[^,=\1]|=2C|=3D)+))?,\1(?:{_PAIR})*?"
    f"auth=[Bb]earer +(?P<token>[-_.~+/A-Za-z0-9]+=*)\1(?:{_PAIR})*\1"
)


class OAuthBearerClient:
    """Authenticates with a token."""

    def __init__(self, token: Callable[[], Token]) -> None:
        self._token = token
        self._problem = ""
        self.secrets: tuple[str, ...] = ()
        self.complete = False

    def initial_response(self) -> bytes:
        token = self._token()
        self.secrets = (token.value,)
        extensions = "".join(f"{name}={value}{_SEPARATOR}" for name, value in token.extensions.items())
        self.complete = True
        return f"n,,{_SEPARATOR}auth=Bearer {token.value}{_SEPARATOR}{extensions}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        if self._problem:
            raise AuthenticationError(f"the broker refused the token: {self._problem}")
        # RFC 7628, 3.2.3: the client acknowledges the error, and then the broker fails the exchange.
        self.complete = False
        self._problem = RepeatedSecrets(self.secrets).hidden_in(challenge.decode(errors="replace"))[:1000]
        return _SEPARATOR.encode()


class OAuthBearerServer:
    """Accepts unsecured tokens (JWS without a signature), which is Kafka's default: for tests only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused = False
        self.complete = False
        self.user_name = ""
        self.expires_ms = NO_EXPIRY

    def evaluate(self, response: bytes) -> bytes:
        match = _CLIENT_FIRST.fullmatch(response.decode(errors="replace"))
        if self._refused or match is None:
            what = '{"status":"invalid_token"}' if self._refused else "Invalid OAUTHBEARER client first message"
            raise AuthenticationError(what)
        try:
            claims = claims_of(match["token"], unsecured=True)
            subject, expires_ms = claims.get("sub"), milliseconds(number(claims.get("exp")))
        except AuthenticationError:
            subject, expires_ms = None, 0
        is_named = bool(subject) and match["authzid"] in (None, subject)
        if not isinstance(subject, str) or not is_named or expires_ms <= self._clock.wall_ms():
            self._refused = True
            return b'{"status":"invalid_token"}'
        self.complete, self.user_name, self.expires_ms = True, subject, expires_ms
        return b""
