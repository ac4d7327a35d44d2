"""One request over HTTP: bounded in time and in size, to one server, without following redirects.

For schema registries and token endpoints. The calling thread waits for the answer. The standard library's client does
the parsing; this module adds a deadline for the whole exchange, because a socket's time-out begins anew with every
byte.
"""

from __future__ import annotations

import base64
import http.client
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafka_sink.common.clock import Clock
from kafka_sink.network.tls_context import TlsContexts

#: A schema has some kilobytes, and a token too.
MAX_ANSWER_BYTES: Final = 4 << 20


class ExchangeError(Exception):
    """The server could not be reached, or its answer is too large or too slow; the text says why."""


@dataclass(frozen=True)
class Server:
    """One address. *shown* is without user and password, and *credentials* are these, as ``user:password``."""

    shown: str
    scheme: str
    host: str
    port: int
    path: str
    credentials: str = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Server:
        """:raises ValueError: if there is no host, or no valid port."""
        parts = urlsplit(url)
        if not parts.hostname:
            raise ValueError("no host")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        credentials = "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        path = parts.path.rstrip("/")
        return cls(f"{parts.scheme}://{host}:{port}{path}", parts.scheme, parts.hostname, port, path, credentials)


@dataclass(frozen=True)
class HttpAnswer:
    """What a server said."""

    status: int
    body: bytes
    location: str = ""


def basic(credentials: str) -> str:
    """The header Authorization for ``user:password``."""
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


@dataclass(frozen=True)
class Exchange:
    """Makes requests with a limit of *timeout_ms* for each, and of *connect_timeout_ms*, if it is given, for the
    connection."""

    tls: TlsContexts | None
    timeout_ms: int
    clock: Clock
    connect_timeout_ms: int | None = None

    def run(self, server: Server, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        """:raises ExchangeError: if there is no whole answer in time."""
        deadline_ms = self.clock.monotonic_ms() + self.timeout_ms
        connection = self._connection(server)

        def response(sock: Any, *arguments: Any, **named: Any) -> http.client.HTTPResponse:
            return http.client.HTTPResponse(_TimedSocket(sock, deadline_ms, self.clock), *arguments, **named)  # type: ignore[arg-type]

        connection.response_class = response  # type: ignore[assignment]
        try:
            connection.request(method, f"{server.path}{path}", body, dict(headers))
            answer = connection.getresponse()
            data = answer.read(MAX_ANSWER_BYTES + 1)
            if len(data) > MAX_ANSWER_BYTES:
                raise ExchangeError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
            return HttpAnswer(answer.status, data, answer.headers.get("Location", ""))
        except TimeoutError:
            limits = sorted({self.connect_timeout_ms or self.timeout_ms, self.timeout_ms})
            raise ExchangeError(f"no answer within {' + '.join(map(str, limits))} ms") from None
        except OSError as error:
            raise ExchangeError(error.strerror or str(error)) from None
        except http.client.HTTPException as error:
            raise ExchangeError(f"the answer is no HTTP ({type(error).__name__})") from None
        finally:
            connection.close()

    def _connection(self, server: Server) -> http.client.HTTPConnection:
        timeout_s = (self.connect_timeout_ms or self.timeout_ms) / 1000
        if server.scheme == "http":
            return http.client.HTTPConnection(server.host, server.port, timeout=timeout_s)
        context = None if self.tls is None else self.tls.current()
        return http.client.HTTPSConnection(server.host, server.port, timeout=timeout_s, context=context)


class _TimedSocket:
    """What a response needs of a socket."""

    def __init__(self, sock: Any, deadline_ms: int, clock: Clock) -> None:
        self._reader = _TimedReader(sock, deadline_ms, clock)

    def makefile(self, mode: str) -> io.BufferedReader:
        """The answer's bytes until the deadline."""
        return io.BufferedReader(self._reader)


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: Any, deadline_ms: int, clock: Clock) -> None:
        self._sock, self._deadline_ms, self._clock = sock, deadline_ms, clock
        # It keeps the socket open while the answer is read: the connection lets go of it before.
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        """:raises TimeoutError: after the deadline."""
        left_ms = self._deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError
        self._sock.settimeout(left_ms / 1000)
        count: int = self._raw.readinto(target)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
