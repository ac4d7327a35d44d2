"""One request over HTTP: bounded in time and in size, to one server, without following redirects.

For schema registries and token endpoints. The calling thread waits for the response. The standard library's client
parses it; this module adds a deadline for the whole exchange, because a socket's time-out starts again with every
byte.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import ipaddress
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafka_sink.common.clock import Clock, end_of
from kafka_sink.common.repeated_secrets import RepeatedSecrets
from kafka_sink.common.text import printable
from kafka_sink.trust.tls_context import TlsContexts

#: Schemas and tokens have a few kilobytes.
MAX_ANSWER_BYTES: Final = 4 << 20
#: Bytes besides the body: the status line, the headers, and the framing of chunks.
_MOST_HEAD_BYTES: Final = 1 << 18


class ExchangeError(Exception):
    """The request failed: no connection, or a response that is too large, too slow or invalid; the text gives the
    cause. *is_answered*: the server has sent a response."""

    def __init__(self, reason: str, *, is_answered: bool = False) -> None:
        super().__init__(reason)
        self.is_answered = is_answered


@dataclass(frozen=True)
class Server:
    """The address of a server. *shown* omits user and password; *credentials* has them, as ``user:password``."""

    shown: str
    scheme: str
    host: str
    port: int
    path: str
    credentials: str = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Server:
        """:raises ValueError: if there is no valid host or port, or if an ``@`` follows the host, as if the user or the
        password is not URL-encoded."""
        parts = urlsplit(url)
        if not parts.hostname or "@" in parts.path + parts.query + parts.fragment:
            raise ValueError("no host")
        parts.hostname.encode("idna")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        credentials = "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        path = parts.path.rstrip("/")
        return cls(f"{parts.scheme}://{host}:{port}{path}", parts.scheme, parts.hostname, port, path, credentials)


def is_loopback(host: str) -> bool:
    """Whether *host*, a name or an address, is this machine."""
    try:
        return host.removesuffix(".") == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class HttpAnswer:
    """The response of a server, which was sent *credentials* in the header Authorization, and *secrets* in the body."""

    status: int
    body: bytes
    location: str = ""
    credentials: str = field(default="", repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def shown(self, text: str) -> str:
        """*text* of the server in one line, with the secrets that it repeats redacted."""
        return printable(self._sent.hidden_in(text))

    def repeats_secret(self, text: str) -> bool:
        """Whether *text* of the server contains one of the secrets; those too short to be unique do not count."""
        return self._sent.are_in(text)

    @cached_property
    def _sent(self) -> RepeatedSecrets:
        secrets = {self.credentials, *self.secrets}
        with contextlib.suppress(ValueError):
            secrets.add(base64.b64decode(self.credentials, validate=True).decode().partition(":")[2])
        return RepeatedSecrets(secrets)


def basic(credentials: str) -> str:
    """The value of the header Authorization for ``user:password``."""
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


@dataclass(frozen=True)
class Exchange:
    """Sends requests, each of which takes at most *timeout_ms*; a *connect_timeout_ms* limits the connect and is added
    to that limit."""

    tls: TlsContexts | None
    timeout_ms: int
    clock: Clock
    connect_timeout_ms: int | None = None

    def run(
        self,
        server: Server,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        secrets: Sequence[str] = (),
    ) -> HttpAnswer:
        """Send a request; *secrets* are those in *body*. :raises ExchangeError: without a complete response in time."""
        deadline_ms = end_of((self.connect_timeout_ms or 0) + self.timeout_ms, self.clock)
        limit_ms = deadline_ms - self.clock.monotonic_ms()
        connection = self._connection(server, deadline_ms)

        def response(sock: Any, *arguments: Any, **named: Any) -> http.client.HTTPResponse:
            return http.client.HTTPResponse(_TimedSocket(sock, deadline_ms, self.clock), *arguments, **named)  # type: ignore[arg-type]

        connection.response_class = response  # type: ignore[assignment]
        try:
            connection.request(method, f"{server.path}{path}", body, dict(headers))
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES + 1)
            if len(data) > MAX_ANSWER_BYTES:
                raise _too_large()
            if answer.length:
                raise http.client.IncompleteRead(data)
            location = answer.headers.get("Location", "")
            credentials = headers.get("Authorization", "").partition(" ")[2]
            return HttpAnswer(answer.status, data, location, credentials, tuple(secrets))
        except TimeoutError:
            raise ExchangeError(f"no answer within {limit_ms} ms") from None
        except OSError as error:
            raise ExchangeError(error.strerror or str(error)) from None
        except (http.client.HTTPException, ValueError, OverflowError) as error:
            # The library does not validate the sizes of chunks.
            raise ExchangeError(f"the answer is not valid HTTP ({type(error).__name__})", is_answered=True) from None
        finally:
            connection.close()

    def _connection(self, server: Server, deadline_ms: int) -> http.client.HTTPConnection:
        def left_s() -> float:
            left_ms = deadline_ms - self.clock.monotonic_ms()
            if left_ms <= 0:
                raise TimeoutError
            return left_ms / 1000

        context = None
        if server.scheme != "http":
            context = ssl.create_default_context() if self.tls is None else self.tls.current()
        most_s = (self.connect_timeout_ms or self.timeout_ms) / 1000
        return _Connection(server, context, lambda: min(most_s, left_s()), left_s)


class _Connection(http.client.HTTPConnection):
    """Uses TLS if there is a *context*. In DNS, a dot at the end of a host name marks it as absolute; names in
    certificates have none."""

    def __init__(
        self,
        server: Server,
        context: ssl.SSLContext | None,
        connect_s: Callable[[], float],
        left_s: Callable[[], float],
    ) -> None:
        super().__init__(server.host, server.port)
        self.default_port = http.client.HTTP_PORT if context is None else http.client.HTTPS_PORT
        self._tls, self._connect_s, self._left_s = context, connect_s, left_s

    def connect(self) -> None:
        self.timeout = self._connect_s()
        super().connect()
        # The handshake and the request share the remaining time.
        self.sock.settimeout(self._left_s())
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host.removesuffix("."))
            self.sock.settimeout(self._left_s())


def _too_large() -> ExchangeError:
    return ExchangeError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes", is_answered=True)


class _TimedSocket:
    """The methods of a socket that a response calls."""

    def __init__(self, sock: Any, deadline_ms: int, clock: Clock) -> None:
        self._reader = _TimedReader(sock, deadline_ms, clock)

    def makefile(self, mode: str) -> io.BufferedReader:
        """A reader of the response, which enforces the deadline."""
        return io.BufferedReader(self._reader)


class _TimedReader(io.RawIOBase):
    """Limits time and bytes, because HTTP has several ways to send a response without an end."""

    def __init__(self, sock: Any, deadline_ms: int, clock: Clock) -> None:
        self._sock, self._deadline_ms, self._clock = sock, deadline_ms, clock
        # Keeps the socket open while the response is read: the connection closes its own reference earlier.
        self._raw = sock.makefile("rb", buffering=0)
        self._left = MAX_ANSWER_BYTES + _MOST_HEAD_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        """
        :raises TimeoutError: after the deadline.
        :raises ExchangeError: if the response is too large."""
        left_ms = self._deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError
        self._sock.settimeout(left_ms / 1000)
        count: int = self._raw.readinto(target)
        self._left -= count
        if self._left < 0:
            raise _too_large()
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
