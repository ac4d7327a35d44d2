"""By which schema of a registry the command line writes keys and values.

Runs on the main thread, before any line is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from kafka_sink.formats.column_format import ColumnFormat, format_of
from kafka_sink.formats.files import read_schema
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.references import settled
from kafka_sink.registry.subjects import subject_name

KEY: Final = "key"
VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """The keys or values of *topic*, called *column*, in the format *form*, by the schema in *schema_file*, a file or a
    folder (None: the latest one of the subject). *message* is one of a schema of Protobuf, by default the first.
    """

    topic: str
    column: str
    form: str
    schema_file: Path | None = None
    message: str | None = None


def registered(registry: RegistryClient, written: TypedColumn, column_format: ColumnFormat | None) -> tuple[int, str]:
    """The id and the linked text of the schema of *column_format*, which is registered or looked up as the options say;
    else of the latest one of the subject.

    :raises FormatError: if the schema is invalid, or cannot be registered.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    strategy = registry.config.key_strategy if written.column == KEY else registry.config.value_strategy
    kind = written.form.upper()
    if column_format is None:
        latest = registry.latest(subject_name(strategy, written.column, written.topic, None), kind)
        return latest.schema_id, format_of(written.form).linked(latest.schema)
    form, config = format_of(column_format.name), registry.config
    subject = subject_name(strategy, written.column, written.topic, form.record_name(column_format))
    schema, is_registered = form.registered_schema(column_format), config.auto_register
    schema = settled(schema, kind, registry, config.reference_subject, is_registered=is_registered)
    ask = registry.register if is_registered else registry.id_of
    return ask(subject, schema, kind), column_format.schema


def given_form(written: TypedColumn) -> ColumnFormat | None:
    """The form by the schema that is given; None if none is.

    :raises FormatError: if it is invalid, or a package is missing.
    """
    if written.schema_file is None:
        return None
    schema = read_schema(written.form, [written.schema_file], written.message)
    # What the rows are does not matter to Avro and Protobuf.
    return format_of(written.form).given(schema, pa.null(), written.column, written.message)
