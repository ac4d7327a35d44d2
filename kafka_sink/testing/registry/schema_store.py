"""The subjects of the registry: their versions and ids, levels and modes, and the changes of them.

Called by the threads of the HTTP server, or directly by tests. It uses no socket. A state is replaced and never
modified, so readers take no lock. Schemas of clients are parsed and compared without one; the lock is held while a
change is checked against the current state, and stored. A change is on disk, if there is a file, before it is visible:
an id that was returned is never assigned to another schema.

Source: https://docs.confluent.io/platform/current/schema-registry/develop/api.html.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kafka_sink.broker.log.filesystem import CheckedFile
from kafka_sink.common.bounded import INT32_MAX, parsed_json, whole_number
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.text import words
from kafka_sink.registry.references import SubjectVersion
from kafka_sink.testing.registry.refusals import RefusalError
from kafka_sink.testing.registry.schemas import KeptSchema, problems


@dataclass(frozen=True)
class Version:
    """A schema in a subject. A deleted one can still be read by its id, and by its number on request."""

    schema_id: int
    schema: KeptSchema
    is_deleted: bool = False


@dataclass
class RegistryState:
    last_id: int = 0
    #: Subject → number → version, in the order of the numbers.
    subjects: dict[str, dict[int, Version]] = field(default_factory=dict)
    levels: dict[str, dict[str, Any]] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    #: The number of permanent deletions since the start, after which numbers may be reused. Not stored.
    drops: int = 0

    def copy(self) -> RegistryState:
        subjects = {name: dict(versions) for name, versions in self.subjects.items()}
        levels = {name: dict(level) for name, level in self.levels.items()}
        return RegistryState(self.last_id, subjects, levels, dict(self.modes), self.drops)

    def of_subject(self, name: str) -> object:
        """The part of the state on which the check of a new schema for the subject *name* depends."""
        scope = (name, "")
        return self.drops, self.subjects.get(name), [(self.levels.get(owner), self.modes.get(owner)) for owner in scope]

    def stored(self) -> bytes:
        subjects = {
            name: {
                number: {"id": version.schema_id, "deleted": version.is_deleted, **version.schema.shown()}
                for number, version in versions.items()
            }
            for name, versions in self.subjects.items()
        }
        state = {"lastId": self.last_id, "subjects": subjects, "levels": self.levels, "modes": self.modes}
        return json.dumps(state, ensure_ascii=False).encode()

    @classmethod
    def of(cls, stored: bytes) -> RegistryState:
        state = parsed_json(stored)
        subjects = {
            name: {
                whole_number(number, 1, INT32_MAX): Version(version["id"], KeptSchema.of(version), version["deleted"])
                for number, version in versions.items()
            }
            for name, versions in state["subjects"].items()
        }
        return cls(state["lastId"], subjects, state["levels"], state["modes"])

    def forget(self, subject: str, numbers: Sequence[int]) -> None:
        self.drops += 1
        for number in numbers:
            del self.subjects[subject][number]
        if not self.subjects[subject]:
            del self.subjects[subject]
            self.levels.pop(subject, None)
            self.modes.pop(subject, None)


LEVELS: Final = words("NONE BACKWARD BACKWARD_TRANSITIVE FORWARD FORWARD_TRANSITIVE FULL FULL_TRANSITIVE")
READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
IMPORT: Final = "IMPORT"
MODES: Final = (READWRITE, READONLY, IMPORT)
#: The subject whose level and mode are the defaults of all subjects.
GLOBAL: Final = ""
_LEVEL: Final = "compatibilityLevel"
#: Name in a request → the part of a level.
_LEVEL_WORDS: Final = {"compatibility": _LEVEL, "normalize": "normalize"}
#: The maximum number of checks of a schema whose subject changes during the check.
_MOST_TRIES: Final = 100


class SchemaStore:
    """The content of a registry, stored in *file* if there is one. A schema has the same id in every subject.

    :raises ConfigError: if the content of *file* is invalid.
    """

    def __init__(self, file: CheckedFile | None = None) -> None:
        self._file = file
        #: Held while a state is read in order to change it.
        self.lock = threading.RLock()
        stored = None if file is None else file.read()
        try:
            self._state = RegistryState() if stored is None else RegistryState.of(stored)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"{file and file.path} is of another version of kafkalite; remove it, or use that"
            ) from None

    @contextmanager
    def _changed(self) -> Iterator[RegistryState]:
        """A copy of the state for a change: stored and made visible unless an error occurs. Called under the lock."""
        draft = self._state.copy()
        yield draft
        if self._file is not None:
            try:
                self._file.write(draft.stored())
            except OSError as error:
                raise RefusalError(50001, error) from None
        self._state = draft

    # Versions

    def subjects(self, *, prefix: str = "", deleted: bool = False) -> list[str]:
        """The names of all subjects that begin with *prefix*; with *deleted*, of deleted ones, too."""
        return sorted(name for name in self._state.subjects if name.startswith(prefix) and self._live(name, deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> dict[int, Version]:
        """The versions of *subject* by their numbers; with *deleted*, deleted ones, too.

        :raises RefusalError: if there is no such subject.
        """
        versions = self._live(subject, deleted)
        if not versions:
            raise RefusalError(40401, subject)
        return versions

    def version(self, subject: str, number: str, *, deleted: bool = False) -> tuple[int, Version]:
        """A version of *subject*, by its *number* or as ``latest``, with its number.

        :raises RefusalError: if there is none.
        """
        wanted = _number(number)
        versions = self.versions(subject, deleted=deleted)
        if wanted < 0:
            wanted = max(self._live(subject), default=0)
        if wanted not in versions:
            raise RefusalError(40402, number)
        return wanted, versions[wanted]

    def latest_with(self, subject: str, properties: Mapping[str, str], *, deleted: bool = False) -> tuple[int, Version]:
        """The latest version of *subject* whose metadata has all *properties*, with its number.

        :raises RefusalError: if there is none.
        """
        for number, version in reversed(self.versions(subject, deleted=deleted).items()):
            if version.schema.properties.items() >= properties.items():
                return number, version
        raise RefusalError(40403, "")

    def everywhere(self, schema_id: int, *, deleted: bool = False) -> list[tuple[str, int, Version]]:
        """The subjects and numbers of the versions that have this id.

        :raises RefusalError: if no schema has it.
        """
        versions = [version for version in self.all(deleted=True) if version[2].schema_id == schema_id]
        if not versions:
            raise RefusalError(40403, f"{schema_id} ")
        return [version for version in versions if deleted or not version[2].is_deleted]

    def schema(self, schema_id: int) -> KeptSchema:
        """The schema with this id. :raises RefusalError: if there is none."""
        return self.everywhere(schema_id, deleted=True)[0][2].schema

    def all(self, *, deleted: bool = False) -> Iterator[tuple[str, int, Version]]:
        """Every version with its subject and number."""
        for subject in sorted(self._state.subjects):
            yield from ((subject, number, version) for number, version in self._live(subject, deleted).items())

    def referring(self, reference: SubjectVersion, *, deleted: bool = False) -> list[tuple[str, Version]]:
        """The versions that refer to *reference*, with their subjects."""
        return [
            (subject, version)
            for subject, _, version in self.all(deleted=deleted)
            if any(other == reference for _, other in version.schema.references)
        ]

    def ask(self, reference: SubjectVersion) -> Mapping[str, Any]:
        """The version *reference*, for schemas that refer to it, even if it is deleted."""
        return self.version(reference.subject, str(reference.version), deleted=True)[1].schema.shown()

    def find(
        self, subject: str, schema: KeptSchema, *, normalize: bool = False, deleted: bool = False
    ) -> tuple[int, Version]:
        """The version of *subject* that is equal to *schema*, with its number.

        :raises RefusalError: if there is none.
        """
        versions = self.versions(subject, deleted=deleted)
        # As at registration, where a schema inherits the contract of the version before it.
        for candidate in (schema, _inheriting(schema, list(self._live(subject).values()))):
            parsed = self._parsed(subject, candidate, normalize)
            for number, version in reversed(versions.items()):
                if parsed.is_found_as(version.schema, self.ask):
                    return number, version
        raise RefusalError(40403, "")

    def register(
        self, subject: str, schema: KeptSchema, *, normalize: bool = False, schema_id: int = -1, number: int = 0
    ) -> tuple[int, Version]:
        """The version of *subject* that is equal to *schema*, or a new one, with its number. *schema_id* and *number*
        are only allowed in the mode IMPORT, which does not check compatibility.

        :raises RefusalError: if it is no schema, not compatible with earlier versions, or not allowed in the mode.
        """
        for _ in range(_MOST_TRIES):
            seen = self._state.of_subject(subject)
            judged = self._judged(subject, schema, normalize, schema_id, number)
            if not isinstance(judged, KeptSchema):
                return judged
            with self.lock:
                if self._state.of_subject(subject) == seen:
                    return self._added(subject, judged, schema_id, number)
        raise RefusalError(50001, f"subject {subject} changes all the time; try again")

    def _judged(
        self, subject: str, schema: KeptSchema, normalize: bool, schema_id: int, number: int
    ) -> tuple[int, Version] | KeptSchema:
        """The version of *subject* that is equal to *schema*; without one, the parsed schema, which may be added."""
        if subject.startswith(":."):
            raise RefusalError(42208, subject)
        self._check_writable(subject)
        is_import = self.mode_in_scope(subject) == IMPORT
        if is_import != (schema_id >= 0):
            wanted = "read-write" if is_import else "import"
            raise RefusalError(42205, f"Subject {subject} in context . is not in {wanted} mode")
        if number and not is_import:
            raise RefusalError(42205, f"Subject {subject} in context . is not in import mode: leave version out")
        live = self._live(subject)
        parsed = self._parsed(subject, schema if is_import else _inheriting(schema, list(live.values())), normalize)
        for earlier, version in () if number else reversed(live.items()):
            if schema_id in (-1, version.schema_id) and parsed.is_found_as(version.schema, self.ask):
                return earlier, version
        if not is_import:
            reasons = self._reasons(subject, parsed, list(live.values()))
            if reasons:
                raise RefusalError(409, subject, "; ".join(reasons))
        return parsed

    def _added(self, subject: str, schema: KeptSchema, schema_id: int, number: int) -> tuple[int, Version]:
        of_ids = {version.schema_id: version.schema.identity for _, _, version in self.all(deleted=True)}
        if schema_id < 0:
            schema_id = next((used for used, identity in of_ids.items() if identity == schema.identity), schema_id)
        if of_ids.get(schema_id, schema.identity) != schema.identity:
            raise RefusalError(42205, f"Overwrite new schema with id {schema_id} in context . is not permitted.")
        with self._changed() as state:
            versions = state.subjects.setdefault(subject, {})
            number = number or max(versions, default=0) + 1
            version = Version(state.last_id + 1 if schema_id < 0 else schema_id, schema)
            state.last_id = max(state.last_id, version.schema_id)
            for earlier in [other for other, old in versions.items() if old.is_deleted and old.schema_id == schema_id]:
                if earlier < number and not self.referring(SubjectVersion(subject, earlier), deleted=True):
                    del versions[earlier]
                    state.drops += 1
            versions[number] = version
            state.subjects[subject] = dict(sorted(versions.items()))
        return number, version

    def incompatibilities(
        self, subject: str, schema: KeptSchema, number: str | None, *, normalize: bool = False
    ) -> list[str]:
        """The reasons why *schema* must not become a version of *subject*, compared with the version *number*, or with
        the versions that its level requires; empty if it may.

        :raises RefusalError: if it is no schema, if there is no such version, or if no judge can compare them.
        """
        live = self._live(subject)
        wanted = -1 if number is None else _number(number)
        if wanted > 0 and wanted not in live:
            raise RefusalError(40402, number)
        compared = (
            list(live.values()) if number is None else [live[wanted if wanted > 0 else max(live)]] if live else []
        )
        return self._reasons(subject, self._parsed(subject, schema, normalize), compared)

    def delete(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete the versions of *subject*; returns their numbers. With *permanent* they must be deleted already.

        :raises RefusalError: if there is no such subject, if it may not be deleted, or if others refer to it.
        """
        self._check_writable(subject)
        versions = self.versions(subject, deleted=True)
        live = self._live(subject)
        if not permanent and not live:
            raise RefusalError(40404, subject)
        numbers = list(versions if permanent else live)
        for number in numbers:
            self._check_unused(subject, number, deleted=permanent, besides=subject)
        if permanent and live:
            raise RefusalError(40405, subject)
        self._delete(subject, numbers, permanent)
        return numbers

    def delete_version(self, subject: str, wanted: str, *, permanent: bool = False) -> int:
        """As :meth:`delete`, for one version; returns its number."""
        number, version = self.version(subject, wanted, deleted=True)
        if version.is_deleted and not permanent:
            raise RefusalError(40406, subject, number)
        self._check_writable(subject)
        self._check_unused(subject, number, deleted=permanent)
        if permanent and not version.is_deleted:
            raise RefusalError(40407, subject, number)
        self._delete(subject, [number], permanent)
        return number

    # Levels and modes

    def level(self, subject: str = GLOBAL, *, in_scope: bool = False) -> dict[str, Any]:
        """The level of *subject*, with *in_scope* completed by the global one.

        :raises RefusalError: if it has none of its own, without *in_scope*.
        """
        everybody = {_LEVEL: "BACKWARD", **self._state.levels.get(GLOBAL, {})}
        own = self._state.levels.get(subject)
        if subject == GLOBAL or in_scope:
            return {**everybody, **(own or {})}
        if own is None:
            raise RefusalError(40408, subject)
        return dict(own)

    def set_level(self, words: Mapping[str, Any], subject: str = GLOBAL) -> None:
        """Set the level in *words*, the body of a request. :raises RefusalError: if a name or a value is invalid."""
        settings = {name: value for name, value in words.items() if value is not None}
        unkept = sorted(settings.keys() - _LEVEL_WORDS.keys())
        if unkept:
            raise RefusalError(42205, f"this registry does not keep {', '.join(unkept)}; leave it out")
        level, normal = str(settings.get("compatibility", LEVELS[0])).upper(), settings.get("normalize", False)
        if level not in LEVELS or not isinstance(normal, bool):
            raise RefusalError(42203, ", ".join(LEVELS))
        if "compatibility" in settings:
            settings["compatibility"] = level
        with self._changed() as state:
            state.levels.setdefault(subject, {}).update({_LEVEL_WORDS[name]: value for name, value in settings.items()})

    def delete_level(self, subject: str = GLOBAL) -> dict[str, Any]:
        """Remove the level of *subject* and return it. :raises RefusalError: if it has none."""
        if subject != GLOBAL and subject not in self._state.levels:
            raise RefusalError(40401, subject)
        level = self.level(subject)
        with self._changed() as state:
            state.levels.pop(subject, None)
        return level

    def mode_in_scope(self, subject: str) -> str:
        """The mode of *subject*, or the global one if it has none."""
        return self._state.modes.get(subject) or self._state.modes.get(GLOBAL, READWRITE)

    def mode(self, subject: str = GLOBAL, *, in_scope: bool = False) -> str:
        """The mode of *subject*. :raises RefusalError: if it has none of its own, without *in_scope*."""
        if subject != GLOBAL and not in_scope and subject not in self._state.modes:
            raise RefusalError(40409, subject)
        return self.mode_in_scope(subject)

    def set_mode(self, mode: str, subject: str = GLOBAL, *, force: bool = False) -> None:
        """Set the mode of *subject*. For IMPORT all its versions must be deleted, and are removed permanently; with
        *force* they are kept.

        :raises RefusalError: if there is no such mode, or if versions are not deleted.
        """
        mode = mode.upper()
        if mode not in MODES:
            raise RefusalError(42204, ", ".join(MODES))
        emptied = list(self._state.subjects) if subject == GLOBAL else [subject] * (subject in self._state.subjects)
        if mode != IMPORT or self.mode_in_scope(subject) == IMPORT or force:
            emptied = []
        for name in emptied:
            if self._live(name):
                raise RefusalError(42205, "Cannot import since found existing subjects")
            for number in self._live(name, deleted=True):
                self._check_unused(name, number, deleted=True)
        with self._changed() as state:
            for name in emptied:
                state.forget(name, list(state.subjects[name]))
            state.modes[subject] = mode

    def delete_mode(self, subject: str = GLOBAL) -> str:
        """Remove the mode of *subject* and return it. :raises RefusalError: if it has none."""
        if subject != GLOBAL and subject not in self._state.modes:
            raise RefusalError(40401, subject)
        mode = self.mode(subject)
        with self._changed() as state:
            state.modes.pop(subject, None)
        return mode

    # Common parts

    def _live(self, subject: str, deleted: bool = False) -> dict[int, Version]:
        versions = self._state.subjects.get(subject, {})
        return {number: version for number, version in versions.items() if deleted or not version.is_deleted}

    def _parsed(self, subject: str, schema: KeptSchema, normalize: bool) -> KeptSchema:
        if not schema.text.strip():
            raise RefusalError(42201, "Empty schema")
        is_normal = normalize or self.level(subject, in_scope=True).get("normalize", False)
        numbered = tuple((name, self._numbered(name, reference)) for name, reference in schema.references)
        return replace(schema, references=numbered).parsed(self.ask, is_normal=is_normal)

    def _numbered(self, name: str, reference: SubjectVersion) -> SubjectVersion:
        try:
            return SubjectVersion(
                reference.subject, self.version(reference.subject, str(reference.version), deleted=True)[0]
            )
        except RefusalError as error:
            raise RefusalError(42201, f"no schema is found for the reference {name}: {error}") from None

    def _check_writable(self, subject: str) -> None:
        if self.mode_in_scope(subject) == READONLY:
            raise RefusalError(42205, f"Subject {subject} in context . is in read-only mode")

    def _check_unused(self, subject: str, number: int, *, deleted: bool, besides: str | None = None) -> None:
        if any(
            referring != besides for referring, _ in self.referring(SubjectVersion(subject, number), deleted=deleted)
        ):
            raise RefusalError(42206, number, subject)

    def _delete(self, subject: str, numbers: Sequence[int], permanent: bool) -> None:
        with self._changed() as state:
            if permanent:
                state.forget(subject, numbers)
            else:
                versions = state.subjects[subject]
                versions.update({number: replace(versions[number], is_deleted=True) for number in numbers})

    def _reasons(self, subject: str, new: KeptSchema, earlier: Sequence[Version]) -> list[str]:
        level = self.level(subject, in_scope=True)[_LEVEL]
        reasons: list[str] = []
        for version in earlier if level.endswith("_TRANSITIVE") else earlier[-1:]:
            old = version.schema
            if level.startswith(("BACKWARD", "FULL")):
                reasons += problems(new, old, self.ask)
            if level.startswith(("FORWARD", "FULL")):
                reasons += [f"{problem} (of the earlier schema)" for problem in problems(old, new, self.ask)]
        return reasons


def _inheriting(schema: KeptSchema, earlier: Sequence[Version]) -> KeptSchema:
    """*schema* with the missing parts of the contract of the latest version; if it is empty, with its text, too."""
    if not earlier:
        return schema
    latest = earlier[-1].schema
    if not schema.text.strip():
        schema = replace(schema, kind=latest.kind, text=latest.text, references=latest.references)
    return replace(schema, contract={**latest.contract, **schema.contract})


def _number(wanted: str) -> int:
    """The version number in *wanted*; -1 for the latest."""
    if wanted in ("latest", "-1"):
        return -1
    number = int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) <= 10 else 0
    if not 1 <= number <= INT32_MAX:
        raise RefusalError(42202, wanted)
    return number
