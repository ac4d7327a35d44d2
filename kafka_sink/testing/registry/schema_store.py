"""The subjects of a registry in memory: their versions, ids and compatibility, and the answer to each request.

Called under one lock by the HTTP server, or directly by tests. It knows no socket.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kafka_sink.formats.avro.linking import linked as linked_avro
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.avro.schema import AvroType
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.compatibility import parse_schema as parse_json_schema
from kafka_sink.formats.json.compatibility import problems as json_problems
from kafka_sink.formats.protobuf.descriptors import linked
from kafka_sink.formats.protobuf.parsing import file_descriptor, parse_file
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.registry.errors import UnusableSchemaError
from kafka_sink.registry.references import AVRO, JSON, PROTOBUF, Place, places_of, resolved
from kafka_sink.testing.registry.avro_judge import problems
from kafka_sink.testing.registry.protobuf_judge import problems as protobuf_problems

LEVELS: Final = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)


class RefusalError(Exception):
    """A request that the registry refuses, with HTTP's status and Confluent's code."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Schema:
    """A schema of one of :data:`KINDS`, and the names and places of those that it refers to."""

    kind: str
    text: str
    references: tuple[tuple[str, Place], ...] = ()

    def shown(self) -> dict[str, Any]:
        """As a registry answers it: Avro is not mentioned."""
        found = {"schema": self.text} if self.kind == AVRO else {"schemaType": self.kind, "schema": self.text}
        listed = [{"name": name, "subject": place.subject, "version": place.version} for name, place in self.references]
        return {**found, "references": listed} if listed else found


@dataclass(frozen=True)
class _Version:
    schema_id: int
    schema: Schema


