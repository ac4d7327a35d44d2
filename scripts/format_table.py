"""Writes the table of types into a page: ``python -m scripts.format_table docs/formats.md``.

Run manually when a type changes; a test checks that the page is up to date. The script computes every cell: it derives
each type, matches it with each type of Avro and of Protobuf, and writes an example as JSON.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as t

from kafka_sink.formats.column_format import AVRO, JSON, PROTOBUF, ColumnFormat, format_of
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.protobuf.schema import (
    DURATION,
    TIMESTAMP,
    Enum,
    Message,
    MessageField,
    Presence,
    ProtobufSchema,
)
from kafka_sink.spark.driver.column_formats import arrow_type
from scripts.pages import print_into

#: Each type, with a value that Arrow accepts.
_SPARK: Final[tuple[tuple[t.DataType, Any], ...]] = (
    (t.BooleanType(), True),
    (t.ByteType(), 1),
    (t.ShortType(), 1),
    (t.IntegerType(), 1),
    (t.LongType(), 1),
    (t.FloatType(), 0.5),
    (t.DoubleType(), 1e10),
    (t.DecimalType(10, 2), Decimal("1.50")),
    (t.DecimalType(20, 0), Decimal(1)),
    (t.StringType(), "a"),
    (t.BinaryType(), b"a"),
    (t.DateType(), date(2026, 1, 31)),
    (t.TimeType(), time(12, 34, 56, 500_000)),
    (t.TimestampType(), datetime(2026, 1, 31, 12, tzinfo=UTC)),
    (t.TimestampNTZType(), datetime(2026, 1, 31, 12)),
    (t.DayTimeIntervalType(), timedelta(days=1)),
    (t.ArrayType(t.IntegerType()), [1, None]),
    (t.MapType(t.StringType(), t.IntegerType()), [("a", 1)]),
    (t.StructType([t.StructField("a", t.IntegerType())]), {"a": 1}),
    (t.NullType(), None),
    # The formats refuse these types.
    (t.YearMonthIntervalType(), None),
    (t.CalendarIntervalType(), None),
    (t.VariantType(), None),
    (t.GeographyType(4326), None),
    (t.GeometryType(4326), None),
)

_LOGICAL: Final = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
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

#: The types that a field of a given message may have, and their names unless they are scalars.
_PROTOBUF: Final = (
    *((each, "") for each in ("bool", "int32", "sint32", "sfixed32", "uint32", "fixed32")),
    *((each, "") for each in ("int64", "sint64", "sfixed64", "uint64", "fixed64")),
    *((each, "") for each in ("float", "double", "string", "bytes")),
    ("enum", "e"),
    ("message", TIMESTAMP),
    ("message", DURATION),
)


def type_table() -> str:
    """The table in Markdown: Spark's type; Avro's and Protobuf's derived type, each with the other types that a given
    schema may have; and a value in JSON with its type in the JSON Schema.
    """
    of_avro, of_protobuf = ("Avro, derived", "Avro, also"), ("Protobuf, derived", "Protobuf, also")
    heads = ("Spark", *of_avro, *of_protobuf, "Example in JSON", "JSON Schema")
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for kind, example in _SPARK:
        try:
            arrow = arrow_type(kind, "value")
        except FormatError:
            lines.append(f"| `{kind.simpleString()}` | – |  | – |  | – | – |")
            continue
        derived = json.loads(format_of(AVRO).derived(arrow, "value").schema)
        others = ", ".join(_shown(each) for each in _AVRO if _shown(each) != _shown(derived) and _fits(each, arrow))
        cells = (f"`{kind.simpleString()}`", _shown(derived), others, _in_protobuf(arrow), _in_json(arrow, example))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _in_protobuf(arrow: pa.DataType) -> str:
    """The derived type of a field, and the others that a given message may have."""
    row = pa.struct([pa.field("a", arrow)])
    try:
        text = format_of(PROTOBUF).derived(row, "value").schema
        declared = next(line for line in text.splitlines() if line.endswith(" a = 1;") and line.startswith("  "))
        derived = declared.removesuffix(" a = 1;").removeprefix("  ").removeprefix("optional ")
        derived = "message" if pa.types.is_struct(arrow) else derived
    except FormatError:
        derived = ""
    others = [
        name or kind
        for kind, name in _PROTOBUF
        if (name or kind) != derived and _is_field(MessageField("a", 1, kind, Presence.EXPLICIT, name), row)
    ]
    shown = (
        "every type"
        if len(others) == len(_PROTOBUF)
        else ", ".join(f"`{'enum' if each == 'e' else each}`" for each in others)
    )
    return f"{f'`{derived}`' if derived else '–'} | {shown}"


def _is_field(field: MessageField, row: pa.DataType) -> bool:
    known = {name: Message(name, ()) for name in (TIMESTAMP, DURATION)}
    schema = ProtobufSchema("M", (0,), {"M": Message("M", (field,)), **known}, {"e": Enum("e", (("A", 0),))})
    try:
        format_of(PROTOBUF).encoder(ColumnFormat("value", PROTOBUF, "", messages=schema), row)
    except FormatError:
        return False
    return True


def _in_json(arrow: pa.DataType, example: Any) -> str:
    """The *example* as JSON, and the type in the JSON Schema."""
    try:
        declared = json.loads(format_of(JSON).derived(arrow, "value").schema)
        form = ColumnFormat("value", JSON, "")
        (payload,) = format_of(form.name).encoder(form, arrow).encode(pa.array([example], arrow)).to_pylist()
    except FormatError:
        return "– | –"
    notes = "".join(f" ({declared[name]})" for name in ("format", "contentEncoding") if name in declared)
    return f"{'left out' if payload is None else f'`{payload.decode()}`'} | `{declared['type']}`{notes}"


def _fits(avro: Any, arrow: Any) -> bool:
    try:
        format_of(AVRO).encoder(ColumnFormat("value", AVRO, json.dumps(avro)), arrow)
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


if __name__ == "__main__":
    print_into(Path(sys.argv[1]), "types", type_table())
