"""Decides on the driver, before any task, by which schema the key and the value are written.

Called in Spark's planner process or in the user's. A schema is derived from the column, or given in an option. Columns
that do not fit are refused here. It never reads a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import DataType, StructType

from kafka_sink.common.errors import ConfigError
from kafka_sink.formats.column_format import JSON, PROTOBUF, ColumnFormat
from kafka_sink.registry.subjects import message_position, wire_header
from kafka_sink.spark.driver.registration import Registration, registration_of
from kafka_sink.spark.options import SinkOptions, WantedFormat

if TYPE_CHECKING:
    import pyarrow as pa

#: What a schema in an option begins with; anything else but a primitive type's name is the name of a file.
_BEGINNINGS: Final = ("{", "[", '"')

#: A schema is a few kilobytes, and more with all that it imports; a larger file is another one.
_MAX_SCHEMA_BYTES: Final = 8 << 20


def formats_of(schema: StructType, options: SinkOptions) -> list[ColumnFormat]:
    """The formats of the columns of *schema* that are written in one.

    :raises ConfigError: if a schema cannot be read, or does not fit the column; the text names the column by its path.
    """
    registry = registration_of(options.registry_properties, options.topic)
    return [
        _format_of(each, _arrow_type(schema[each.column].dataType, each.column), registry)
        for each in options.wanted_formats
    ]


def _format_of(wanted: WantedFormat, kind: pa.DataType, registry: Registration | None) -> ColumnFormat:
    # Only writes with a format load Arrow in this process.
    from kafka_sink.formats.by_name import format_of

    column, name = wanted.column, wanted.name
    latest = None if registry is None else registry.latest(column, name)
    forms: Sequence[ColumnFormat]
    if latest is not None:
        forms = [format_of(name).given(latest.schema, kind, column, wanted.message)]
    elif name == JSON and registry is None:
        # JSON needs no schema to be written or read.
        forms = [ColumnFormat(column, name, "")]
    else:
        forms = _forms(wanted, kind, is_registered=registry is not None)
    # Refuses what the tasks could not write.
    format_of(name).encoder(forms[0], kind)
    if registry is None:
        return forms[0]
    ready, schema_id = registry.registered(forms) if latest is None else (forms[0], latest.schema_id)
    return replace(ready, prefix=wire_header(schema_id) + _position(ready))


def _forms(wanted: WantedFormat, kind: pa.DataType, *, is_registered: bool) -> Sequence[ColumnFormat]:
    """*wanted* by its given schema, or by those that are derived for rows of the type *kind*."""
    from kafka_sink.formats.by_name import format_of

    form = format_of(wanted.name)
    if wanted.schema is not None:
        return [form.given(schema_text(wanted), kind, wanted.column, wanted.message)]
    return form.registrable(kind, wanted.column) if is_registered else [form.derived(kind, wanted.column)]


def forms_to_register(wanted: WantedFormat, schema: StructType) -> Sequence[ColumnFormat]:
    """The forms of a column of *schema*, the one first whose schema a registry would get
    (:meth:`~kafka_sink.formats.by_name.Format.registrable`).

    :raises ConfigError: as :func:`formats_of` does.
    """
    from kafka_sink.formats.by_name import format_of

    kind = _arrow_type(schema[wanted.column].dataType, wanted.column)
    forms = _forms(wanted, kind, is_registered=True)
    format_of(wanted.name).encoder(forms[0], kind)
    return forms


def _position(form: ColumnFormat) -> bytes:
    """Where the message stands in the schema: Protobuf's payloads have it after the id."""
    if form.name != PROTOBUF:
        return b""
    from kafka_sink.formats.protobuf.column import messages_of

    return message_position(messages_of(form).position)


def _arrow_type(kind: DataType, column: str) -> pa.DataType:
    from kafka_sink.spark.arrow_types import arrow_type

    return arrow_type(kind, column)


def registered_schema(wanted: WantedFormat) -> str:
    """The schema that the option is, as a registry gets it.

    :raises ConfigError: as :func:`schema_text` does, and if the schema cannot be registered.
    """
    text = schema_text(wanted)
    if wanted.name != PROTOBUF:
        return text
    from kafka_sink.formats.protobuf.parsing import registered_text

    return registered_text(text, wanted.message)


def schema_text(wanted: WantedFormat) -> str:
    """The schema that the option is, or that the file of this name holds. Text of Protobuf has braces, and names of
    files have none.

    :raises ConfigError: if the file cannot be read.
    """
    from kafka_sink.formats.avro.schema import PRIMITIVES

    given, is_protobuf = wanted.schema or "", wanted.name == PROTOBUF
    is_itself = "{" in given if is_protobuf else given.startswith(_BEGINNINGS) or given in PRIMITIVES
    if is_itself:
        return given
    path = Path(given.removeprefix("file:"))
    try:
        size = path.stat().st_size
        if size > _MAX_SCHEMA_BYTES:
            raise ConfigError(
                f"option {wanted.column}.schema: the file {given} has {size} bytes, and a schema at most "
                f"{_MAX_SCHEMA_BYTES}; name the file of the schema"
            )
        return _read_protobuf(path) if is_protobuf else path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        itself = "the schema itself" if is_protobuf else "the schema itself as JSON"
        raise ConfigError(
            f"option {wanted.column}.schema: the file {given} cannot be read on the driver ({reason}); name the file "
            f"of a schema, or give {itself}"
        ) from None


def _read_protobuf(path: Path) -> str:
    # Only writes by such a file load its compiler.
    from kafka_sink.formats.protobuf.descriptors import read_schema

    return read_schema(path)
