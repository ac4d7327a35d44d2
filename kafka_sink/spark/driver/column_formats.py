"""Decides on the driver, before any task, by which schema the key and the value are written.

Called in Spark's planner process or in the user's. A schema is derived from the column, or given in an option: itself,
a file, several files, or a folder. Columns that do not fit are refused here. It never reads a row. Only writes with a
format load this module, and Arrow with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType, UserDefinedType

from kafka_sink.common.errors import ConfigError, UnusableSchemaError
from kafka_sink.formats.column_format import JSON, PROTOBUF, ColumnFormat, format_of
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import Reference, SchemaText
from kafka_sink.registry.references import places_of
from kafka_sink.registry.subjects import message_position, wire_header
from kafka_sink.spark.driver.registration import Registration, registration_of
from kafka_sink.spark.options import SinkOptions, WantedFormat

#: Of the path of a column so many characters are shown.
_SHOWN: Final = 60

# By name, because older versions of Spark do not have all of them.
_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "NullType": pa.null(),
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "CharType": pa.string(),
    "VarcharType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimeType": pa.time64("ns"),
    "TimestampType": pa.timestamp("us", "UTC"),
    "TimestampNTZType": pa.timestamp("us"),
    "DayTimeIntervalType": pa.duration("us"),
}
#: Arrow reads batches whose types are within one another up to here (``kMaxNestingDepth`` of Arrow's C++ library).
_MOST_LEVELS: Final = 64


def formats_of(schema: StructType, options: SinkOptions) -> list[ColumnFormat]:
    """The formats of the columns of *schema* that are written in one.

    :raises ConfigError: if a schema cannot be read, or does not fit the column; the text names the column by its path.
    """
    registry = registration_of(options.registry, options.registry_tls, options.spec.topic)
    return [
        replace(
            _format_of(each, arrow_type(schema[each.column].dataType, each.column), registry),
            defaulted=frozenset(_defaulted(schema[each.column].dataType, each.column)),
        )
        for each in options.wanted_formats
    ]


def _defaulted(kind: DataType, path: str) -> Iterator[str]:
    """The paths of the fields of *kind*, the type of column *path*, that are columns of a table with a default."""
    if isinstance(kind, ArrayType):
        yield from _defaulted(kind.elementType, f"{path}[]")
    if isinstance(kind, MapType):
        yield from _defaulted(kind.valueType, f"{path}{{}}")
    for field in kind if isinstance(kind, StructType) else ():
        if "EXISTS_DEFAULT" in (field.metadata or {}):
            yield f"{path}.{field.name}"
        yield from _defaulted(field.dataType, f"{path}.{field.name}")


def _format_of(wanted: WantedFormat, kind: pa.DataType, registry: Registration | None) -> ColumnFormat:
    column, name = wanted.column, wanted.name
    chosen = None if registry is None else registry.chosen(column, name)
    forms: Sequence[ColumnFormat]
    if registry is not None and chosen is not None:
        forms = [_by_chosen(wanted, kind, chosen.schema, registry)]
    elif name == JSON and registry is None:
        # JSON needs no schema to be written or read.
        forms = [ColumnFormat(column, name, "")]
    else:
        schema = None if wanted.schema is None else given_schema(wanted)
        if registry is not None and schema is not None:
            schema = registry.with_references(schema, name)
        forms = _forms(wanted, kind, schema, is_registered=registry is not None)
    # Refuses what the tasks could not write.
    format_of(name).encoder(forms[0], kind)
    if registry is None:
        return forms[0]
    ready, schema_id = registry.registered(forms) if chosen is None else (forms[0], chosen.schema_id)
    return replace(ready, prefix=wire_header(schema_id) + _position(ready), source=None)


def _by_chosen(wanted: WantedFormat, kind: pa.DataType, schema: SchemaText, registry: Registration) -> ColumnFormat:
    if wanted.name == JSON and not registry.config.latest_strict:
        # Takes everything.
        return ColumnFormat(wanted.column, JSON, "{}")
    return format_of(wanted.name).given(schema, kind, wanted.column, wanted.message)


def _forms(
    wanted: WantedFormat, kind: pa.DataType, schema: SchemaText | None, *, is_registered: bool
) -> Sequence[ColumnFormat]:
    """*wanted* by *schema*, or by those that are derived for rows of the type *kind*."""
    form = format_of(wanted.name)
    if schema is not None:
        return [form.given(schema, kind, wanted.column, wanted.message)]
    return form.registrable(kind, wanted.column) if is_registered else [form.derived(kind, wanted.column)]


def forms_to_register(wanted: WantedFormat, schema: StructType) -> Sequence[ColumnFormat]:
    """The forms of a column of *schema*, the one first whose schema a registry would get
    (:meth:`~kafka_sink.formats.column_format.Format.registrable`). It refers to nothing that the registry has.

    :raises ConfigError: as :func:`formats_of` does.
    """
    kind = arrow_type(schema[wanted.column].dataType, wanted.column)
    schema_text = None if wanted.schema is None else given_schema(wanted)
    forms = _forms(wanted, kind, schema_text, is_registered=True)
    format_of(wanted.name).encoder(forms[0], kind)
    return forms


def _position(form: ColumnFormat) -> bytes:
    """Where the message stands in the schema: Protobuf's payloads have it after the id."""
    if form.name != PROTOBUF:
        return b""
    from kafka_sink.formats.protobuf.column import messages_of

    return message_position(messages_of(form).position)


