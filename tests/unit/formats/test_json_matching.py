"""Rows by a given JSON Schema, as the package jsonschema judges the payloads."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.column_format import SessionSettings
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.column import JsonEncoder
from tests.support.cases import with_each

LINE = pa.struct([("sku", pa.string()), ("count", pa.int32())])
#: As Spark reads columns: all of them, and all items, may be null.
KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("is_new", pa.bool_()),
        ("price", pa.float64()),
        ("lines", pa.list_(LINE)),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)
VALUES: dict[str, list[Any]] = {
    "id": [None, 1, 2],
    "name": [None, "a", "b"],
    "is_new": [None, True],
    "price": [None, 0.5],
    "lines": [None, [], [None], [{"sku": "x", "count": 1}, {"sku": None, "count": 7}]],
    "tags": [None, [("k", "v")], [("k", None)]],
}
ROWS = [dict(zip(VALUES, each, strict=True)) for each in itertools.product(*VALUES.values())]
TEXT: Any = {"type": "string"}
OR_NULL: Any = {"oneOf": [{"type": "null"}, TEXT]}


def of(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


CASES: list[Any] = [
    {},
    True,
    of(("id",), id={"type": "integer"}),
    of(("name",), name=OR_NULL),
    of(("name", "id"), name={"type": ["string", "null"]}, id={"type": ["null", "integer"]}),
    {**of(id={}, name={}, is_new={}, price={}, lines={}, tags={}), "additionalProperties": False},
    of(name={"enum": ["a", "c"]}),
    of(("name",), name={"enum": ["a", None]}),
    of(("name",), name={"const": None}),
    of(id={"const": 2}, is_new={"const": False}),
    of(id={"enum": [1, 1.5, "2", True]}, price={"enum": [0.5, 1]}),
    of(name={"type": "string", "format": "date-time"}),
    of(lines={"type": "array", "items": of(("sku",), sku=TEXT)}),
    of(lines={"items": {"oneOf": [{"type": "null"}, of(("sku",), sku=OR_NULL)]}}),
    of(lines={"items": {"anyOf": [{"type": "null"}, of(count={"enum": [1]})]}}),
    of(tags={"type": "object", "additionalProperties": TEXT}),
    of(tags={"additionalProperties": OR_NULL}),
    {"type": "object", "oneOf": [of(name={"enum": ["a"]}), of(name={"enum": ["b"]})]},
]


#: These ask which fields are there, so a null one is left out.
OF_PRESENCE: list[Any] = [
    {"anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
    {"oneOf": [{"required": ["id"]}, {"required": ["name"]}]},
    {**of(id={"type": ["integer", "null"]}), "oneOf": [{"required": ["id"]}, {"required": ["name"]}]},
]


@pytest.mark.behaviour("JSON", "Rows are taken or refused by a given JSON Schema as the package jsonschema judges them")
@pytest.mark.parametrize("schema", [*CASES, *OF_PRESENCE], ids=str)
@pytest.mark.parametrize("keeps_nulls", [False, True])
def test_rows_are_judged_as_by_jsonschema(schema: Any, keeps_nulls: bool) -> None:
    judge = jsonschema.Draft7Validator(schema)
    encoder = JsonEncoder(KIND, "value", schema, SessionSettings(ignores_null_fields=not keeps_nulls))
    plain, left = JsonEncoder(KIND, "value"), set(range(len(ROWS)))
    whole = pa.array(ROWS, KIND)
    while True:
        rows = sorted(left)
        try:
            written = dict(zip(rows, encoder.encode(whole.take(pa.array(rows, pa.int64()))).to_pylist(), strict=True))
            break
        except RowSerializationError as error:
            left -= {rows[each] for each in error.rows}
    for payload in written.values():
        judge.validate(json.loads(payload))
    wrong = [each for each in range(len(ROWS)) if each not in left]
    for payload in plain.encode(whole.take(pa.array(wrong, pa.int64()))).to_pylist():
        record = json.loads(payload)
        assert not judge.is_valid(record)
        assert schema in OF_PRESENCE or not judge.is_valid(dict.fromkeys(VALUES) | record)


@with_each(
    ("schema", "message"),
    [
        (of(id=TEXT), "column 'value.id' is int64, in JSON an integer, and the JSON Schema has the type \"string\""),
        (of(("other",)), "column 'value.other' is missing, and the JSON Schema requires it"),
        ({"additionalProperties": False}, "column 'value.id' has no property in the JSON Schema"),
        (of(lines={"items": {"properties": {"count": TEXT}}}), r"column 'value.lines\[\].count' is int32"),
        (of(tags={"properties": {"k": TEXT}}), "'properties' there; make the column a struct"),
        (of(price={"oneOf": [{"type": "null"}, TEXT]}), "column 'value.price' is double, in JSON a number"),
        (of(price={"anyOf": [{"type": "boolean"}, TEXT]}), "fits none of the JSON Schema's anyOf"),
        (of(id={"oneOf": [{"type": "integer"}, {"type": "number"}]}), "fits several of the JSON Schema's oneOf"),
        (of(id=False), "takes no value; drop the column"),
    ],
)
def test_types_that_no_row_can_have_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        JsonEncoder(KIND, "value", schema)


def test_a_refused_row_names_column_and_remedy() -> None:
    rows = pa.array([{"lines": [{"sku": "x"}, None]}], KIND)
    with pytest.raises(RowSerializationError) as refused:
        JsonEncoder(KIND, "value", of(lines={"items": {"type": "object"}})).encode(rows)
    assert refused.value.column == "value.lines[]"
    assert "which the JSON Schema does not take; fill it (coalesce), or let the schema take null" in str(refused.value)


def test_a_decimal_without_a_fraction_is_an_integer() -> None:
    kind = pa.struct([("a", pa.decimal128(20, 0))])
    encoder = JsonEncoder(kind, "value", of(a={"type": "integer"}))
    assert encoder.encode(pa.array([{"a": Decimal(5)}], kind)).to_pylist() == [b'{"a":5}']
    with pytest.raises(FormatError, match=r"decimal\(20, 2\)"):
        JsonEncoder(pa.struct([("a", pa.decimal128(20, 2))]), "value", of(a={"type": "integer"}))
