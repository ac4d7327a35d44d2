"""A schema registry in memory on loopback, for development and tests: the REST API that clients use.

Each connection has a thread, for one request and a few seconds, and requests are answered one after the other. Only
programs of this machine, or of those that reach its address, are answered, and no pages of a browser. Nothing is kept
after :meth:`close`.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.threads import Thread, start_loop
from kafka_sink.network.local_pages import refusal_of
from kafka_sink.registry.schema_store import AVRO, TYPES, RefusalError, Schema, SchemaStore, serialized

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_BODY_BYTES: Final = 4 << 20
#: A client that sends nothing for so long is left.
_IDLE_S: Final = 5.0
_POLL_S: Final = 0.05
#: A request is complete within this time, however slowly its client sends it.
_REQUEST_MS: Final = 10_000
_MOST_CONNECTIONS: Final = 200
#: SHUT_RDWR: sockets belong to the network, and this one is only ended.
_BOTH_WAYS: Final = 2

_log = logging.getLogger(__name__)

Body = Mapping[str, Any]
_Action = Callable[[SchemaStore, "re.Match[str]", Body], Any]


def _schema_of(body: Body) -> Schema:
    text, kind = body.get("schema"), body.get("schemaType", AVRO)
    if kind not in TYPES or body.get("references") or not isinstance(text, str):
        raise RefusalError(422, 42201, f"Invalid schema: only {', '.join(TYPES)} without references are kept here")
    return Schema(kind, text)


def _compatibility(store: SchemaStore, subject: str, schema: Schema) -> Any:
    reasons = store.incompatibilities(subject, schema)
    return {"is_compatible": not reasons, "messages": reasons}


def _level(store: SchemaStore, found: re.Match[str], body: Body) -> Any:
    return {"compatibilityLevel": store.level(unquote(found[1] or ""))}


def _set_level(store: SchemaStore, found: re.Match[str], body: Body) -> Any:
    level = str(body.get("compatibility"))
    store.set_level(level, unquote(found[1] or ""))
    return {"compatibility": level}


#: Method and path, and what is answered. A subject may contain any character, as %2F.
_ROUTES: Final[tuple[tuple[str, re.Pattern[str], _Action], ...]] = tuple(
    (method, re.compile(path), action)
    for method, path, action in (
        ("GET", r"/", lambda store, found, body: {}),
        ("GET", r"/subjects", lambda store, found, body: store.subjects()),
        ("GET", r"/schemas/types", lambda store, found, body: list(TYPES)),
        ("GET", r"/schemas/ids/(\d+)", lambda store, found, body: store.schema(found[1]).shown()),
        ("GET", r"/subjects/([^/]+)/versions", lambda store, found, body: store.versions(unquote(found[1]))),
        (
            "GET",
            r"/subjects/([^/]+)/versions/([^/]+)",
            lambda store, found, body: store.version(unquote(found[1]), found[2]),
        ),
        (
            "POST",
            r"/subjects/([^/]+)/versions",
            lambda store, found, body: {"id": store.register(unquote(found[1]), _schema_of(body))},
        ),
        ("POST", r"/subjects/([^/]+)", lambda store, found, body: store.find(unquote(found[1]), _schema_of(body))),
        ("DELETE", r"/subjects/([^/]+)", lambda store, found, body: store.delete(unquote(found[1]))),
        (
            "POST",
            r"/compatibility/subjects/([^/]+)/versions(?:/[^/]+)?",
            lambda store, found, body: _compatibility(store, unquote(found[1]), _schema_of(body)),
        ),
        ("GET", r"/config(?:/([^/]+))?", _level),
        ("PUT", r"/config(?:/([^/]+))?", _set_level),
        ("GET", r"/mode", lambda store, found, body: {"mode": "READWRITE"}),
    )
)


def answer(store: SchemaStore, method: str, target: str, body: bytes) -> tuple[int, Any]:
    """HTTP's status and the JSON that *store* answers to a request."""
    parts = urlsplit(target)
    path = parts.path.rstrip("/") or "/"
    try:
        for each, pattern, action in _ROUTES:
            found = pattern.fullmatch(path)
            if found is not None and each == method:
                answered = action(store, found, _object(body))
                return 200, serialized(answered) if "format=serialized" in parts.query else answered
        raise RefusalError(404, 404, "HTTP 404 Not Found")
    except RefusalError as error:
        return error.status, {"error_code": error.code, "message": str(error)}


def _object(body: bytes) -> Body:
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RefusalError(400, 400, "the body is no JSON object")
    return found


class _Handler(BaseHTTPRequestHandler):
    timeout = _IDLE_S

    def _answer(self) -> None:
        registry = self.server
        if not isinstance(registry, _Server):
            raise RuntimeError("the handler belongs to another server")
        refusal = refusal_of(self.headers.get("Host", ""), self.headers.get("Origin"), registry.host)
        if refusal is not None:
            self.send_error(403, refusal)
            return
        size = self.headers.get("Content-Length", "0")
        if not size.isdecimal() or int(size) > _MAX_BODY_BYTES:
            self.send_error(413)
            return
        body = self.rfile.read(int(size))
        with registry.lock:
            status, found = answer(registry.store, self.command, self.path, body)
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], store: SchemaStore) -> None:
        super().__init__(address, _Handler)
        self.store, self.lock = store, threading.Lock()
        self.host = address[0]
        # Connection → when it is ended, monotonic ms.
        self._open: dict[Any, int] = {}

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
        # A client that goes away in the middle of a request is no fault of the registry.
        _log.debug("a request to the schema registry failed", exc_info=True)


class EmbeddedRegistry:
    """A schema registry; use it in a ``with`` statement, and :attr:`url` as ``schema.registry.url``."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """*port* 0 chooses a free one.

        :raises OSError: if the port is in use.
        """
        self._server = _Server((host, port), SchemaStore())
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://{self._server.server_address[0]!s}:{self._server.server_address[1]}"

    def start(self) -> None:
        """Begin to answer requests."""
        if self._thread is None:
            self._thread = start_loop("schema-registry", self._server)

    def close(self) -> None:
        """Stop, and forget everything."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()

    def __enter__(self) -> EmbeddedRegistry:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
