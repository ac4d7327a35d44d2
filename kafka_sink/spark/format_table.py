"""Writes the table of types into a page: ``python -m kafka_sink.spark.format_table docs/formats.md``.

Run manually when a type changes; a test checks that the page is up to date. What the table says is tried: each type is
derived, matched with each type of Avro, and an example is written as JSON.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from kafka_sink.common.files import between_marks
from kafka_sink.formats.column_format import AVRO, JSON, ColumnFormat
from kafka_sink.formats.encoders import derived_schema, encoder_of
from kafka_sink.formats.errors import FormatError
from kafka_sink.spark.arrow_types import arrow_type

BEGIN = "<!-- types: begin -->"
END = "<!-- types: end -->"

#: Each type, with a value as Arrow takes it.
_SPARK: Final[tuple[tuple[t.DataType, Any], ...]] = (
    (t.BooleanType(), True),
    (t.ByteType(), 1),
    (t.ShortType(), 1),
    (t.IntegerType(), 1),
    (t.LongType(), 1),
    (t.FloatType(), 0.5),
    (t.DoubleType(), 1e10),
    (t.DecimalType(10, 2), Decimal("1.50")),
    (t.StringType(), "a"),
    (t.BinaryType(), b"a"),
    (t.DateType(), date(2026, 1, 31)),
    (t.TimestampType(), datetime(2026, 1, 31, 12, tzinfo=UTC)),
    (t.TimestampNTZType(), datetime(2026, 1, 31, 12)),
    (t.DayTimeIntervalType(), timedelta(days=1)),
    (t.ArrayType(t.IntegerType()), [1, None]),
    (t.MapType(t.StringType(), t.IntegerType()), [("a", 1)]),
    (t.StructType([t.StructField("a", t.IntegerType())]), {"a": 1}),
    (t.NullType(), None),
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
    """The table in Markdown: Spark's type, Avro's derived type, the other types that a given schema may have, and a
    value in JSON with its type in the JSON Schema.
    """
    lines = ["| Spark | Avro, derived | a given Avro schema may also have | JSON | JSON Schema |", "| --- " * 5 + "|"]
    for kind, example in _SPARK:
        arrow = arrow_type(kind, "value")
        derived = json.loads(derived_schema(AVRO, arrow, "value"))
        others = ", ".join(_shown(each) for each in _AVRO if _shown(each) != _shown(derived) and _fits(each, arrow))
        lines.append(f"| `{kind.simpleString()}` | {_shown(derived)} | {others} | {_in_json(arrow, example)} |")
    return "\n".join(lines) + "\n"


def _in_json(arrow: pa.DataType, example: Any) -> str:
    """The *example* as JSON, and the type in the JSON Schema."""
    try:
        declared = json.loads(derived_schema(JSON, arrow, "value"))
        form = ColumnFormat("value", JSON, "")
        (payload,) = encoder_of(form, arrow).encode(pa.array([example], arrow)).to_pylist()
    except FormatError:
        return "– | –"
    notes = "".join(f" ({declared[name]})" for name in ("format", "contentEncoding") if name in declared)
    return f"{'' if payload is None else f'`{payload.decode()}`'} | `{declared['type']}`{notes}"


def _fits(avro: Any, arrow: Any) -> bool:
    try:
        encoder_of(ColumnFormat("value", AVRO, json.dumps(avro)), arrow)
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
