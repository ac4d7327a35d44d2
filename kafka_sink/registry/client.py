"""The client of a schema registry: registers a schema, looks one up, and reads the latest of a subject.

Called on the driver's thread, before the tasks of a write. Several addresses are tried in turn, a few times, with
pauses. Tasks never send requests to a registry.

Confluent's serializers run the rules of a schema's data contract for each record that they write: encryption of fields,
conditions and transformations. They are not run here, so rows cannot be written by a schema with such rules. Rules for
reading and for migration concern deserializers, and disabled rules have no effect.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html,
https://docs.confluent.io/platform/current/schema-registry/fundamentals/data-contracts.html; confluent-kafka's
``BaseSerde._execute_rules_with_phase``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final
from urllib.parse import quote

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock, ExponentialBackoff, end_of, pause, within
from kafka_sink.common.errors import (
    AuthenticationError,
    ConfigError,
    IncompatibleSchemaError,
    RegistryDeniedError,
    RegistryError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    UnusableSchemaError,
)
from kafka_sink.common.log_context import Said
from kafka_sink.common.references import PROVIDERS, resolve
from kafka_sink.common.sasl_mechanisms import OAUTHBEARER
from kafka_sink.common.text import printable
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.formats.schema_text import SchemaText, is_too_deep
from kafka_sink.http.exchange import Exchange, ExchangeError, HttpAnswer, Server, basic, is_loopback
from kafka_sink.http.oauth.token_endpoint import ClientCredentials, TokenEndpoint
from kafka_sink.http.oauth.token_login import LOGINS, TokenLogin, TokenUser
from kafka_sink.network.sasl.bearer_token import EndpointLimits, RefreshRules
from kafka_sink.registry.config import SSL_PREFIX, URL, RegistryConfig
from kafka_sink.registry.references import AVRO, KINDS, LATEST, SubjectVersion, request_body, resolved
from kafka_sink.trust.tls_context import TlsContexts

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

_TIMEOUT_MS: Final = 20_000
_LIMIT_MS: Final = 120_000
_ROUNDS: Final = 3
_BACKOFF: Final = ExponentialBackoff(initial_ms=200, max_ms=2_000)
#: The maximum length of a refusal in an error.
_SHOWN: Final = 1_500
#: The maximum number of texts of a list.
_MOST_TEXTS: Final = 1_000
#: The parts of an answer that are used, and checked at their use. The others are only shown.
_USED: Final = frozenset({"id", "version", "schema", "schemaType", "references", "ruleSet"})
_HIGHEST_ID: Final = 2**31 - 1
#: The registries to which credentials are sent unencrypted; each is logged once in a process.
_SAID: Final = Said()

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema with its id and the number of its version, and all schemas that it refers to."""

    schema_id: int
    version: int
    schema: SchemaText


