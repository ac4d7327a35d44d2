"""Fetches tokens from the token endpoint of an identity provider, with the grants ``client_credentials`` and
``jwt-bearer``.

The thread that needs a token calls it and waits: each attempt has its time-outs, and no attempt begins later than
``sasl.login.retry.backoff.max.ms`` after the first. Redirects are not followed. No text shows secrets or tokens.

Source: RFC 6749, 4.4; RFC 7523; KIP-768, KIP-1139, KIP-1258; apache/kafka ``HttpJwtRetriever``,
``ClientSecretRequestFormatter``, ``JwtBearerRequestFormatter``, ``Retry``.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote_plus, unquote, urlsplit

from kafka_sink.common.bounded import parsed_json
from kafka_sink.common.clock import Clock, end_of, pause
from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.http.exchange import Exchange, ExchangeError, HttpAnswer, Server, is_loopback
from kafka_sink.network.sasl.bearer_token import ES256, RS256, EndpointLimits, Token, encoded, is_jwt, token_of
from kafka_sink.trust.pem import rebuilt
from kafka_sink.trust.tls_context import TlsContexts

#: The bytes of each of the two numbers of a signature with ES256 (RFC 7518, 3.4).
_ES256_BYTES: Final = 32


@dataclass(frozen=True)
class Assertion:
    """The source of assertions: *file* contains one, or *key_file* contains the private key (PEM) that signs new ones.

    *prefix* is the prefix of option names in errors.
    """

    file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    algorithm: str = RS256
    issuer: str = ""
    subject: str = ""
    audience: str = ""
    lifetime_s: int = 300
    not_before_s: int = 60
    has_id: bool = False
    prefix: str = ""

    def text(self, now_ms: int) -> str:
        """The assertion in the file, or a new one that is valid at *now_ms* (wall clock).

        :raises ConfigError: if a file cannot be read, or its content is not as expected; the text names the option.
        """
        if self.file:
            return self._read(self.file, "file").strip()
        now_s = now_ms // 1000
        claims: dict[str, Any] = {"iss": self.issuer, "sub": self.subject, "aud": self.audience, "iat": now_s}
        claims |= {"exp": now_s + self.lifetime_s, "nbf": now_s - self.not_before_s}
        if self.has_id:
            claims["jti"] = str(uuid.uuid4())
        content = f"{encoded({'alg': self.algorithm, 'typ': 'JWT'})}.{encoded(claims)}"
        return f"{content}.{base64.urlsafe_b64encode(self._signature(content.encode())).rstrip(b'=').decode()}"

    def _read(self, path: str, name: str) -> str:
        try:
            return Path(path).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError.of(
                f"{self.prefix}sasl.oauthbearer.assertion.{name}",
                f": {path} cannot be read: {why}; put it on every machine that connects",
            ) from None

    def _signature(self, content: bytes) -> bytes:
        option = f"{self.prefix}sasl.oauthbearer.assertion.private.key"
        try:
            from cryptography.hazmat.primitives import hashes
            from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise ConfigError.of(
                f"{option}.file", ": signing needs the package cryptography; pip install 'kafkalite[keystores]'"
            ) from None
        pem = self._read(self.key_file, "private.key.file")
        try:
            key = load_pem_private_key(rebuilt(pem).encode(), self.key_password.encode() or None)
        except (ValueError, TypeError):
            raise ConfigError.of(
                f"{option}.file",
                f": {self.key_file} is not a private key in PEM, or {option}.passphrase is not its "
                "password; check both",
            ) from None
        if self.algorithm == RS256 and isinstance(key, rsa.RSAPrivateKey):
            return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
        if self.algorithm == ES256 and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
            numbers = utils.decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
            return b"".join(number.to_bytes(_ES256_BYTES, "big") for number in numbers)
        raise ConfigError.of(
            f"{option}.file",
            f": the key in {self.key_file} is not for "
            f"{self.prefix}sasl.oauthbearer.assertion.algorithm={self.algorithm}; RS256 takes RSA, ES256 takes P-256",
        )


_BEARER_GRANT: Final = quote_plus("urn:ietf:params:oauth:grant-type:jwt-bearer")
_ASSERTION_TYPE: Final = quote_plus("urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
#: The maximum number of characters of a refusal in an error.
_SHOWN: Final = 500
_YEAR_S: Final = 365 * 24 * 3600
_MAX_TOKEN_FILE_BYTES: Final = 1 << 20
#: HTTP codes that are not retriable (apache/kafka ``HttpJwtRetriever.UNRETRYABLE_HTTP_CODES``).
_FINAL: Final = frozenset({*range(300, 408), *range(409, 416), 501, 505})


@dataclass(frozen=True)
class ClientCredentials:
    """The client, and the scope of its token. An *assertion* takes precedence over a secret, as in Kafka: it
    authenticates the client (RFC 7523, 2.2), or with *is_bearer* it is exchanged for the token (2.1), without an id."""

    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    assertion: Assertion | None = None
    is_bearer: bool = False
    header_urlencode: bool = False

    def request(self, now_ms: int) -> tuple[dict[str, str], str]:
        """Headers and body of the request for a token. :raises ConfigError: if an assertion cannot be created."""
        headers = {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
            "Connection": "close",
        }
        if self.assertion is not None:
            body = self._asserted(quote_plus(self.assertion.text(now_ms)))
        else:
            pair = (self.client_id, self.client_secret)
            plain = ":".join(map(quote_plus, pair) if self.header_urlencode else pair)
            headers["Authorization"] = f"Basic {base64.b64encode(plain.encode()).decode()}"
            body = "grant_type=client_credentials"
        return headers, body + (f"&scope={quote_plus(self.scope)}" if self.scope else "")

    def _asserted(self, assertion: str) -> str:
        if self.is_bearer:
            return f"grant_type={_BEARER_GRANT}&assertion={assertion}"
        client = f"&client_id={quote_plus(self.client_id)}" if self.client_id else ""
        proof = f"client_assertion_type={_ASSERTION_TYPE}&client_assertion={assertion}"
        return f"{proof}&grant_type=client_credentials{client}"


class TokenEndpoint:
    """The endpoint at *url*, the value of *option*; *tls* has the options that verify its certificate.

    :raises ConfigError: if the address is not valid, or is http and not on this machine.
    """

    def __init__(self, option: str, url: str, tls: SslConfig, limits: EndpointLimits, clock: Clock) -> None:
        self._option = option
        self._parts = _checked(option, url)
        self._tls = tls
        self._limits = limits
        self._clock = clock

    @property
    def is_file(self) -> bool:
        """Whether the address is that of a file with a token, which needs no credentials."""
        return self._parts.scheme == "file"

    def fetch(self, credentials: ClientCredentials) -> Token:
        """A token for *credentials*. Network failures, and responses with a retriable error, are retried until
        ``sasl.login.retry.backoff.max.ms`` have passed.

        :raises AuthenticationError: if there is none; the text contains the endpoint's reason, and no secret.
        :raises ConfigError: if a file with certificates, a key or the token cannot be read.
        """
        if self.is_file:
            return self._token(self._read_file(), {}, credentials)
        contexts = TlsContexts(self._tls, server=False, prefix="") if self._parts.scheme == "https" else None
        exchange = Exchange(contexts, self._limits.read_timeout_ms, self._clock, self._limits.connect_timeout_ms)
        deadline_ms = end_of(self._limits.retry_backoff_max_ms, self._clock)
        attempt = 0
        while True:
            try:
                return self._ask(exchange, credentials)
            except _TemporaryError as error:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise AuthenticationError(
                        f"no OAUTHBEARER token: {self._shown} cannot be used ({error}); check {self._option}, the "
                        "identity provider, and the way to it"
                    ) from None
                pause(self._clock, max(min(self._limits.retry_backoff_ms << min(attempt, 32), left_ms), 1))
                attempt += 1

    @property
    def _shown(self) -> str:
        return f"{self._parts.scheme}://{self._parts.netloc}{self._parts.path}"

    def _ask(self, exchange: Exchange, credentials: ClientCredentials) -> Token:
        headers, body = credentials.request(self._clock.wall_ms())
        parts = self._parts
        port = parts.port or (443 if parts.scheme == "https" else 80)
        server = Server(self._shown, parts.scheme, parts.hostname or "", port, "", "")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        proofs = [value for name, value in parse_qsl(body) if name in ("assertion", "client_assertion")]
        secrets = (credentials.client_secret, *proofs)
        try:
            answer = exchange.run(server, "POST", path, headers, body.encode(), secrets)
        except ExchangeError as error:
            raise _TemporaryError(str(error)) from None
        fields = _json(answer.body)
        if answer.status in (200, 201):
            return self._token(fields.get("access_token") or fields.get("id_token"), fields, credentials)
        reason = _refusal(answer, fields)
        if answer.status not in _FINAL:
            raise _TemporaryError(reason)
        proof = "the client's id and secret" if credentials.assertion is None else "sasl.oauthbearer.assertion.…"
        what = f"check {proof if answer.status in (400, 401, 403) else self._option}"
        raise AuthenticationError(f"no OAUTHBEARER token: {self._shown} refuses the request ({reason}); {what}")

    def _token(self, value: Any, answer: Mapping[str, Any], credentials: ClientCredentials) -> Token:
        now_ms = self._clock.wall_ms()
        if not isinstance(value, str) or not value:
            raise AuthenticationError(
                f"no OAUTHBEARER token: the answer of {self._shown} has no access_token; check {self._option}"
            )
        seconds = _seconds(answer.get("expires_in"))
        try:
            token = token_of(value if seconds is None or is_jwt(value) else (value, now_ms / 1000 + seconds), now_ms)
        except AuthenticationError as error:
            raise AuthenticationError(f"no OAUTHBEARER token: {self._shown}: {error}") from None
        return Token(token.value, token.expires_ms, credentials.extensions, token.starts_ms)

    def _read_file(self) -> str:
        path = unquote(self._parts.path)
        try:
            with Path(path).open(encoding="ascii") as file:
                return file.read(_MAX_TOKEN_FILE_BYTES).strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError.of(
                self._option, f": {path} cannot be read: {why}; put the token on every machine that connects"
            ) from None


class _TemporaryError(Exception):
    """A retriable failure; the text is its cause."""


def _checked(option: str, url: str) -> SplitResult:
    expected = "expected https://host/path of the token endpoint"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        if host:
            host.encode("idna")
    except ValueError:
        raise ConfigError.of(option, f": the value is not an address; {expected}") from None
    if parts.username is not None:
        raise ConfigError.of(option, f": the address must not contain a user name or a password; {expected}")
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return parts
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError.of(option, f": the value is not an address; {expected}")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError.of(
            option,
            f": http://{host} would send the client's secret unencrypted; use https:// (http:// is for "
            "this machine only)",
        )
    return parts


def _json(body: bytes) -> dict[str, Any]:
    try:
        document = parsed_json(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(lifetime: Any) -> float | None:
    """The lifetime of a token in seconds, which some providers send as text; at most a year, within which it is
    renewed. None if it is not a valid number."""
    try:
        seconds = None if isinstance(lifetime, bool) else float(lifetime)
    except (TypeError, ValueError, OverflowError):
        return None
    return min(seconds, _YEAR_S) if seconds is not None and seconds >= 0 else None


def _refusal(answer: HttpAnswer, fields: Mapping[str, Any]) -> str:
    """The reason that the endpoint gives for its refusal (RFC 6749, 5.2, and the names of some providers)."""
    if answer.status in (301, 302, 303, 307, 308):
        return f"HTTP {answer.status}: it redirects to another address, which is not followed"
    named = [fields.get(name) for name in ("error", "error_description", "errorCode", "errorSummary")]
    text = answer.shown(": ".join(part for part in named if isinstance(part, str)))[:_SHOWN]
    return f"HTTP {answer.status}: {text}" if text else f"HTTP {answer.status}"
