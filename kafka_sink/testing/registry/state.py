"""What the registry keeps, as values: copied before it is changed, and stored as one text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.common.bounded import INT32_MAX, parsed_json, whole_number
from kafka_sink.testing.registry.schemas import Schema


@dataclass(frozen=True)
class Version:
    """A schema in a subject. One that is deleted can still be read by those who know it."""

    schema_id: int
    schema: Schema
    is_deleted: bool = False


@dataclass
class State:
    last_id: int = 0
    #: Subject → number → version, in the order of the numbers.
    subjects: dict[str, dict[int, Version]] = field(default_factory=dict)
    levels: dict[str, dict[str, Any]] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    #: How often versions were dropped for ever since the start: others may get their numbers. Not stored.
    drops: int = 0

    def copy(self) -> State:
        subjects = {name: dict(versions) for name, versions in self.subjects.items()}
        levels = {name: dict(level) for name, level in self.levels.items()}
        return State(self.last_id, subjects, levels, dict(self.modes), self.drops)

    def of_subject(self, name: str) -> object:
        """All by which a schema is judged that is registered for the subject *name*, and refers to others."""
        scope = (name, "")
        return self.drops, self.subjects.get(name), [(self.levels.get(each), self.modes.get(each)) for each in scope]

    def stored(self) -> bytes:
        subjects = {
            name: {
                number: {"id": each.schema_id, "deleted": each.is_deleted, **each.schema.shown()}
                for number, each in versions.items()
            }
            for name, versions in self.subjects.items()
        }
        state = {"lastId": self.last_id, "subjects": subjects, "levels": self.levels, "modes": self.modes}
        return json.dumps(state, ensure_ascii=False).encode()

    @classmethod
    def of(cls, stored: bytes) -> State:
        state = parsed_json(stored)
        subjects = {
            name: {
                whole_number(number, 1, INT32_MAX): Version(each["id"], Schema.of(each), each["deleted"])
                for number, each in versions.items()
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
