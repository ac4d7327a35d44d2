"""Writes the table of types into a page: ``python -m kafka_sink.spark.avro_table docs/avro.md``.

Run manually when a type changes; a test checks that the page is up to date. What the table says is tried: each type is
derived, and matched with each type of Avro.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.sql import types as t

from kafka_sink.common.files import between_marks
from kafka_sink.formats.avro.derived import derive_schema
from kafka_sink.formats.avro.encoder import AvroEncoder
from kafka_sink.formats.errors import FormatError
from kafka_sink.spark.arrow_types import arrow_type

BEGIN = "<!-- types: begin -->"
END = "<!-- types: end -->"

_SPARK: Final[tuple[t.DataType, ...]] = (
    t.BooleanType(),
    t.ByteType(),
    t.ShortType(),
    t.IntegerType(),
    t.LongType(),
    t.FloatType(),
    t.DoubleType(),
    t.DecimalType(10, 2),
    t.StringType(),
    t.BinaryType(),
    t.DateType(),
    t.TimestampType(),
    t.TimestampNTZType(),
    t.DayTimeIntervalType(),
    t.ArrayType(t.IntegerType()),
    t.MapType(t.StringType(), t.IntegerType()),
    t.StructType([t.StructField("a", t.IntegerType())]),
    t.NullType(),
)

_LOGICAL: Final = {
    "int": ("date",),
    "long": (
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    ),
}
_DECIMAL: Final = {"logicalType": "decimal", "precision": 10, "scale": 2}

#: The types that a given schema may have.
_AVRO: Final[tuple[Any, ...]] = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "bytes",
    {"type": "fixed", "name": "f", "size": 16},
    {"type": "enum", "name": "e", "symbols": ["A"]},
    {"type": "bytes", **_DECIMAL},
    {"type": "fixed", "name": "d", "size": 16, **_DECIMAL},
    *({"type": name, "logicalType": each} for name, logical in _LOGICAL.items() for each in logical),
)


def type_table() -> str:
    """The table in Markdown: Spark's type, Avro's derived type, and the other types that a given schema may have."""
    lines = ["| Spark | Avro, derived | a given schema may also have |", "| --- | --- | --- |"]
    for kind in _SPARK:
        arrow = arrow_type(kind, "value")
        derived = json.loads(derive_schema(arrow, "value"))
        others = [_shown(each) for each in _AVRO if _shown(each) != _shown(derived) and _fits(each, arrow)]
        lines.append(f"| `{kind.simpleString()}` | {_shown(derived)} | {', '.join(others)} |")
    return "\n".join(lines) + "\n"


def _fits(avro: Any, arrow: Any) -> bool:
    try:
        AvroEncoder(json.dumps(avro), arrow, "value")
    except FormatError:
        return False
    return True


def _shown(avro: Any) -> str:
    if isinstance(avro, list):
        return f"`[{', '.join(_shown(each).strip('`') for each in avro)}]`"
    if isinstance(avro, str):
        return f"`{avro}`"
    parts = avro.get("items") or avro.get("values")
    name = f"{avro['type']} of {_shown(parts).strip('`')}" if parts else avro["type"]
    return f"`{name}` ({avro['logicalType']})" if "logicalType" in avro else f"`{name}`"


def update(page: Path) -> None:
    """Replace the text between the markers of *page* by the table."""
    page.write_text(between_marks(page.read_text(encoding="utf-8"), BEGIN, END, type_table()), encoding="utf-8")


if __name__ == "__main__":
    update(Path(sys.argv[1]))
