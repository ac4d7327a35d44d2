"""A schema registry in memory on loopback, for development and tests: the REST API that clients use.

Requests are answered one after the other. Nothing is kept after :meth:`close`.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafka_sink.formats.bounds import is_too_deep
from kafka_sink.network.local_server import LocalHandler, LocalServer
from kafka_sink.registry.errors import UnusableSchemaError
from kafka_sink.registry.references import AVRO, KINDS, places_of
from kafka_sink.testing.registry.schema_store import RefusalError, Schema, SchemaStore

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_BODY_BYTES: Final = 4 << 20

Body = Mapping[str, Any]
_Action = Callable[[SchemaStore, "re.Match[str]", Body], Any]


def _schema_of(body: Body) -> Schema:
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if kind not in KINDS or not isinstance(text, str):
        raise RefusalError(422, 42201, f"Invalid schema: only {', '.join(KINDS)} are kept here")
    try:
        return Schema(kind, text, tuple(places_of(body.get("references") or (), "the schema")))
    except UnusableSchemaError as error:
        raise RefusalError(422, 42201, f"Invalid schema: {error}") from None


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
        ("GET", r"/schemas/types", lambda store, found, body: list(KINDS)),
        ("GET", r"/schemas/ids/([0-9]{1,10})", lambda store, found, body: store.schema(found[1]).shown()),
        ("GET", r"/subjects/([^/]+)/versions", lambda store, found, body: store.versions(unquote(found[1]))),
        (
            "GET",
            r"/subjects/([^/]+)/versions/([^/]{1,20})",
            lambda store, found, body: store.version(unquote(found[1]), found[2]),
        ),
        (
            "GET",
            r"/subjects/([^/]+)/versions/([^/]{1,20})/referencedby",
            lambda store, found, body: store.referring(unquote(found[1]), found[2]),
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
    try:
        parts = urlsplit(target)
    except ValueError:
        return 400, {"error_code": 400, "message": "the address of the request is none"}
    path = parts.path.rstrip("/") or "/"
    try:
        for each, pattern, action in _ROUTES:
            found = pattern.fullmatch(path)
            if found is not None and each == method:
                answered = action(store, found, _object(body))
                return 200, store.serialized(answered) if "format=serialized" in parts.query else answered
        raise RefusalError(404, 404, "HTTP 404 Not Found")
    except RefusalError as error:
        return error.status, {"error_code": error.code, "message": str(error)}


def _object(body: bytes) -> Body:
    try:
        text = body.decode()
        found = None if is_too_deep(text) else json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RefusalError(400, 400, "the body is no JSON object")
    return found


class _Handler(LocalHandler):
    def _answer(self) -> None:
        if self.is_refused():
            return
        registry = self.server_as(EmbeddedRegistry)
        body = self.read_body(_MAX_BODY_BYTES)
        if body is None:
            return
        with registry.lock:
            status, found = answer(registry.store, self.command, self.path, body)
        self.send_body(status, _CONTENT_TYPE, json.dumps(found).encode())

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815


class EmbeddedRegistry(LocalServer):
    """A schema registry; use it in a ``with`` statement, and :attr:`url` as ``schema.registry.url``."""

    name = "schema-registry"

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """*port* 0 chooses a free one.

        :raises OSError: if the port is in use.
        """
        super().__init__((host, port), _Handler)
        self.store, self.lock = SchemaStore(), threading.Lock()
