"""OAUTHBEARER: bearer tokens, their claims and the times of their renewal, and the authentication with them.

Tokens are plain values, for any thread; the exchange runs on a selector's thread, which may fetch the first token
(``http.oauth``). Claims are not verified here: brokers verify them. Tokens never appear in a text.

Source: RFC 6750, RFC 7519, RFC 7628, KIP-255, KIP-342, KIP-768; apache/kafka ``ExpiringCredentialRefreshingLogin``,
``OAuthBearerSaslServer`` and its unsecured tokens for development.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_sink.common.bounded import json_number, parsed_json
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import AuthenticationError
from kafka_sink.common.repeated_secrets import RepeatedSecrets
from kafka_sink.network.sasl.mechanism import NO_EXPIRY

_YEAR_MS: Final = 366 * 24 * 3600 * 1000
_UNSECURED_LIFETIME_MS: Final = 3600 * 1000


@dataclass(frozen=True)
class Token:
    """A bearer token, the time from which it is valid, and its expiry, both in ms since 1970."""

    value: str = field(repr=False)
    expires_ms: int
    extensions: Mapping[str, str] = field(default_factory=dict)
    starts_ms: int | None = None


def token_of(answer: Any, now_ms: int) -> Token:
    """The token in *answer*: a JWT, or a tuple of any token and its expiry in seconds since 1970. A third element may
    contain SASL extensions (KIP-342), which Confluent Cloud needs.

    :raises AuthenticationError: if it is not a valid token; the text completes "no token: ".
    """
    value, *rest = answer if isinstance(answer, tuple | list) else (answer,)
    if not isinstance(value, str) or not value:
        raise AuthenticationError(
            "it must return the token as text, or a tuple of the token and its expiry time in seconds since 1970"
        )
    if not value.isascii() or not value.isprintable() or " " in value:
        raise AuthenticationError("its token has characters that a token cannot have")
    if not rest:
        return _token_of_claims(value, claims_of(value), now_ms)
    expires_ms = milliseconds(rest[0])
    if expires_ms - now_ms > _YEAR_MS:
        raise AuthenticationError(
            "its token expires more than a year from now: give the expiry time in seconds since 1970"
        )
    return Token(value, _after(expires_ms, now_ms), dict(rest[1]) if len(rest) > 1 else {})


def _token_of_claims(value: str, claims: Mapping[str, Any], now_ms: int) -> Token:
    """The JWT *value*; its times are whole seconds, as in Java."""
    exp, iat = claims.get("exp"), claims.get("iat")
    if exp is None:
        raise AuthenticationError("its token is a JWT without an expiry time (exp), which Java's clients refuse, too")
    starts_ms = None if iat is None else min(milliseconds(number(iat) // 1), now_ms)
    return Token(value, _after(milliseconds(number(exp) // 1), now_ms), {}, starts_ms)


def _after(expires_ms: int, now_ms: int) -> int:
    if expires_ms <= now_ms:
        raise AuthenticationError("its token has expired already; check this machine's clock")
    return expires_ms


def is_jwt(token: str) -> bool:
    """Whether *token* has the parts of a JWT; an opaque token may contain dots, too."""
    try:
        claims_of(token)
    except AuthenticationError:
        return False
    return True


def claims_of(token: str, *, unsecured: bool = False) -> dict[str, Any]:
    """The claims of a JWT, not verified; with *unsecured* the JWT must not have a signature.

    :raises AuthenticationError: if it is not a JWT.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise AuthenticationError(_NOT_A_JWT)
    # Java's clients do not read the header either.
    claims = _part(parts[1])
    if unsecured and (_part(parts[0]).get("alg") != "none" or parts[2]):
        raise AuthenticationError("only unsecured tokens are accepted")
    return claims


def _part(encoded: str) -> dict[str, Any]:
    try:
        decoded = parsed_json(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except ValueError:
        raise AuthenticationError(_NOT_A_JWT) from None
    if not isinstance(decoded, dict):
        raise AuthenticationError(_NOT_A_JWT)
    return decoded


def unsecured_tokens(subject: str, clock: Clock) -> Callable[[], Any]:
    """A callback that creates unsigned tokens for *subject*, which brokers accept only for development."""

    def make() -> tuple[str, float]:
        now_ms = clock.wall_ms()
        expires_ms = now_ms + _UNSECURED_LIFETIME_MS
        claims = {"sub": subject, "iat": now_ms / 1000, "exp": expires_ms / 1000}
        return f"{encoded({'alg': 'none'})}.{encoded(claims)}.", expires_ms / 1000

    return make


def encoded(part: Mapping[str, Any]) -> str:
    """A header or claims as a part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


_NOT_A_JWT: Final = "its token is not a JWT, so the expiry time must be given with it"


_NO_TIMES: Final = "the times of its token are not numbers of seconds since 1970"


def number(claim: Any) -> float:
    """:raises AuthenticationError: if *claim*, a time of a token, is not a number."""
    if not isinstance(claim, int | float) or isinstance(claim, bool):
        raise AuthenticationError(_NO_TIMES)
    return claim


def milliseconds(seconds: Any) -> int:
    """:raises AuthenticationError: if *seconds* since 1970 are not a number, or exceed 64 bits in ms."""
    try:
        return json_number(float(seconds) * 1000)
    except (TypeError, ValueError, OverflowError):
        raise AuthenticationError(_NO_TIMES) from None


#: Algorithms that sign assertions.
RS256: Final = "RS256"
ES256: Final = "ES256"


@dataclass(frozen=True)
class EndpointLimits:
    """Time-outs and backoffs of requests to an endpoint, ms."""

    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


@dataclass(frozen=True)
class RefreshRules:
    """Rules for the time at which a token is renewed (``sasl.login.refresh.*``)."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300

    def refresh_at_ms(self, token: Token, now_ms: int, draw: float) -> int:
        """The time at which to renew *token*, fetched at *now_ms* (wall clock, ms); *draw* is random, from 0 to 1."""
        share = self.window_factor + self.window_jitter * draw
        starts_ms = now_ms if token.starts_ms is None else token.starts_ms
        if now_ms + 1000 * (self.min_period_s + self.buffer_s) > token.expires_ms:
            return now_ms + int((token.expires_ms - now_ms) * share)
        proposed_ms = starts_ms + int((token.expires_ms - starts_ms) * share)
        latest_ms = token.expires_ms - self.buffer_s * 1000
        if proposed_ms > latest_ms:
            return latest_ms
        return max(proposed_ms, now_ms + self.min_period_s * 1000)


_SEPARATOR: Final = "\1"
_PAIR: Final = "[A-Za-z]+=[^\1]*\1"
_CLIENT_FIRST: Final = re.compile(
    f"n,(?:a=(?P<authzid>(?:[^,=\1]|=2C|=3D)+))?,\1(?:(?!auth=){_PAIR})*"
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
