"""Decides on the driver, before any task, by which schema the key and the value are written.

Called in Spark's planner process or in the user's. A schema is derived from the column, or given in an option. Columns
that do not fit are refused here. It never reads a row.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import DataType, StructType

from kafka_sink.common.errors import ConfigError
from kafka_sink.formats.column_format import JSON, ColumnFormat
from kafka_sink.registry.subjects import wire_header
from kafka_sink.spark.driver.registration import Registration, registration_of
from kafka_sink.spark.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

#: What a schema in an option begins with; anything else but a primitive type's name is the name of a file.
_BEGINNINGS: Final = ("{", "[", '"')

#: A schema is a few kilobytes; a file of this size is another one.
_MAX_SCHEMA_BYTES: Final = 1 << 20


def with_formats(schema: StructType, options: SinkOptions) -> SinkOptions:
    """*options* with the formats of the columns of *schema*.

    :raises ConfigError: if a schema cannot be read, or does not fit the column; the text names the column by its path.
    """
    registry = registration_of(options)
    wanted = {"key": (options.key_format, options.key_schema), "value": (options.value_format, options.value_schema)}
    formats = [
        _format_of(column, name, _arrow_type(schema[column].dataType, column), given, registry)
        for column, (name, given) in wanted.items()
        if name is not None
    ]
    # The tasks do not ask the registry, so they get nothing of what is needed to ask it.
    return replace(options, formats=tuple(formats), registry_properties={})


def _format_of(
    column: str, name: str, kind: pa.DataType, given: str | None, registry: Registration | None
) -> ColumnFormat:
    # Only writes with a format load Arrow in this process.
    from kafka_sink.formats.encoders import check_given, derived_schema, encoder_of

    latest = None if registry is None else registry.latest(column, name)
    if latest is not None:
        text = latest.schema
    elif given is not None:
        text = schema_text(f"{column}.schema", given)
    else:
        # JSON needs no schema to be written or read.
        text = "" if name == JSON and registry is None else derived_schema(name, kind, column)
    if latest is not None or given is not None:
        check_given(name, text, kind, column)
    ready = ColumnFormat(column, name, text)
    # Refuses what the tasks could not write.
    encoder_of(ready, kind)
    if registry is None:
        return ready
    schema_id = registry.id_of(ready) if latest is None else latest.schema_id
    return replace(ready, prefix=wire_header(schema_id))


def _arrow_type(kind: DataType, column: str) -> pa.DataType:
    from kafka_sink.spark.arrow_types import arrow_type

    return arrow_type(kind, column)


def schema_text(option: str, given: str) -> str:
    """The schema that *given* is, or that the file of this name holds.

    :raises ConfigError: if the file cannot be read.
    """
    from kafka_sink.formats.avro.schema import PRIMITIVES

    if given.startswith(_BEGINNINGS) or given in PRIMITIVES:
        return given
    path = Path(given.removeprefix("file:"))
    try:
        size = path.stat().st_size
        if size > _MAX_SCHEMA_BYTES:
            raise ConfigError(
                f"option {option}: the file {given} has {size} bytes, and a schema at most {_MAX_SCHEMA_BYTES}; name "
                "the file of the schema"
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(
            f"option {option}: the file {given} cannot be read on the driver ({reason}); name the file of a "
            "schema, or give the schema itself as JSON"
        ) from None
