"""A small HTTP server for programs of this machine: bounded in connections and in the time of a request.

Each connection has a thread, for one request and a few seconds. Only programs of this machine, or of those that reach
its address, are answered, and no pages of a browser of other origins. It must not interpret requests; its handlers do.
"""

from __future__ import annotations

import contextlib
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.network.local_pages import refusal_of

#: A client that sends nothing for so long is left.
_IDLE_S: Final = 5.0
_POLL_S: Final = 0.05
#: A request is complete within this time, however slowly its client sends it.
_REQUEST_MS: Final = 10_000
_MOST_CONNECTIONS: Final = 200
#: SHUT_RDWR: a connection is only ended here.
_BOTH_WAYS: Final = 2

_log = logging.getLogger(__name__)


class LocalServer(ThreadingHTTPServer):
    """Gives requests to *handler* until it is shut down.

    :raises OSError: if the port is in use.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[LocalHandler]) -> None:
        super().__init__(address, handler)
        self.host = address[0]
        # Connection → when it is ended, monotonic ms.
        self._open: dict[Any, int] = {}

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give *request* a thread, unless too many have one."""
        if len(self._open) >= _MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._open[request] = SYSTEM_CLOCK.monotonic_ms() + _REQUEST_MS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Called when *request* was answered."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called several times a second: end the connections of clients that are too slow."""
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        for request in [each for each, end_ms in list(self._open.items()) if now_ms >= end_ms]:
            with contextlib.suppress(OSError):
                request.shutdown(_BOTH_WAYS)

    def run(self) -> None:
        """Answer requests until the server is shut down."""
        self.serve_forever(_POLL_S)

    def end_with_program(self) -> None:
        """Called at the interpreter's exit."""
        self.shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that goes away in the middle of a request is no fault of the server.
        _log.debug("a request failed", exc_info=True)


class LocalHandler(BaseHTTPRequestHandler):
    """Answers one request; the methods of subclasses begin with :meth:`is_refused`."""

    timeout = _IDLE_S

    def is_refused(self) -> bool:
        """Whether the request comes from elsewhere, and was answered so."""
        server = self.server
        if not isinstance(server, LocalServer):
            raise RuntimeError("the handler belongs to another server")
        refusal = refusal_of(self.headers.get("Host", ""), self.headers.get("Origin"), server.host)
        if refusal is not None:
            self.send_error(403, refusal)
        return refusal is not None

    def send_body(self, status: int, content_type: str, body: bytes) -> None:
        """Answer with *body*."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)