@dataclass
class SchemaStore:
    """All that a registry keeps. A schema has the same id in every subject."""

    _ids: dict[str, int] = field(default_factory=dict)
    _schemas: dict[int, Schema] = field(default_factory=dict)
    _subjects: dict[str, list[_Version]] = field(default_factory=dict)
    _levels: dict[str, str] = field(default_factory=dict)

    def subjects(self) -> list[str]:
        """The names of all subjects."""
        return sorted(self._subjects)

    def register(self, subject: str, schema: Schema) -> int:
        """The id of *schema*, which becomes a version of *subject* if it is none.

        :raises RefusalError: if it is no schema, or not compatible with earlier versions.
        """
        schema = self._with_numbers(schema)
        canonical = self._canonical(schema)
        versions = self._subjects.get(subject, [])
        for version in versions:
            if self._canonical(version.schema) == canonical:
                return version.schema_id
        reasons = self.incompatibilities(subject, schema)
        if reasons:
            raise RefusalError(
                409,
                409,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
                f"[{'; '.join(reasons)}]",
            )
        schema_id = self._ids.setdefault(canonical, len(self._ids) + 1)
        self._schemas.setdefault(schema_id, schema)
        self._subjects.setdefault(subject, []).append(_Version(schema_id, schema))
        return schema_id

    def incompatibilities(self, subject: str, schema: Schema) -> list[str]:
        """Why *schema* must not become a version of *subject*; nothing if it may.

        :raises RefusalError: if it is no schema.
        """
        self._canonical(schema)
        level = self.level(subject)
        versions = self._subjects.get(subject, [])
        if level == "NONE" or not versions:
            return []
        compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
        return list(self._reasons(level, schema, compared))

    def find(self, subject: str, schema: Schema) -> dict[str, Any]:
        """The version of *subject* that *schema* is.

        :raises RefusalError: if there is none.
        """
        canonical = self._canonical(self._with_numbers(schema))
        for number, version in enumerate(self._versions(subject), 1):
            if self._canonical(version.schema) == canonical:
                return _shown(subject, number, version)
        raise RefusalError(404, 40403, "Schema not found")

    def versions(self, subject: str) -> list[int]:
        """The numbers of the versions of *subject*.

        :raises RefusalError: if there is no such subject.
        """
        return list(range(1, len(self._versions(subject)) + 1))

    def version(self, subject: str, number: str) -> dict[str, Any]:
        """A version of *subject*, by its *number* or as ``latest``.

        :raises RefusalError: if there is none.
        """
        index, version = self._version(subject, number)
        return _shown(subject, index, version)

    def referring(self, subject: str, number: str) -> list[int]:
        """The ids of the schemas that refer to a version of *subject*.

        :raises RefusalError: if there is none.
        """
        index, _ = self._version(subject, number)
        return sorted({each.schema_id for each in self._referring(Place(subject, index))})

    def schema(self, schema_id: str) -> Schema:
        """The schema with this id.

        :raises RefusalError: if there is none.
        """
        found = self._schemas.get(int(schema_id)) if schema_id.isdecimal() else None
        if found is None:
            raise RefusalError(404, 40403, f"Schema {schema_id} not found")
        return found

    def level(self, subject: str = "") -> str:
        """The compatibility that is asked of *subject*; of all others, if it is empty."""
        return self._levels.get(subject) or self._levels.get("", LEVELS[0])

    def set_level(self, level: str, subject: str = "") -> None:
        """:raises RefusalError: if there is no such *level*."""
        if level not in LEVELS:
            raise RefusalError(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
        self._levels[subject] = level

    def delete(self, subject: str) -> list[int]:
        """Forget the versions of *subject*, not the ids; the numbers of the versions.

        :raises RefusalError: if there is no such subject.
        """
        numbers = self.versions(subject)
        for number in numbers:
            if any(self._referring(Place(subject, number))):
                raise RefusalError(
                    422,
                    42206,
                    f"One or more references exist to the schema of version {number} of subject '{subject}'.",
                )
        del self._subjects[subject]
        return numbers

    def _versions(self, subject: str) -> Sequence[_Version]:
        if subject not in self._subjects:
            raise RefusalError(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]

    def serialized(self, answered: Any) -> Any:
        """*answered*, with a schema of Protobuf as its descriptor in base64, for clients that do not parse text."""
        if not isinstance(answered, dict) or answered.get("schemaType") != PROTOBUF:
            return answered
        listed = tuple(places_of(answered.get("references", ()), ""))
        text = linked(self._resolved(Schema(PROTOBUF, answered["schema"], listed)))
        return {**answered, "schema": file_descriptor(text)}

    def _version(self, subject: str, number: str) -> tuple[int, _Version]:
        versions = self._versions(subject)
        index = len(versions) if number in ("latest", "-1") else int(number) if number.isdecimal() else 0
        if not 1 <= index <= len(versions):
            raise RefusalError(404, 40402, f"Version {number} not found.")
        return index, versions[index - 1]

    def _referring(self, place: Place) -> Iterator[_Version]:
        for versions in self._subjects.values():
            for version in versions:
                if any(each == place for _, each in version.schema.references):
                    yield version

    def _with_numbers(self, schema: Schema) -> Schema:
        """*schema* with the number of the version where it refers to the latest one."""
        numbered = tuple(
            (name, Place(place.subject, self._version(place.subject, str(place.version))[0]))
            for name, place in self._checked(schema)
        )
        return replace(schema, references=numbered)

    def _checked(self, schema: Schema) -> tuple[tuple[str, Place], ...]:
        for name, place in schema.references:
            try:
                self._version(place.subject, str(place.version))
            except RefusalError as error:
                raise RefusalError(
                    422, 42201, f"Invalid schema: no schema is found for the reference {name}: {error}"
                ) from None
        return schema.references

    def _resolved(self, schema: Schema) -> SchemaText:
        """*schema* with all that it refers to."""

        def ask(place: Place) -> Any:
            return self.version(place.subject, str(place.version))

        try:
            return resolved("the schema", schema.shown(), schema.kind, ask)
        except UnusableSchemaError as error:
            raise RefusalError(422, 42201, f"Invalid schema: {error}") from None

    def _canonical(self, schema: Schema) -> str:
        """The same text for the same JSON, or the same descriptor of Protobuf, of the same type.

        :raises RefusalError: if it is no schema.
        """
        text = self._resolved(Schema(schema.kind, schema.text, self._checked(schema)))
        try:
            if schema.kind == PROTOBUF:
                parse_file(linked(text))
                found = file_descriptor(linked(text), is_named=False)
            else:
                (parse_json_schema if schema.kind == JSON else _parse_avro)(text)
                found = json.dumps(json.loads(schema.text), separators=(",", ":"))
        except (FormatError, ValueError) as error:
            raise RefusalError(422, 42201, f"Invalid schema: {error}") from None
        return f"{schema.kind} {found} {schema.references}"

    def _reasons(self, level: str, new: Schema, earlier: Sequence[_Version]) -> Iterator[str]:
        for version in earlier:
            old = version.schema
            if new.kind != old.kind:
                yield f"the type is {new.kind}, and was {old.kind}"
                continue
            if level.startswith(("BACKWARD", "FULL")):
                yield from _problems(new.kind, self._resolved(new), self._resolved(old))
            if level.startswith(("FORWARD", "FULL")):
                for problem in _problems(new.kind, self._resolved(old), self._resolved(new)):
                    yield f"{problem} (of the earlier schema)"


def _shown(subject: str, number: int, version: _Version) -> dict[str, Any]:
    return {"subject": subject, "version": number, "id": version.schema_id, **version.schema.shown()}


def _parse_avro(schema: SchemaText) -> AvroType:
    return parse_schema(linked_avro(schema))


def _problems(kind: str, reader: SchemaText, writer: SchemaText) -> Iterator[str]:
    if kind == PROTOBUF:
        return protobuf_problems(parse_file(linked(reader)), parse_file(linked(writer)))
    if kind == AVRO:
        return problems(_parse_avro(reader), _parse_avro(writer))
    return json_problems(parse_json_schema(reader), parse_json_schema(writer))
