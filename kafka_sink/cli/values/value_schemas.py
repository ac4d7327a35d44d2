"""By which schema of a registry the command line writes keys and values.

Runs on the main thread, before any line is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_sink.formats.by_name import format_of
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.registry.client import RegisteredSchema, RegistryClient
from kafka_sink.registry.subjects import subject_name

KEY: Final = "key"
VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """The keys or values of *topic*, called *column*, in the format *form*, by the schema in *schema_file* (None: the
    latest one of the subject). *message* is one of a schema of Protobuf, by default the first.
    """

    topic: str
    column: str
    form: str
    schema_file: Path | None = None
    message: str | None = None


def registered(registry: RegistryClient, written: TypedColumn, given: ColumnFormat | None) -> RegisteredSchema:
    """The schema of *given*, which is registered or looked up as the options say; else the latest one of the subject.

    :raises FormatError: if the schema is invalid, or cannot be registered.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    strategy = registry.config.key_strategy if written.column == KEY else registry.config.value_strategy
    kind = written.form.upper()
    if given is None:
        return registry.latest(subject_name(strategy, written.column, written.topic, None), kind)
    subject = subject_name(strategy, written.column, written.topic, format_of(given.name).record_name(given))
    ask: Callable[[str, str, str], int] = registry.register if registry.config.auto_register else registry.id_of
    return RegisteredSchema(ask(subject, format_of(given.name).registered_schema(given), kind), given.schema)
