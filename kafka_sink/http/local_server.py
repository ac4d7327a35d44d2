"""A small HTTP server for programs of this machine: bounded in connections, in memory, and in the time of a request.
One of them serves metrics at an address that Prometheus scrapes.

Each connection has a thread, for one request. If there are too many, a new connection replaces the oldest one with an
incomplete request, so that idle connections displace each other first. Programs of this machine, or of hosts that reach
its address, are served, but no browser pages of another origin: such a page can make a browser send requests to a port
of this machine, even under a host name of its own that resolves to this machine (DNS rebinding). Only the handlers
interpret requests.

Source: https://prometheus.io/docs/specs/om/open_metrics_spec, https://fetch.spec.whatwg.org (Origin), https://datatracker.ietf.org/doc/html/rfc9110#name-host-and-authority.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Final, TypeVar

from kafka_sink.common.clock import FOREVER_MS, SYSTEM_CLOCK
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.exposition import rendered
from kafka_sink.common.files import is_reserved, most_local_connections
from kafka_sink.common.log_context import Said
from kafka_sink.common.metrics import Metric
from kafka_sink.common.threads import Thread, start_loop
from kafka_sink.network.transport.listener import listening_socket, local_address

#: The names by which clients reach this machine; the port may be that of a tunnel.
_HERE: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
#: A client that sends nothing, or does not read its response, for this time is disconnected.
_IDLE_S: Final = 5.0
_POLL_S: Final = 0.05
#: The time-out for a complete request, however slowly its client sends it.
REQUEST_MS: Final = 10_000
#: The first line and the headers of a request together.
_MOST_HEAD_BYTES: Final = 1 << 17
#: Pause after accept() fails: the connection stays pending, so accept() would be retried at once.
_REFUSED_PAUSE_MS: Final = 100
#: Pending connections; with a short queue, a flood of connections would delay a client's connect by a second.
_BACKLOG: Final = 256
#: The headers of every response that does not set its own, including errors before a handler is called: a browser
#: shows such a response as inert text.
POLICY: Final = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
)
#: socket.SHUT_RDWR, without an import of the socket module.
_BOTH_WAYS: Final = 2
T = TypeVar("T", bound="LocalServer")
_log = logging.getLogger(__name__)


def refusal_of(host: str, origin: str | None, served: str = "127.0.0.1", *, has_any_name: bool = False) -> str | None:
    """The reason to refuse a request with these headers Host and Origin; None if it is accepted.

    :param served: the address that the server listens on: beyond loopback, clients may use any numeric address.
    :param has_any_name: beyond loopback, clients may use any host name, as Prometheus does: for servers of data only.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    is_known = name in _HERE or (served not in _HERE and (has_any_name or _is_address(name)))
    if not is_known:
        return "This server answers to 127.0.0.1 and localhost only."
    if origin is not None and origin != f"http://{host}":
        return "This server answers to itself only, and not to other origins."
    return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class LocalServer(ThreadingHTTPServer):
    """Passes requests to *handler*, from :meth:`start` or the beginning of a ``with`` statement to :meth:`close`.

    :param address: host and port; port 0 = any free one, see :attr:`url`.
    :raises OSError: if the port is in use.
    """

    daemon_threads = True
    #: The name of its thread.
    name = "local-server"

    def __init__(self, address: tuple[str, int], handler: type[LocalHandler]) -> None:
        super().__init__(address, handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening_socket(*address, backlog=_BACKLOG)
        self.host = address[0]
        self.port = local_address(self.socket).port
        self._told = Said()
        self._thread: Thread | None = None
        self._lock = threading.Condition()
        # Guarded by the lock: connection → its deadline, monotonic ms; and those whose request is not yet complete, the
        # oldest first.
        self._open: dict[Any, int] = {}
        self._incomplete: dict[Any, None] = {}

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Begin to answer requests; a second call does nothing."""
        if self._thread is None:
            self._thread = start_loop(self.name, self)

    def close(self) -> None:
        """Stop accepting connections; requests in progress are still answered, unless the process ends first."""
        if self._thread is not None:
            self.shutdown()
            self._thread.join()
            self._thread = None
        self.server_close()

    def __enter__(self: T) -> T:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. :raises OSError: if that fails, which is logged once."""
        try:
            return super().get_request()
        except OSError as error:
            self._tell_once(f"cannot accept connections: {error}; they wait until that is possible")
            with self._lock:
                SYSTEM_CLOCK.wait(self._lock, _REFUSED_PAUSE_MS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for *request*; close the connection if there are too many connections or open files."""
        if self._admits(request):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def _admits(self, request: Any) -> bool:
        if is_reserved(request.fileno()):
            self._tell_once(
                "rejecting connections: almost all files that this process may open are in use; raise the limit "
                "(ulimit -n)"
            )
            return False
        with self._lock:
            if len(self._open) >= most_local_connections():
                oldest = next(iter(self._incomplete), None)
                if oldest is None:
                    return False
                self._end(oldest)
            self._open[request] = SYSTEM_CLOCK.monotonic_ms() + REQUEST_MS
            self._incomplete[request] = None
        return True

    def _end(self, request: Any) -> None:
        self._forget(request)
        with contextlib.suppress(OSError):
            request.shutdown(_BOTH_WAYS)

    def _forget(self, request: Any) -> None:
        self._open.pop(request, None)
        self._incomplete.pop(request, None)

    def is_complete(self, request: Any) -> None:
        """Called when all of *request* was read: there is no limit on the time of its response."""
        with self._lock:
            if request in self._incomplete:
                del self._incomplete[request]
                self._open[request] = FOREVER_MS

    def shutdown_request(self, request: Any) -> None:
        """Called when *request* was answered."""
        with self._lock:
            self._forget(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called several times a second: close the connections whose request has exceeded its time-out."""
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        with self._lock:
            for request in [connection for connection, end_ms in self._open.items() if now_ms >= end_ms]:
                self._end(request)

    def run(self) -> None:
        """Answer requests until the server is shut down."""
        self.serve_forever(_POLL_S)

    def end_with_program(self) -> None:
        """Called at the interpreter's exit."""
        self.shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that disconnects during a request is not an error of the server.
        _log.debug("a request failed", exc_info=True)

    def _tell_once(self, text: str) -> None:
        if self._told.is_new(text):
            _log.warning("%s: %s", self.url, text)


class LocalHandler(BaseHTTPRequestHandler):
    """Answers one request; the methods of subclasses begin with :meth:`is_refused`."""

    timeout = _IDLE_S
    #: The version of a request with an invalid first line: with the default, HTTP/0.9, the response has no headers.
    default_request_version = "HTTP/1.0"
    policy: Mapping[str, str] = POLICY
    #: Whether clients may use any host name if the server listens beyond loopback: for handlers that change nothing.
    has_any_name = False

    def setup(self) -> None:
        """Called before the request is read."""
        super().setup()
        self.rfile = _Bounded(self.rfile)  # type: ignore[assignment]

    def parse_request(self) -> bool:
        """Called when the first line was read; reads the headers."""
        is_valid = super().parse_request()
        if is_valid and self.headers.get("Content-Length", "0") == "0":
            self.server_as(LocalServer).is_complete(self.connection)
        return is_valid

    def read_body(self, most_bytes: int) -> bytes | None:
        """The request's body; None if it is too large or of an unknown size, after the error was sent."""
        size = self.headers.get("Content-Length", "0")
        if not (size.isascii() and size.isdecimal()) or len(size) > len(str(most_bytes)) or int(size) > most_bytes:
            self.send_error(413)
            return None
        body = self.rfile.read(int(size))
        self.server_as(LocalServer).is_complete(self.connection)
        return body

    def server_as(self, kind: type[T]) -> T:
        server = self.server
        if not isinstance(server, kind):
            raise RuntimeError("the handler belongs to another server")
        return server

    def is_refused(self) -> bool:
        """Whether Host or Origin is not accepted; if so, the error was sent."""
        refusal = refusal_of(
            self.headers.get("Host", ""),
            self.headers.get("Origin"),
            self.server_as(LocalServer).host,
            has_any_name=self.has_any_name,
        )
        if refusal is not None:
            self.send_error(403, refusal)
        return refusal is not None

    def send_body(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Called when all other headers were sent."""
        for name, value in self.policy.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)


class _Bounded:
    """Reads a request; all its lines together have a limit."""

    def __init__(self, file: Any) -> None:
        self.read, self.close = file.read, file.close
        self._readline, self._left = file.readline, _MOST_HEAD_BYTES

    def readline(self, size: int) -> bytes:
        line: bytes = self._readline(size)
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("header line")
        return line


PATH: Final = "/metrics"


class _MetricsHandler(LocalHandler):
    has_any_name = True

    def do_GET(self) -> None:
        if self.is_refused():
            return
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"the metrics are at {PATH}")
            return
        try:
            metrics = self.server_as(MetricsServer).collect()
            text, content_type = rendered(metrics, self.headers.get("Accept", ""))
        except (OSError, ValueError) as error:
            self.send_body(503, "text/plain; charset=utf-8", f"{error}\n".encode())
        else:
            self.send_body(200, content_type, text.encode())


class MetricsServer(LocalServer):
    """Serves what *collect* returns at :attr:`url`, until :meth:`close`, in the format that the scraper accepts.

    :param port: 0 = any free port.
    :raises ConfigError: if the port is in use.
    """

    name = "metrics-server"

    def __init__(self, host: str, port: int, collect: Callable[[], Iterable[Metric]]) -> None:
        try:
            super().__init__((host, port), _MetricsHandler)
        except OSError as error:
            raise ConfigError(
                f"the metrics cannot be served: {error.strerror or error}; choose another port, or 0"
            ) from None
        self.collect = collect
        self.start()

    @property
    def url(self) -> str:
        return super().url + PATH
