"""OAUTHBEARER: authentication with a token instead of a password.

The exchange runs on a selector's thread, and so does the user's callback when a new token is due: the callback should
return within a second or two. Tokens never appear in a text.

Source: RFC 7628, KIP-255; apache/kafka ``OAuthBearerSaslServer`` and its unsecured tokens for development.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import AuthenticationError
from kafka_sink.network.sasl.mechanism import NO_EXPIRY

_SEPARATOR: Final = "\1"
#: The share of a token's lifetime after which a new one is requested (Kafka: sasl.login.refresh.window.factor).
_REFRESH_FACTOR: Final = 0.8
_YEAR_MS: Final = 366 * 24 * 3600 * 1000
_UNSECURED_LIFETIME_MS: Final = 3600 * 1000
_PAIR: Final = "[A-Za-z]+=[^\1]*\1"
_CLIENT_FIRST: Final = re.compile(
    f"n,(?:a=(?P<authzid>(?:[^,=\1]|=2C|=3D)+))?,\1(?:{_PAIR})*?"
    f"auth=[Bb]earer +(?P<token>[-_.~+/A-Za-z0-9]+=*)\1(?:{_PAIR})*\1"
)


@dataclass(frozen=True)
class Token:
    """A bearer token and its expiry, ms since 1970."""

    value: str = field(repr=False)
    expires_ms: int
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSource:
    """Gets tokens from *callback*, and new ones before they expire.

    *callback* returns a JWT, or a tuple of any token and its expiry in seconds since 1970; a third element may contain
    SASL extensions (KIP-342), which Confluent Cloud needs.
    """

    def __init__(self, callback: Callable[[], Any], clock: Clock) -> None:
        self._callback = callback
        self._clock = clock
        self._token: Token | None = None
        self._refresh_at_ms = 0

    def token(self) -> Token:
        """The present token. :raises AuthenticationError: if the callback fails and no earlier token is still valid."""
        now_ms = self._clock.wall_ms()
        if self._token is None or now_ms >= self._refresh_at_ms:
            try:
                self._token = _token_of(self._callback(), now_ms)
            except Exception as error:
                if self._token is None or now_ms >= self._token.expires_ms:
                    cause = str(error) if isinstance(error, AuthenticationError) else type(error).__name__
                    raise AuthenticationError(f"no OAUTHBEARER token: the callback failed: {cause}") from None
                return self._token
            self._refresh_at_ms = now_ms + int((self._token.expires_ms - now_ms) * _REFRESH_FACTOR)
        return self._token


def _token_of(answer: Any, now_ms: int) -> Token:
    """Convert the callback's result to a token. :raises AuthenticationError: if it is not a valid token."""
    value, *rest = answer if isinstance(answer, tuple | list) else (answer,)
    if not isinstance(value, str) or not value:
        raise AuthenticationError(
            "it must return the token as text, or a tuple of the token and its expiry time in seconds since 1970"
        )
    expires_ms = int(float(rest[0]) * 1000) if rest else int(float(_claims(value).get("exp", 0)) * 1000)
    if expires_ms <= now_ms:
        raise AuthenticationError("its token has expired already, or has no expiry time")
    if expires_ms - now_ms > _YEAR_MS:
        raise AuthenticationError(
            "its token expires more than a year from now: give the expiry time in seconds since 1970"
        )
    extensions = rest[1] if len(rest) > 1 else {}
    return Token(value, expires_ms, dict(extensions))


def unsecured_tokens(subject: str, clock: Clock) -> Callable[[], Any]:
    """A callback that creates unsigned tokens for *subject*, which brokers accept only for development."""

    def make() -> tuple[str, float]:
        now_ms = clock.wall_ms()
        expires_ms = now_ms + _UNSECURED_LIFETIME_MS
        claims = {"sub": subject, "iat": now_ms / 1000, "exp": expires_ms / 1000}
        return f"{_encode({'alg': 'none'})}.{_encode(claims)}.", expires_ms / 1000

    return make


class OAuthBearerClient:
    """Authenticates with a token."""

    def __init__(self, token: Callable[[], Token]) -> None:
        self._token = token
        self._problem = ""
        self.complete = False

    def initial_response(self) -> bytes:
        token = self._token()
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
        self._problem = challenge[:1000].decode(errors="replace")
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
        found = _CLIENT_FIRST.fullmatch(response.decode(errors="replace"))
        if self._refused or found is None:
            what = '{"status":"invalid_token"}' if self._refused else "Invalid OAUTHBEARER client first message"
            raise AuthenticationError(what)
        try:
            claims = _claims(found["token"], unsecured=True)
            subject, expires_ms = str(claims["sub"]), int(float(claims["exp"]) * 1000)
        except (AuthenticationError, KeyError, TypeError, ValueError):
            subject, expires_ms = "", 0
        if not subject or expires_ms <= self._clock.wall_ms() or (found["authzid"] or subject) != subject:
            self._refused = True
            return b'{"status":"invalid_token"}'
        self.complete, self.user_name, self.expires_ms = True, subject, expires_ms
        return b""


def _encode(claims: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()


def _claims(token: str, *, unsecured: bool = False) -> dict[str, Any]:
    """The claims of a JWT, not verified; with *unsecured* the JWT must not have a signature."""
    parts = token.split(".")
    if len(parts) != 3:
        raise AuthenticationError("its token is not a JWT, so the callback must return the expiry time with it")
    try:
        header, claims = (json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2])
    except (binascii.Error, ValueError):
        raise AuthenticationError(
            "its token is not a JWT, so the callback must return the expiry time with it"
        ) from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise AuthenticationError("its token is not a JWT, so the callback must return the expiry time with it")
    if unsecured and (header.get("alg") != "none" or parts[2]):
        raise AuthenticationError("only unsecured tokens are accepted")
    return claims
