"""The schemas of a registry by which the command line writes keys and values, and those by which it reads them.

A schema to write by is chosen on the main thread, before any line is read. A record names the id of its schema, so
whoever may write to a topic chooses which ones are asked for: each is asked for once, and not all are kept. What the
registry answers for an id concerns the records of that id alone. A registry that cannot be reached is left alone for a
while, in which the schemas that are kept serve on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import pyarrow as pa

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import KafkaError, RegistryError, RegistryUnavailableError, SerializationError
from kafka_sink.formats.column_format import format_of
from kafka_sink.formats.errors import FormatError, schema_boundary
from kafka_sink.formats.files import read_schema
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.references import with_versions
from kafka_sink.registry.subjects import subject_name

KEY: Final = "key"
VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """The keys or values of *topic*, called *column*, in the format *form*, by the schema in *schema_file*, a file or a
    folder (None: the latest one of the subject). *message* is one of a schema of Protobuf, by default the first."""

    topic: str
    column: str
    form: str
    schema_file: Path | None = None
    message: str | None = None


def registered(registry: RegistryClient, written: TypedColumn) -> tuple[int, str]:
    """The id and the linked text of the schema in the file, which is registered or looked up as the options say; else
    of the latest one of the subject.

    :raises FormatError: if the schema is invalid, or cannot be registered, or a package is missing.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    strategy = registry.config.key_strategy if written.column == KEY else registry.config.value_strategy
    kind, form, config = written.form.upper(), format_of(written.form), registry.config
    if written.schema_file is None:
        latest = registry.latest(subject_name(strategy, written.column, written.topic, None), kind)
        return latest.schema_id, form.linked(latest.schema)
    in_file = read_schema(written.form, [written.schema_file], written.message)
    # What the rows are does not matter to Avro and Protobuf.
    column_format = form.given(in_file, pa.null(), written.column, written.message)
    subject = subject_name(strategy, written.column, written.topic, form.record_name(column_format))
    schema, is_registered = form.registered_schema(column_format), config.auto_register
    schema = with_versions(schema, kind, registry, config.reference_subject, is_registered=is_registered)
    ask = registry.register if is_registered else registry.id_of
    return ask(subject, schema, kind), column_format.schema


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
                characters, value = self._make(schema_id)
                self._kept[schema_id] = characters + _ENTRY_CHARACTERS, value
                self._characters += characters + _ENTRY_CHARACTERS
                while self._characters > _MOST_CHARACTERS and len(self._kept) > 1:
                    self._characters -= self._kept.pop(next(iter(self._kept)))[0]
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
            _log.warning("the next request for a schema follows after %d s: %s", _PAUSE_MS // 1000, error)
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
