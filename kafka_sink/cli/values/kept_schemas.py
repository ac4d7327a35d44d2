"""What was made of the schemas of a registry, by their ids: each is asked for once, and not all are kept.

A record names the id of its schema, so whoever may write to a topic chooses which ones are asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from kafka_sink.common.errors import SerializationError
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.registry.errors import SchemaNotFoundError, UnusableSchemaError

T = TypeVar("T")

#: What is made of a schema takes some 15 times the memory of its text.
_MOST_CHARACTERS: Final = 1 << 20
#: An id that is not there is remembered too.
_ENTRY_CHARACTERS: Final = 256


class KeptSchemas(Generic[T]):
    """What *made* makes of the schema that *asked* gives for an id. Any thread may use it."""

    def __init__(self, asked: Callable[[int], SchemaText], made: Callable[[SchemaText], T]) -> None:
        self._asked, self._made = asked, made
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[int, T | SerializationError]] = {}
        self._characters = 0

    def of(self, schema_id: int) -> T:
        """What was made of the schema with this id.

        :raises SerializationError: if it is not there, or cannot be used.
        :raises RegistryError: if the registry cannot be reached.
        """
        with self._lock:
            if schema_id not in self._kept:
                self._keep(schema_id, *self._make(schema_id))
            found = self._kept[schema_id][1]
        if isinstance(found, SerializationError):
            raise SerializationError(str(found))
        return found

    def _make(self, schema_id: int) -> tuple[int, T | SerializationError]:
        try:
            schema = self._asked(schema_id)
            return len(schema.text) + sum(map(len, schema.others().values())), self._made(schema)
        except (SchemaNotFoundError, UnusableSchemaError, FormatError) as error:
            return 0, SerializationError(f"schema {schema_id} cannot be used: {error}")

    def _keep(self, schema_id: int, characters: int, found: T | SerializationError) -> None:
        self._kept[schema_id] = characters + _ENTRY_CHARACTERS, found
        self._characters += characters + _ENTRY_CHARACTERS
        while self._characters > _MOST_CHARACTERS and len(self._kept) > 1:
            self._characters -= self._kept.pop(next(iter(self._kept)))[0]