class RegistryClient:
    """A client of the registry of *config*; *tls* is used for https:// addresses. Every request raises a RegistryError
    if the registry refuses it, or cannot be reached in time."""

    def __init__(
        self,
        config: RegistryConfig,
        tls: SslConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
        timeout_ms: int = _TIMEOUT_MS,
        limit_ms: int = _LIMIT_MS,
        rounds: int = _ROUNDS,
        backoff: ExponentialBackoff = _BACKOFF,
    ) -> None:
        """
        :param timeout_ms: the longest time for an answer of one address.
        :param limit_ms: the longest time for a call, with its attempts and all schemas that one refers to.
        :raises ConfigError: if an address is invalid, or a file for TLS cannot be read."""
        self.config = config
        self._servers = [_server(url) for url in config.urls]
        is_secure = any(server.scheme == "https" for server in self._servers)
        contexts = TlsContexts(tls, server=False, prefix=SSL_PREFIX) if is_secure else None
        self._exchange = Exchange(contexts, timeout_ms, clock)
        self._clock = clock
        self._limit_ms = limit_ms
        self._rounds = rounds
        self._backoff = backoff
        self._tokens = _tokens(config, tls, clock)
        for server in self.open_servers:
            if _SAID.is_new(server.shown):
                _log.warning(
                    "the credentials for the schema registry are sent unencrypted to %s, so others can read them on "
                    "the network; use https:// in %s",
                    server.shown,
                    URL,
                )

    @property
    def open_servers(self) -> list[Server]:
        """The addresses to which credentials are sent unencrypted, beyond this machine."""
        of_all = self._tokens or self.config.bearer_token or self.config.user_info
        readable = [server for server in self._servers if server.scheme == "http" and not is_loopback(server.host)]
        return [server for server in readable if of_all or server.credentials]

    def register(self, subject: str, schema: SchemaText | str, kind: str = AVRO) -> int:
        """Register *schema*, of the type *kind*, as a version of *subject* if it is none yet; returns its id. Here and
        below its references must have subjects and versions (:mod:`kafka_sink.registry.references`).

        :raises IncompatibleSchemaError: if the registry refuses it because of an earlier version.
        :raises UnusableSchemaError: if it has rules (:func:`check_rules`).
        """
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", schema, kind)
        check_rules(subject, answer)
        return _number(answer, "id")

    def id_of(self, subject: str, schema: SchemaText | str, kind: str = AVRO) -> int:
        """The id of *schema*, of the type *kind*, which must be a version of *subject*.

        :raises SchemaNotFoundError: if it is not.
        :raises UnusableSchemaError: if it has rules (:func:`check_rules`).
        """
        answer = self._look_up(subject, schema, kind)
        check_rules(subject, answer)
        return _number(answer, "id")

    def version_of(self, subject: str, schema: SchemaText | str, kind: str = AVRO) -> int:
        """The version number of *schema*, of the type *kind*, in *subject*.

        :raises SchemaNotFoundError: if it is no version of it.
        """
        return _number(self._look_up(subject, schema, kind), "version")

    def _look_up(self, subject: str, schema: SchemaText | str, kind: str) -> Any:
        return self._ask("POST", f"/subjects/{quote(subject, safe='')}", schema, kind)

    def find(self, subject: str, schema: SchemaText | str, kind: str = AVRO) -> int | None:
        """The id of *schema*, of the type *kind*, if it is a version of *subject*; None if it is not, or if the
        credentials do not allow the request."""
        try:
            return self.id_of(subject, schema, kind)
        except (SchemaNotFoundError, RegistryDeniedError):
            return None

    def latest(self, subject: str, kind: str = AVRO) -> RegisteredSchema:
        """The latest version of *subject*, which must be of the type *kind*, for writing.

        :raises SchemaNotFoundError: if it, or a schema that it refers to, does not exist.
        :raises UnusableSchemaError: if it is of another type, has too many references, or has rules
            (:func:`check_rules`).
        """
        return self._version(subject, "latest", kind, is_written=True)

    def version(self, subject: str, number: int, kind: str = AVRO) -> RegisteredSchema:
        """The version *number* of *subject*, or the latest one (:data:`~kafka_sink.registry.references.LATEST`), for a
        reference to it; raises as :meth:`latest`, except for rules. A deleted version is found, too."""
        return self._version(
            subject, "latest" if number == LATEST else f"{number}?deleted=true", kind, is_written=False
        )

    def _version(self, subject: str, number: str, kind: str, *, is_written: bool) -> RegisteredSchema:
        with within(self._limit_ms, self._clock):
            answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/{number}")
            if is_written:
                check_rules(subject, answer)
            what = f"version {number.partition('?')[0]} of subject {subject}"
            text = self._with_references(what, answer, kind)
        return RegisteredSchema(_number(answer, "id"), _number(answer, "version"), text)

    def version_with(self, schema_id: int, subject: str, kind: str = AVRO) -> SchemaText:
        """The schema with this id, which must be a version of *subject*, for writing; raises as :meth:`latest`. Equal
        schemas of several subjects have the same id."""
        with within(self._limit_ms, self._clock):
            answer = self._ask("GET", f"/schemas/ids/{schema_id}")
            check_rules(subject, answer)
            text = self._with_references(f"schema {schema_id}", answer, kind)
            self.id_of(subject, text, kind)
        return text

    def schema(self, schema_id: int, kind: str = AVRO) -> SchemaText:
        """The schema with this id, which must be of the type *kind*, with all schemas that it refers to.

        :raises SchemaNotFoundError: if it, or a schema that it refers to, does not exist.
        :raises UnusableSchemaError: if it is of another type, or has too many references.
        """
        with within(self._limit_ms, self._clock):
            return self._with_references(f"schema {schema_id}", self._ask("GET", f"/schemas/ids/{schema_id}"), kind)

    def kind(self, schema_id: int) -> str:
        """The registry's name of the type of the schema with this id.

        :raises SchemaNotFoundError: if there is none.
        """
        schema_type = self._ask("GET", f"/schemas/ids/{schema_id}").get("schemaType") or AVRO
        return schema_type if schema_type in KINDS else "of an unknown type"

    def incompatibilities(self, subject: str, schema: SchemaText | str, kind: str = AVRO) -> list[str]:
        """The reasons why *schema*, of the type *kind*, must not become a version of *subject*; empty if it may."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        answer = self._ask("POST", path, schema, kind)
        if answer.get("is_compatible") is True:
            return []
        messages = answer.get("messages")
        return messages if isinstance(messages, list) and messages else ["no reason is given"]

    def types(self) -> list[str]:
        """The types of schemas that the registry supports: a request that concerns no subject."""
        types: list[str] = self._ask("GET", "/schemas/types", expected=list)
        return types

    def _with_references(self, what: str, answer: dict[str, Any], kind: str) -> SchemaText:
        """The schema in *answer*, called *what*, and all schemas that it refers to."""

        def ask(reference: SubjectVersion) -> Any:
            path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}?deleted=true"
            return self._ask("GET", path)

        return resolved(what, answer, kind, ask)

    def _ask(
        self,
        method: str,
        path: str,
        schema: SchemaText | str | None = None,
        kind: str = AVRO,
        expected: type[Any] = dict,
    ) -> Any:
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json", "Connection": "close"}
        body = None
        if schema is not None:
            headers["Content-Type"] = _CONTENT_TYPE
            body = json.dumps(request_body(schema, kind)).encode()
            path += f"{'&' if '?' in path else '?'}normalize={str(self.config.normalize).lower()}"
        with within(self._limit_ms, self._clock):
            return self._answered(method, path, headers, body, expected)

    def _answered(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, expected: type[Any]
    ) -> Any:
        causes: dict[str, str] = {}
        is_down = False
        for attempt in range(self._rounds):
            if attempt:
                pause_ms = self._backoff.backoff_ms(attempt - 1)
                if pause_ms >= self._left_ms():
                    break
                pause(self._clock, pause_ms)
            for at, server in enumerate(self._servers):
                # An address that does not answer leaves time for the others.
                share_ms = self._left_ms() // (len(self._servers) - at)
                try:
                    with within(share_ms, self._clock):
                        answer = self._exchange.run(server, method, path, self._authorized(server, headers), body)
                except ExchangeError as error:
                    is_down |= not error.is_answered
                    causes[server.shown] = str(error)
                    continue
                if answer.status in (408, 429) or answer.status >= 500:
                    is_down = True
                    causes[server.shown] = _refusal(answer)
                    continue
                return _read(answer, server, expected)
        reasons = "; ".join(f"{shown}: {cause}" for shown, cause in causes.items())
        failure = RegistryUnavailableError if is_down else RegistryError
        raise failure(f"the schema registry cannot be used ({reasons}); check schema.registry.url and the registry")

    def _authorized(self, server: Server, headers: dict[str, str]) -> dict[str, str]:
        """*headers* with the credentials of the configuration."""
        config = self.config
        if self._tokens is not None:
            try:
                bearer = self._tokens.token()
            except AuthenticationError as error:
                raise RegistryUnavailableError(str(error)) from None
            return {**headers, **bearer.extensions, "Authorization": f"Bearer {bearer.value}"}
        if config.bearer_token:
            token = resolve("bearer.auth.token", config.bearer_token, PROVIDERS)
            return {**headers, "Authorization": f"Bearer {_one_line('bearer.auth.token', token)}"}
        if config.user_info:
            return {**headers, "Authorization": basic(resolve("basic.auth.user.info", config.user_info, PROVIDERS))}
        return {**headers, "Authorization": basic(server.credentials)} if server.credentials else headers

    def _left_ms(self) -> int:
        return end_of(self._limit_ms, self._clock) - self._clock.monotonic_ms()


def _tokens(config: RegistryConfig, tls: SslConfig, clock: Clock) -> TokenUser | None:
    """The tokens of ``bearer.auth.credentials.source=OAUTHBEARER``; the extensions are headers for the registry."""
    if config.bearer_source != OAUTHBEARER:
        return None
    endpoint = TokenEndpoint("bearer.auth.issuer.endpoint.url", config.issuer_url, tls, EndpointLimits(), clock)
    cloud = {"target-sr-cluster": config.logical_cluster, "Confluent-Identity-Pool-Id": config.identity_pool}
    headers = {name: _one_line("bearer.auth.…", value) for name, value in cloud.items() if value}

    def credentials() -> ClientCredentials:
        client_id = resolve("bearer.auth.client.id", config.client_id, PROVIDERS)
        secret = resolve("bearer.auth.client.secret", config.client_secret, PROVIDERS)
        return ClientCredentials(client_id, secret, config.scope, headers)

    def create() -> TokenLogin:
        return TokenLogin(lambda: endpoint.fetch(credentials()), RefreshRules(), clock)

    return LOGINS.join((config.issuer_url, astuple(credentials()), tls, id(clock)), create, clock.wall_ms())


def _server(url: str) -> Server:
    try:
        return Server.parse(url)
    except ValueError:
        raise ConfigError.of(
            URL,
            ": the value is not an address; expected https://host:port, with special characters of user and "
            "password URL-encoded (%2F for /)",
        ) from None


def _one_line(option: str, value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise ConfigError.of(option, ": the value is not a valid token: it has characters that a header cannot have")
    return value


def _read(answer: HttpAnswer, server: Server, expected: type[Any]) -> Any:
    """The JSON in *answer*, an object or a list as *expected*.

    :raises RegistryError: if the registry refused the request, or the answer is no such JSON.
    """
    if 300 <= answer.status < 400:
        raise RegistryError(
            f"{server.shown} redirects to '{answer.shown(answer.location)[:200]}', which is not followed; set "
            "schema.registry.url to the registry itself"
        )
    if answer.status == 409:
        raise IncompatibleSchemaError(_refusal(answer))
    if answer.status == 404:
        raise SchemaNotFoundError(_refusal(answer))
    if answer.status in (401, 403):
        raise RegistryDeniedError(
            f"{server.shown} refuses the credentials ({_refusal(answer)}); check basic.auth.user.info or "
            "bearer.auth.token, and what they may do"
        )
    if answer.status != 200:
        raise RegistryError(f"{server.shown} refuses the request ({_refusal(answer)})")
    parsed = _json(answer.body)
    if not isinstance(parsed, expected):
        what = "object" if expected is dict else "list"
        raise RegistryError(
            f"{server.shown} answers without a JSON {what}: it is not a schema registry; check its address"
        )
    if isinstance(parsed, list):
        return _texts(parsed, answer)
    if answer.repeats_secret(_as_text(parsed.get("references"))):
        raise RegistryError(f"the answer of {server.shown} contains the credentials of the request; check its address")
    return {name: value if name in _USED else _texts(value, answer) for name, value in parsed.items()}


def _as_text(references: Any) -> str:
    try:
        return str(references)
    except RecursionError:
        raise RegistryError("the registry answered with invalid references; check its address") from None


def _texts(value: Any, answer: HttpAnswer) -> Any:
    """The parts of *value* that may be shown: texts and lists of texts."""
    if isinstance(value, list):
        return [_texts(str(item), answer) for item in value[:_MOST_TEXTS] if isinstance(item, str | int)]
    return answer.shown(value)[:_SHOWN] if isinstance(value, str) else value if isinstance(value, bool) else None


def _number(answer: dict[str, Any], name: str) -> int:
    number = answer.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _HIGHEST_ID:
        raise RegistryError(
            f"the registry answered with the {name} {_kind_of(number)}, expected a number; check its address"
        )
    return number


def _kind_of(value: Any) -> str:
    """The text of *value* if it is a number, else its type only: it may repeat a secret of the request."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64
    return str(value) if is_number else f"of type {type(value).__name__}"


