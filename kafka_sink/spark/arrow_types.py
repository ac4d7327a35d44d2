"""The Arrow types of Spark's columns, as Spark hands them to a task.

Called on the driver, where a format derives a schema from a column. PySpark has such a function too, but its arguments
differ between versions, and its errors do not name the field.

Source: apache/spark ``ArrowUtils.scala``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

from kafka_sink.formats.errors import FormatError

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


def arrow_type(kind: DataType, path: str, level: int = 1) -> pa.DataType:
    """The type of column *path* in Arrow; *level* counts the types that it is within.

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
    raise FormatError(
        f"column '{path}' is {kind.simpleString()}, for which formats have no counterpart; cast or drop it"
    )
