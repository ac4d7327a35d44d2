"""What was made of the schemas of a registry, by their ids: each is asked for once, and not all are kept.

A record names the id of its schema, so whoever may write to a topic chooses which ones are asked for. What the registry
answers for an id concerns the records of that id alone. A registry that cannot be reached is left alone for a while, in
which the schemas that are kept serve on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import KafkaError, SerializationError
from kafka_sink.formats.errors import FormatError, schema_boundary
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.registry.errors import RegistryError, RegistryUnavailableError

T = TypeVar("T")

#: What is made of a schema takes some 15 times the memory of its text.
_MOST_CHARACTERS: Final = 1 << 20
#: An id that is not there is remembered too.
_ENTRY_CHARACTERS: Final = 256
#: So long a refusal is remembered, and a registry that cannot be reached, which takes seconds for each question.
_PAUSE_MS: Final = 30_000
#: Of a reason so much is shown for each record.
_SHOWN: Final = 1_000

_log = logging.getLogger(__name__)


class KeptSchemas(Generic[T]):
    """What *made* makes of the schema that *schema_of* gives for an id. Any thread may use it."""

    def __init__(
        self, schema_of: Callable[[int], SchemaText], made: Callable[[SchemaText], T], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._schema_of, self._made, self._clock = schema_of, made, clock
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[int, T]] = {}
        self._characters = 0
        #: Why an id cannot be used, and from when on it is asked for again; None stands for every id.
        self._refused: dict[int | None, tuple[int, str]] = {}

    def of(self, schema_id: int) -> T:
        """What was made of the schema with this id.

        :raises SerializationError: if it is not there, or cannot be used, or if the registry cannot be reached.
        """
        with self._lock:
            if schema_id not in self._kept:
                self._check_refused(schema_id)
                self._keep(schema_id, *self._make(schema_id))
            return self._kept[schema_id][1]

    def _check_refused(self, schema_id: int) -> None:
        now_ms = self._clock.monotonic_ms()
        for refused in (schema_id, None):
            until_ms, reason = self._refused.get(refused, (0, ""))
            if now_ms < until_ms:
                raise SerializationError(reason)

    def _make(self, schema_id: int) -> tuple[int, T]:
        try:
            schema = self._schema_of(schema_id)
            with schema_boundary("schema"):
                return len(schema.text) + sum(map(len, schema.others().values())), self._made(schema)
        except RegistryUnavailableError as error:
            _log.warning("schemas are not asked for again for %d s: %s", _PAUSE_MS // 1000, error)
            raise self._refuse(None, "its schema is not known", error) from None
        except (RegistryError, FormatError) as error:
            raise self._refuse(schema_id, f"schema {schema_id} cannot be used", error) from None

    def _refuse(self, schema_id: int | None, what: str, error: KafkaError) -> SerializationError:
        now_ms = self._clock.monotonic_ms()
        if len(self._refused) * _ENTRY_CHARACTERS > _MOST_CHARACTERS:
            self._refused.clear()
        reason = f"{what}: {error!s:.{_SHOWN}}"
        self._refused[schema_id] = now_ms + _PAUSE_MS, reason
        return SerializationError(reason)

    def _keep(self, schema_id: int, characters: int, value: T) -> None:
        self._kept[schema_id] = characters + _ENTRY_CHARACTERS, value
        self._characters += characters + _ENTRY_CHARACTERS
        while self._characters > _MOST_CHARACTERS and len(self._kept) > 1:
            self._characters -= self._kept.pop(next(iter(self._kept)))[0]
