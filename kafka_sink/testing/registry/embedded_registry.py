"""A schema registry on loopback, for development and tests: the REST API that clients use.

With a data directory its content is stored on disk, otherwise in memory only.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from kafka_sink.broker.data_directory import hold
from kafka_sink.broker.log.filesystem import CheckedFile, OsFileSystem
from kafka_sink.formats.schema_text import is_too_deep
from kafka_sink.http.local_server import LocalHandler, LocalServer
from kafka_sink.registry.references import KINDS, SubjectVersion
from kafka_sink.testing.registry.refusals import RefusalError
from kafka_sink.testing.registry.schema_store import GLOBAL, SchemaStore, Version
from kafka_sink.testing.registry.schemas import KeptSchema

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAX_BODY_BYTES: Final = 4 << 20
_FILE: Final = "schema-registry.json"


class _Request(NamedTuple):
    """A request, with the parts of its path that the route names."""

    parts: Mapping[str, str]
    query: Mapping[str, str]
    #: The metadata in the query, whose parameters ``key`` and ``value`` may be repeated.
    properties: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def subject(self) -> str:
        return self.parts.get("subject", GLOBAL)

    @property
    def schema(self) -> KeptSchema:
        return KeptSchema.of(self.body)

    @property
    def schema_id(self) -> int:
        return int(self.parts["id"])

    def has(self, name: str) -> bool:
        """Whether the query sets *name*."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """The number *name* of the body. :raises RefusalError: if it is no number."""
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
            raise RefusalError(42201, f"{name} is {value!r:.60}, expected a number")
        return value


_Action = Callable[[SchemaStore, _Request], Any]


def _shown(store: SchemaStore, ask: _Request, subject: str, number: int, version: Version) -> dict[str, Any]:
    shown = {"subject": subject, "version": number, "id": version.schema_id, **_text(store, ask, version.schema)}
    return {**shown, "deleted": True} if version.is_deleted else shown


def _text(store: SchemaStore, ask: _Request, schema: KeptSchema) -> dict[str, Any]:
    shown = schema.shown()
    return {**shown, "schema": schema.serialized(store.ask)} if ask.query.get("format") == "serialized" else shown


def _version(store: SchemaStore, ask: _Request) -> dict[str, Any]:
    number, version = store.version(ask.subject, ask.parts["version"], deleted=ask.has("deleted"))
    return _shown(store, ask, ask.subject, number, version)


def _by_id(store: SchemaStore, ask: _Request) -> dict[str, Any]:
    return _text(store, ask, store.schema(ask.schema_id))


def _by_guid(store: SchemaStore, ask: _Request) -> dict[str, Any]:
    schemas = [version.schema for _, _, version in store.all(deleted=True) if version.schema.guid == ask.parts["guid"]]
    if not schemas:
        raise RefusalError(40403, f"{ask.parts['guid']} ")
    return _text(store, ask, schemas[0])


def _register(store: SchemaStore, ask: _Request) -> dict[str, Any]:
    numbers = {"schema_id": ask.number("id", -1), "number": ask.number("version", 0)}
    number, version = store.register(ask.subject, ask.schema, normalize=ask.has("normalize"), **numbers)
    return _shown(store, ask, ask.subject, number, version)


def _find(store: SchemaStore, ask: _Request) -> dict[str, Any]:
    number, version = store.find(ask.subject, ask.schema, normalize=ask.has("normalize"), deleted=ask.has("deleted"))
    return _shown(store, ask, ask.subject, number, version)


def _referring(store: SchemaStore, ask: _Request) -> list[int]:
    number, _ = store.version(ask.subject, ask.parts["version"], deleted=True)
    versions = store.referring(SubjectVersion(ask.subject, number), deleted=ask.has("deleted"))
    return sorted({version.schema_id for _, version in versions})


def _compatibility(store: SchemaStore, ask: _Request) -> dict[str, Any]:
    reasons = store.incompatibilities(ask.subject, ask.schema, ask.parts.get("version"), normalize=ask.has("normalize"))
    return {"is_compatible": not reasons, **({"messages": reasons} if ask.has("verbose") else {})}


def _set_level(store: SchemaStore, ask: _Request) -> Any:
    store.set_level(ask.body, ask.subject)
    return ask.body


def _set_mode(store: SchemaStore, ask: _Request) -> Any:
    store.set_mode(str(ask.body.get("mode")), ask.subject, force=ask.has("force"))
    return ask.body


#: Method and path → the answer. A subject may contain any character, such as %2F. Texts are returned unchanged.
_ROUTES: Final[Mapping[str, _Action]] = {
    "GET /": lambda store, ask: {},
    "GET /contexts": lambda store, ask: ["."],
    "GET /schemas/types": lambda store, ask: list(KINDS),
    "GET /schemas": lambda store, ask: [
        _shown(store, ask, *version)
        for version in store.all(deleted=ask.has("deleted"))
        if version[0].startswith(ask.query.get("subjectPrefix", ""))
        and (not ask.has("latestOnly") or version[1] == max(store.versions(version[0], deleted=ask.has("deleted"))))
    ],
    "GET /schemas/ids/{id}": _by_id,
    "GET /schemas/ids/{id}/schema": lambda store, ask: _by_id(store, ask)["schema"],
    "GET /schemas/ids/{id}/subjects": lambda store, ask: sorted(
        {subject for subject, _, _ in store.everywhere(ask.schema_id, deleted=ask.has("deleted"))}
    ),
    "GET /schemas/ids/{id}/versions": lambda store, ask: [
        {"subject": subject, "version": number}
        for subject, number, _ in store.everywhere(ask.schema_id, deleted=ask.has("deleted"))
    ],
    "GET /schemas/guids/{guid}": _by_guid,
    "GET /subjects": lambda store, ask: store.subjects(
        prefix=ask.query.get("subjectPrefix", ""), deleted=ask.has("deleted")
    ),
    "POST /subjects/{subject}": _find,
    "DELETE /subjects/{subject}": lambda store, ask: store.delete(ask.subject, permanent=ask.has("permanent")),
    "GET /subjects/{subject}/versions": lambda store, ask: list(
        store.versions(ask.subject, deleted=ask.has("deleted"))
    ),
    "POST /subjects/{subject}/versions": _register,
    "GET /subjects/{subject}/versions/{version}": _version,
    "DELETE /subjects/{subject}/versions/{version}": lambda store, ask: store.delete_version(
        ask.subject, ask.parts["version"], permanent=ask.has("permanent")
    ),
    "GET /subjects/{subject}/versions/{version}/schema": lambda store, ask: _version(store, ask)["schema"],
    "GET /subjects/{subject}/versions/{version}/referencedby": _referring,
    "GET /subjects/{subject}/metadata": lambda store, ask: _shown(
        store, ask, ask.subject, *store.latest_with(ask.subject, ask.properties, deleted=ask.has("deleted"))
    ),
    "POST /compatibility/subjects/{subject}/versions": _compatibility,
    "POST /compatibility/subjects/{subject}/versions/{version}": _compatibility,
    **{
        f"{method} /{what}{below}": action
        for below in ("", "/{subject}")
        for (method, what), action in {
            ("GET", "config"): lambda store, ask: store.level(ask.subject, in_scope=ask.has("defaultToGlobal")),
            ("PUT", "config"): _set_level,
            ("DELETE", "config"): lambda store, ask: store.delete_level(ask.subject),
            ("GET", "mode"): lambda store, ask: {"mode": store.mode(ask.subject, in_scope=ask.has("defaultToGlobal"))},
            ("PUT", "mode"): _set_mode,
            ("DELETE", "mode"): lambda store, ask: {"mode": store.delete_mode(ask.subject)},
        }.items()
    },
}
#: The patterns of the parts of a path.
_PARTS: Final = {"id": "[0-9]{1,10}", "version": "[^/]{1,20}"}
_PATTERNS: Final = tuple(
    (
        route.partition(" ")[0],
        re.compile(
            re.sub(
                r"\{(\w+)\}", lambda match: f"(?P<{match[1]}>{_PARTS.get(match[1], '[^/]+')})", route.partition(" ")[2]
            )
        ),
        action,
    )
    for route, action in _ROUTES.items()
)


def answer(store: SchemaStore, method: str, target: str, body: bytes) -> tuple[int, Any]:
    """The HTTP status, and the JSON or the text of the answer of *store* to a request."""
    try:
        address = urlsplit(target)
        words = parse_qsl(address.query, max_num_fields=100)
        keys, values = ([value for name, value in words if name == wanted] for wanted in ("key", "value"))
    except ValueError:
        return 400, {"error_code": 400, "message": "the address of the request is not valid"}
    path = address.path.rstrip("/") or "/"
    try:
        for of_method, pattern, action in _PATTERNS:
            match = pattern.fullmatch(path)
            if match is not None and of_method == method:
                parts = {name: unquote(part) for name, part in match.groupdict().items()}
                asked = _Request(parts, dict(words), dict(zip(keys, values, strict=False)), _object(body))
                # No lock for GET and POST, whose time depends on the schemas of clients.
                with store.lock if method in ("PUT", "DELETE") else nullcontext():
                    return 200, action(store, asked)
        raise RefusalError(404)
    except RefusalError as error:
        return error.status, {"error_code": error.code, "message": str(error)}


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        text = body.decode()
        parsed = None if is_too_deep(text) else json.loads(text or "{}")
        # Raises for surrogates, which neither files nor answers can contain.
        json.dumps(parsed, ensure_ascii=False).encode()
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise RefusalError(400, "the body is not a JSON object")
    return parsed


class _Handler(LocalHandler):
    def _answer(self) -> None:
        if self.is_refused():
            return
        registry = self.server_as(EmbeddedRegistry)
        body = self.read_body(_MAX_BODY_BYTES)
        if body is None:
            return
        status, content = answer(registry.store, self.command, self.path, body)
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_body(status, _CONTENT_TYPE, text.encode())

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815


class EmbeddedRegistry(LocalServer):
    """A schema registry; use it in a ``with`` statement, and :attr:`url` as ``schema.registry.url``."""

    name = "schema-registry"

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, data_dir: str | Path | None = None) -> None:
        """*port* 0 selects a free one. With *data_dir*, which may be a cluster's, the content is stored there.

        :raises OSError: if the port or *data_dir* is in use.
        :raises ConfigError: if the file in *data_dir* is damaged.
        """
        file = None if data_dir is None else CheckedFile(Path(data_dir), OsFileSystem(), _FILE)
        with ExitStack() as undo:
            if file is not None:
                undo.callback(hold(file.path.with_suffix(".lock"), "schema registry").release)
            self.store = SchemaStore(file)
            super().__init__((host, port), _Handler)
            self._held = undo.pop_all()

    def close(self) -> None:
        """Stop, after the responses to the current requests."""
        super().close()
        self._held.close()
