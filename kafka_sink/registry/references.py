"""Schemas that refer to others, in requests and answers of registries: name, subject and version of each reference.

Called by the client, and before a schema is registered. It uses no socket.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#schema-references.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from kafka_sink.common.bounded import INT32_MAX
from kafka_sink.common.errors import UnusableSchemaError
from kafka_sink.formats.schema_text import MOST_DEPTH, MOST_REFERENCES, MOST_SCHEMA_CHARACTERS, Reference, SchemaText

#: The type of a schema without ``schemaType``.
AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
#: The names of schema types in registries.
KINDS: Final = (AVRO, JSON, PROTOBUF)


#: The number that registries use for the latest version.
LATEST: Final = -1


class SubjectVersion(NamedTuple):
    """A version of a subject, by its number or as :data:`LATEST`."""

    subject: str
    version: int


def request_body(schema: SchemaText | str, kind: str) -> dict[str, Any]:
    """The body of a request about *schema*, of the type *kind*."""
    schema = SchemaText(schema) if isinstance(schema, str) else schema
    body: dict[str, Any] = {"schema": schema.text}
    if kind != AVRO:
        body["schemaType"] = kind
    if schema.references:
        body["references"] = [
            {"name": reference.name, "subject": reference.subject, "version": reference.version}
            for reference in schema.references
        ]
    return body


def resolved(what: str, answer: Mapping[str, Any], kind: str, ask: Callable[[SubjectVersion], Any]) -> SchemaText:
    """The schema in *answer*, called *what*, of the type *kind*, with all schemas that it refers to, which *ask* reads.

    :raises UnusableSchemaError: if a schema is of another type, or they exceed the limits.
    """
    return _Resolving(what, kind, ask).of(answer, ())


class _Resolving:
    def __init__(self, what: str, kind: str, ask: Callable[[SubjectVersion], Any]) -> None:
        self._what, self._kind, self._ask = what, kind, ask
        self._done: dict[SubjectVersion, SchemaText] = {}
        self._characters = 0

    def of(self, answer: Mapping[str, Any], inside: tuple[SubjectVersion, ...]) -> SchemaText:
        text, kind = answer.get("schema"), answer.get("schemaType") or AVRO
        what = f"{self._what} refers to {inside[-1].subject}, which" if inside else self._what
        if kind != self._kind or not isinstance(text, str):
            shown = kind if kind in KINDS and isinstance(text, str) else "of no known type"
            raise UnusableSchemaError(f"{what} is {shown!r}, expected {self._kind}; choose another one")
        self._characters += len(text)
        references = references_in(answer.get("references") or (), what)
        return SchemaText(
            text, tuple(Reference(name, self._at(version, inside), *version) for name, version in references)
        )

    def _at(self, version: SubjectVersion, inside: tuple[SubjectVersion, ...]) -> SchemaText:
        if version not in self._done:
            is_too_much = len(self._done) + len(inside) >= MOST_REFERENCES or self._characters > MOST_SCHEMA_CHARACTERS
            if version in inside or len(inside) > MOST_DEPTH or is_too_much:
                raise UnusableSchemaError(
                    f"{self._what} refers to more than {MOST_REFERENCES} other schemas, of more than {MOST_DEPTH} "
                    f"levels, or to itself; choose another one"
                )
            self._done[version] = self.of(self._ask(version), (*inside, version))
        return self._done[version]


def references_in(listed: Any, what: str) -> list[tuple[str, SubjectVersion]]:
    """The names and versions in *listed*, the references of *what*. :raises UnusableSchemaError: if one is invalid."""
    references = []
    for reference in listed if isinstance(listed, list | tuple) else (None,):
        match reference:
            case {"name": str(name), "subject": str(subject), "version": int(version)} if _is_number(version):
                references.append((name, SubjectVersion(subject, version)))
            case _:
                raise UnusableSchemaError(
                    f"{what} has the reference {reference!r:.200}, expected name, subject and version; correct it"
                )
    return references


def _is_number(version: int) -> bool:
    return not isinstance(version, bool) and (0 < version <= INT32_MAX or version == LATEST)


class Registry(Protocol):
    """The requests of :func:`with_versions`."""

    def register(self, subject: str, schema: SchemaText, kind: str) -> int: ...

    def version_of(self, subject: str, schema: SchemaText, kind: str) -> int: ...


def with_versions(
    schema: SchemaText, kind: str, registry: Registry, subject_of: Callable[[str], str], *, is_registered: bool
) -> SchemaText:
    """*schema* with the versions of all schemas that it refers to: a schema without a version is looked up in the
    subject that *subject_of* returns for its name, or, with *is_registered*, registered there first, as in Confluent's
    serializers.

    :raises IncompatibleSchemaError: if the registry refuses a schema because of an earlier version.
    :raises SchemaNotFoundError: if a schema does not exist.
    :raises RegistryError: if the registry refuses a request otherwise, or cannot be reached.
    """
    done: dict[int, tuple[SchemaText, str, int]] = {}

    def versioned(reference: Reference) -> Reference:
        if reference.version > 0:
            return reference
        if id(reference.schema) not in done:
            inner, subject = of(reference.schema), subject_of(reference.name)
            if is_registered:
                registry.register(subject, inner, kind)
            done[id(reference.schema)] = inner, subject, registry.version_of(subject, inner, kind)
        inner, subject, version = done[id(reference.schema)]
        return replace(reference, schema=inner, subject=subject, version=version)

    def of(text: SchemaText) -> SchemaText:
        return SchemaText(text.text, tuple(versioned(reference) for reference in text.references))

    return of(schema)
