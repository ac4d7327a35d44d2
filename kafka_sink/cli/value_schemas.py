"""By which schema of a registry the command line writes values. Runs on the main thread, before any line is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.formats.encoders import record_name, registered_schema
from kafka_sink.registry.client import RegisteredSchema, RegistryClient
from kafka_sink.registry.subjects import subject_name

VALUE: Final = "value"


def value_schema(registry: RegistryClient, topic: str, form: str, given: ColumnFormat | None) -> RegisteredSchema:
    """The schema of *given*, which is registered or looked up as the options say; else the latest one of the subject,
    of the format *form*.

    :raises FormatError: if the schema is invalid, or cannot be registered.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    strategy, kind = registry.config.value_strategy, form.upper()
    if given is None:
        return registry.latest(subject_name(strategy, VALUE, topic, None), kind)
    subject = subject_name(strategy, VALUE, topic, record_name(given))
    ask: Callable[[str, str, str], int] = registry.register if registry.config.auto_register else registry.id_of
    return RegisteredSchema(ask(subject, registered_schema(given), kind), given.schema)
