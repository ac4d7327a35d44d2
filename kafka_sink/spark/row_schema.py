"""The columns that a DataFrame may have, and their types: the columns of Spark's own Kafka sink, and a timestamp.

Checked once on the driver, in Spark's planner process, before any task starts. It never reads data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from kafka_sink.common.config import nearest
from kafka_sink.common.errors import SchemaError
from kafka_sink.spark.options import SinkOptions


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType | VarcharType | CharType)


def of_rows(kind: DataType) -> DataType:
    """*kind* as functions on rows may return it: text of a fixed or a largest length is text."""
    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(of_rows(kind.elementType), kind.containsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, of_rows(each.dataType), each.nullable) for each in kind])
    return kind


def _is_bytes(kind: DataType) -> bool:
    return _is_text(kind) or isinstance(kind, BinaryType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [item.name for item in fields] == ["key", "value"]
        and _is_text(fields[0].dataType)
        and isinstance(fields[1].dataType, BinaryType)
    )


@dataclass(frozen=True)
class _Column:
    accepts: Callable[[DataType], bool]
    expected: str
    remedy: str


_COLUMNS: Mapping[str, _Column] = {
    "value": _Column(
        _is_bytes,
        "string or binary",
        "cast it, convert the row to JSON: to_json(struct('*')) as value, or set option value.format",
    ),
    "key": _Column(_is_bytes, "string or binary", "cast it: col('key').cast('string'), or set option key.format"),
    "topic": _Column(_is_text, "string", "cast it: col('topic').cast('string')"),
    "partition": _Column(lambda kind: isinstance(kind, IntegerType), "int", "cast it: col('partition').cast('int')"),
    "headers": _Column(
        _is_headers,
        "array<struct<key:string,value:binary>>",
        "create it with array(struct(lit('name').alias('key'), col.cast('binary').alias('value'))), or from a "
        "map<string,binary> with map_entries(col('headers'))",
    ),
    "timestamp": _Column(
        lambda kind: isinstance(kind, TimestampType), "timestamp", "cast it: col('timestamp').cast('timestamp')"
    ),
}


def _check_column(name: str, kind: DataType, formatted: Collection[str]) -> None:
    """:raises SchemaError: if the sink has no column *name*, or expects another type than *kind*."""
    column = _COLUMNS.get(name)
    if column is None:
        raise SchemaError(
            f"column '{name}' would not be written{nearest(name, _COLUMNS)}; the columns are {', '.join(_COLUMNS)}: "
            "drop it, or put it into value"
        )
    if name in formatted:
        # Whether the type has a counterpart is known to the format.
        return
    if not column.accepts(kind):
        raise SchemaError(f"column '{name}' is {kind.simpleString()}, expected {column.expected}; {column.remedy}")


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Check *schema* against the sink's columns.

    :raises SchemaError: if a column is missing, unknown or of the wrong type; the text names the column, its type, the
        expected type, and what to do.
    """
    present = {item.name: item.dataType for item in schema.fields}
    shown = ", ".join(f"{item.name}: {item.dataType.simpleString()}" for item in schema.fields)
    for name in present:
        called = name.lower()
        if called in _COLUMNS and called not in present:
            raise SchemaError(
                f"column '{name}' must be named '{called}', in lower case: withColumnRenamed('{name}', '{called}')"
            )
    if "value" not in present:
        raise SchemaError(
            f"required column 'value' not found among ({shown}){nearest('value', present)}; "
            "select it, for example to_json(struct('*')) as value"
        )
    formatted = options.formatted
    for name, kind in present.items():
        _check_column(name, kind, formatted)
    if options.key_format is not None and "key" not in present:
        raise SchemaError(f"option key.format={options.key_format}, but there is no column 'key'; add it, or remove it")
    if options.topic is None and "topic" not in present:
        raise SchemaError("no topic: set option('topic', …), or add a string column 'topic'")
    if options.include_headers is not None and options.include_headers != ("headers" in present):
        raise SchemaError(
            f"option includeHeaders={str(options.include_headers).lower()}, but there is "
            f"{'a' if 'headers' in present else 'no'} column 'headers'; change the option or the columns"
        )