def _refusal(answer: HttpAnswer) -> str:
    parsed = _json(answer.body)
    message = parsed.get("message") if isinstance(parsed, dict) else None
    shown = answer.shown(" ".join(message.split()))[:_SHOWN] if isinstance(message, str) else ""
    return f"HTTP {answer.status}: {shown}" if shown else f"HTTP {answer.status}"


def _json(body: bytes) -> Any:
    try:
        text = body.decode()
        return None if is_too_deep(text) else json.loads(text)
    except ValueError:
        return None


_OF_WRITING: Final = ("domainRules", "encodingRules")
_MODES: Final = ("WRITE", "WRITEREAD")
#: The values of ``enableAt`` with which clients run the rules.
_IN_CLIENTS: Final = (None, "ALL", "CLIENT")
_MOST_SHOWN: Final = 5
_SHOWN_OF_RULES: Final = 300


def check_rules(subject: str, answer: Mapping[str, Any]) -> None:
    """Check the schema in *answer*, a version of *subject*, before rows are written by it.

    :raises UnusableSchemaError: if it has rules for writing; the text names them and their types.
    """
    rules = answer.get("ruleSet")
    if not isinstance(rules, Mapping) or rules.get("enableAt") not in _IN_CLIENTS:
        return
    lists = [rules[name] for name in _OF_WRITING if isinstance(rules.get(name), list)]
    unsupported = [
        f"{rule.get('name')} ({rule.get('type')})"
        for rule in (rule for entries in lists for rule in entries if isinstance(rule, Mapping))
        if rule.get("mode") in _MODES and not rule.get("disabled")
    ]
    if unsupported:
        shown = printable(", ".join(unsupported[:_MOST_SHOWN]) + (", …" if len(unsupported) > _MOST_SHOWN else ""))
        raise UnusableSchemaError(
            f"the schema of subject {subject} has rules that Confluent's serializers run for each record, and that are "
            f"not run here: {shown[:_SHOWN_OF_RULES]}; write by a version without them (use.schema.id), or with a "
            "serializer of Confluent's"
        )
