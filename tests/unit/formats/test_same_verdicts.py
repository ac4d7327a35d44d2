"""The same rows with a given schema of each format: all formats accept the same rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.column_format import format_of
from kafka_sink.formats.schema_text import SchemaText

#: As in columns from Spark, all fields and all items may be null.
KIND = pa.struct(
    [
        ("id", pa.string()),
        ("note", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("lines", pa.list_(pa.struct([("sku", pa.string())]))),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)
SCHEMAS = {
    "avro": """{"type": "record", "name": "O", "fields": [
        {"name": "id", "type": "string"}, {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "lines", "type": {"type": "array", "items":
            {"type": "record", "name": "L", "fields": [{"name": "sku", "type": "string"}]}}},
        {"name": "counts", "type": {"type": "map", "values": "int"}}]}""",
    "json": """{"type": "object", "additionalProperties": false, "properties": {
        "id": {"type": "string"}, "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "lines": {"type": "array", "items":
            {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}}},
        "required": ["id", "note", "tags", "lines", "counts"]}""",
    "protobuf": """syntax = "proto2"; message O { required string id = 1; optional string note = 2;
        repeated string tags = 3; message L { required string sku = 1; } repeated L lines = 4;
        map<string, int32> counts = 5; }""",
}
FULL: dict[str, Any] = {"id": "1", "note": "n", "tags": ["a"], "lines": [{"sku": "x"}], "counts": [("k", 1)]}
#: The changes to a complete row, and the path of the column that the error names; None if the row is accepted.
ROWS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"note": None}, None),
    ({"tags": [], "lines": [], "counts": []}, None),
    ({"id": None}, "value.id"),
    ({"tags": ["a", None]}, "value.tags[]"),
    ({"lines": [None]}, "value.lines[]"),
    ({"lines": [{"sku": "x"}, {"sku": None}]}, "value.lines[].sku"),
    ({"counts": [("k", None)]}, "value.counts{}"),
]


@pytest.mark.behaviour("Avro", "A null where a given schema has none is a bad row, in Avro, JSON and Protobuf alike")
@pytest.mark.parametrize("form", SCHEMAS)
@pytest.mark.parametrize(("change", "column"), ROWS, ids=str)
def test_formats_take_and_refuse_the_same_rows(form: str, change: dict[str, Any], column: str | None) -> None:
    chosen = format_of(form)
    encoder = chosen.encoder(chosen.given(SchemaText(SCHEMAS[form]), KIND, "value"), KIND)
    rows = pa.array([FULL, {**FULL, **change}], KIND)
    if column is None:
        assert encoder.encode(rows).null_count == 0
        return
    with pytest.raises(RowSerializationError) as refused:
        encoder.encode(rows)
    assert (list(refused.value.rows), refused.value.column) == ([1], column)
