"""The subjects of a registry in memory: their versions, ids and compatibility, and the answer to each request.

Called under one lock by the HTTP server, or directly by tests. It knows no socket.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafka_sink.formats.avro.compatibility import problems
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.errors import FormatError

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
class _Schema:
    schema_id: int
    text: str


@dataclass
class SchemaStore:
    """All that a registry keeps. A schema has the same id in every subject."""

    _ids: dict[str, int] = field(default_factory=dict)
    _texts: dict[int, str] = field(default_factory=dict)
    _subjects: dict[str, list[_Schema]] = field(default_factory=dict)
    _levels: dict[str, str] = field(default_factory=dict)

    def subjects(self) -> list[str]:
        """The names of all subjects."""
        return sorted(self._subjects)

    def register(self, subject: str, text: str) -> int:
        """The id of *text*, which becomes a version of *subject* if it is none.

        :raises RefusalError: if it is no schema of Avro, or not compatible with earlier versions.
        """
        canonical = _canonical(text)
        versions = self._subjects.get(subject, [])
        for version in versions:
            if _canonical(version.text) == canonical:
                return version.schema_id
        reasons = self.incompatibilities(subject, text)
        if reasons:
            raise RefusalError(
                409,
                409,
                f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
                f"[{'; '.join(reasons)}]",
            )
        schema_id = self._ids.setdefault(canonical, len(self._ids) + 1)
        self._texts.setdefault(schema_id, text)
        self._subjects.setdefault(subject, []).append(_Schema(schema_id, text))
        return schema_id

    def incompatibilities(self, subject: str, text: str) -> list[str]:
        """Why *text* must not become a version of *subject*; nothing if it may.

        :raises RefusalError: if it is no schema of Avro.
        """
        _canonical(text)
        level = self.level(subject)
        versions = self._subjects.get(subject, [])
        if level == "NONE" or not versions:
            return []
        compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
        return list(_reasons(level, text, compared))

    def find(self, subject: str, text: str) -> dict[str, Any]:
        """The version of *subject* that *text* is.

        :raises RefusalError: if there is none.
        """
        canonical = _canonical(text)
        for number, version in enumerate(self._versions(subject), 1):
            if _canonical(version.text) == canonical:
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
        versions = self._versions(subject)
        index = len(versions) if number == "latest" else int(number) if number.isdecimal() else 0
        if not 1 <= index <= len(versions):
            raise RefusalError(404, 40402, f"Version {number} not found.")
        return _shown(subject, index, versions[index - 1])

    def schema(self, schema_id: str) -> str:
        """The schema with this id.

        :raises RefusalError: if there is none.
        """
        found = self._texts.get(int(schema_id)) if schema_id.isdecimal() else None
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
        del self._subjects[subject]
        return numbers

    def _versions(self, subject: str) -> Sequence[_Schema]:
        if subject not in self._subjects:
            raise RefusalError(404, 40401, f"Subject '{subject}' not found.")
        return self._subjects[subject]


def _shown(subject: str, number: int, version: _Schema) -> dict[str, Any]:
    return {"subject": subject, "version": number, "id": version.schema_id, "schema": version.text}


def _canonical(text: str) -> str:
    """The same text for the same JSON.

    :raises RefusalError: if *text* is no schema of Avro.
    """
    try:
        parse_schema(text)
        return json.dumps(json.loads(text), separators=(",", ":"))
    except (FormatError, ValueError) as error:
        raise RefusalError(422, 42201, f"Invalid schema: {error}") from None


def _reasons(level: str, text: str, earlier: Sequence[_Schema]) -> Iterator[str]:
    new = parse_schema(text)
    for version in earlier:
        old = parse_schema(version.text)
        if level.startswith(("BACKWARD", "FULL")):
            yield from problems(new, old)
        if level.startswith(("FORWARD", "FULL")):
            for problem in problems(old, new):
                yield f"{problem} (of the earlier schema)"