def arrow_type(kind: DataType, path: str, level: int = 1) -> pa.DataType:
    """The type of column *path* in Arrow, as Spark hands it to a task; *level* counts the types that it is within.
    PySpark has such a function too, but its arguments differ between versions, and its errors do not name the field.

    Source: apache/spark ``ArrowUtils.scala``.

    :raises FormatError: if Spark cannot hand such a column to Python; the text names the field.
    """
    if level > _MOST_LEVELS:
        raise FormatError(
            f"column '{path[:_SHOWN]}…' is nested more than {_MOST_LEVELS} levels deep, a map counting twice, and "
            "Arrow reads no more; make it flatter, or write it as text: to_json(…)"
        )
    simple = _SIMPLE.get(type(kind).__name__)
    if simple is not None:
        return simple
    if isinstance(kind, UserDefinedType):
        return arrow_type(kind.sqlType(), path, level)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        items = arrow_type(kind.elementType, f"{path}[]", level + 1)
        return pa.list_(pa.field("element", items, kind.containsNull))
    if isinstance(kind, MapType):
        values = pa.field("value", arrow_type(kind.valueType, f"{path}{{}}", level + 2), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(kind.keyType, f"{path}{{key}}", level + 2), False), values)
    if isinstance(kind, StructType):
        return pa.struct(
            [
                pa.field(each.name, arrow_type(each.dataType, f"{path}.{each.name}", level + 1), each.nullable)
                for each in kind
            ]
        )
    raise FormatError(f"column '{path}' is {kind.simpleString()}, which the formats do not support; cast or drop it")


#: What a schema in an option begins with, besides comments; anything else but a primitive type's name names files.
_BEGINNINGS: Final = ("{", "[", '"', "//", "/*")


def given_schema(wanted: WantedFormat) -> SchemaText:
    """The schema that the options are, or that the files hold that they name, with what it refers to. What the registry
    has of it is not asked for: its texts are empty.

    :raises ConfigError: if a file cannot be read, or the references are none.
    """
    value, column = (wanted.schema or "").removeprefix("\ufeff"), wanted.column
    schema = SchemaText(value) if _is_itself(value, wanted.name) else _of_files(value, wanted)
    if wanted.references is None:
        return schema
    option = f"{column}.refs"
    try:
        places = places_of(json.loads(wanted.references), f"option {option}")
    except (ValueError, RecursionError) as error:
        raise ConfigError.of(
            option,
            f" is not valid JSON ({error}), expected a list such as "
            '[{"name": "shop.Address", "subject": "address", "version": 1}]',
        ) from None
    except UnusableSchemaError as error:
        raise ConfigError(str(error)) from None
    known = tuple(Reference(name, SchemaText(""), place.subject, place.version) for name, place in places)
    return SchemaText(schema.text, (*schema.references, *known))


def registered_schema(wanted: WantedFormat) -> SchemaText:
    """The schema that the options are, as a registry gets it.

    :raises ConfigError: as :func:`given_schema` does, and if it is none.
    """
    schema = given_schema(wanted)
    if wanted.name != PROTOBUF or schema.references:
        return schema
    from kafka_sink.formats.protobuf.parsing import registered_text

    return registered_text(schema.text, wanted.message)


def _is_itself(value: str, form: str) -> bool:
    """Whether *value* is a schema, and not the name of a file: text of Protobuf has braces, and names have none."""
    from kafka_sink.formats.avro.schema import PRIMITIVES

    return "{" in value if form == PROTOBUF else value.lstrip().startswith(_BEGINNINGS) or value in PRIMITIVES


def _of_files(value: str, wanted: WantedFormat) -> SchemaText:
    # Only writes by files load what reads them.
    from kafka_sink.formats.files import read_schema

    whole = Path(value.removeprefix("file:"))
    names = [value] if whole.exists() else [each.strip() for each in value.split(",") if each.strip()]
    try:
        return read_schema(wanted.name, [Path(each.removeprefix("file:")) for each in names], wanted.message)
    except FormatError as error:
        raise FormatError.of(f"{wanted.column}.schema", f": {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        name = value if not isinstance(error, OSError) or error.filename is None else error.filename
        itself = "the schema itself" if wanted.name == PROTOBUF else "the schema itself as JSON"
        raise ConfigError.of(
            f"{wanted.column}.schema",
            f": the file {name} cannot be read on the driver ({reason}); name the file "
            f"of a schema, a folder, or several files with commas between, or give {itself}",
        ) from None
