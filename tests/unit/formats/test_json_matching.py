"""Rows with a given JSON Schema: the package jsonschema validates the payloads in the same way."""

from __future__ import annotations

import itertools
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.column_format import SessionSettings
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.column import JsonEncoder, writer_for
from kafka_sink.formats.json.matching import NullFields
from kafka_sink.formats.json.parsing import parse_schema
from kafka_sink.formats.json.writers import pieces_of
from kafka_sink.formats.payloads import payloads_of
from kafka_sink.formats.schema_text import SchemaText
from tests.support.cases import with_each

LINE = pa.struct([("sku", pa.string()), ("count", pa.int32())])
#: As in columns from Spark, all fields and all items may be null.
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
    of(id={"minimum": 2}, price={"exclusiveMaximum": 0.5}),
    of(id={"minimum": 1.5, "maximum": 10**30}),
    of(id={"exclusiveMinimum": -(10**40), "multipleOf": 2}, price={"multipleOf": 0.1}),
    of(id={"multipleOf": 0.5}, price={"multipleOf": 1}),
    {"$schema": "http://json-schema.org/draft-04/schema#", **of(id={"minimum": 1, "exclusiveMinimum": True})},
    of(name={"minLength": 2}, tags={"additionalProperties": {"maxLength": 0}}),
    of(name={"pattern": "^[b-d]$"}),
    of(lines={"minItems": 1, "maxItems": 1}),
    of(lines={"uniqueItems": True}),
    of(lines={"contains": of(("sku",), sku={"const": "x"})}),
    of(lines={"contains": True, "minContains": 0, "maxContains": 1}),
    of(lines={"items": of(("sku",), sku=OR_NULL), "contains": {"minProperties": 1, "maxProperties": 1}}),
    of(tags={"minProperties": 1, "maxProperties": 1}),
    of(tags={"propertyNames": {"pattern": "^j"}}),
    {"minProperties": 3, "maxProperties": 5},
    {"propertyNames": {"maxLength": 5}},
    {"patternProperties": {"^na": {"const": "a"}, "e$": {"not": {"const": "b"}}}},
    {"patternProperties": {"^[a-z_]+$": True}, "additionalProperties": False},
    {"allOf": [of(id={"minimum": 1}), of(("name",), name={"minLength": 1})]},
    {"not": of(("name",), name={"const": "a"})},
    {"not": of(("id",), id={"type": "integer"})},
    {"if": of(("id",), id={"const": 1}), "then": of(("name",)), "else": of(("is_new",))},
    {"if": of(("price",), price={"type": "integer"}), "then": False},
    {"dependentRequired": {"id": ["name"], "absent": ["id"]}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"id": ["name"], "name": of(("price",))}},
    {"dependentSchemas": {"id": of(("name",), name={"const": "b"})}},
    {"dependencies": {"id": ["name"]}},
    {"anyOf": [of(("id",), id={"minimum": 2}), of(("name",), name={"pattern": "a|c"})]},
    {"oneOf": [of(("id",), id={"minimum": 2}), of(("name",), name={"const": "a"}), of(("price",))]},
    of(name={"$ref": "#/$defs/n", "maxLength": 0}) | {"$defs": {"n": {"minLength": 0}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"n": {"enum": ["a"]}}}
    | of(name={"$ref": "#/definitions/n", "maxLength": 0}),
    of(lines={"items": {"anyOf": [{"type": "null"}, of(count={"minimum": 2}), of(sku={"type": "null"})]}}),
    of(name={"anyOf": [{"type": "integer"}, {"maxLength": 0}]}, price={"enum": [1, "0.5"]}),
    of(lines={"not": {"contains": {"type": "null"}}}),
    of(name={"format": "email", "contentEncoding": "base64"}),
]


#: These test the presence of fields, so that null fields are omitted.
OF_PRESENCE: list[Any] = [
    {"anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
    {"oneOf": [{"required": ["id"]}, {"required": ["name"]}]},
    {**of(id={"type": ["integer", "null"]}), "oneOf": [{"required": ["id"]}, {"required": ["name"]}]},
]


#: The types whose values appear as another type in JSON: one row for each value, and nulls as well.
OTHER_KIND = pa.struct(
    [
        ("text", pa.string()),
        ("float", pa.float32()),
        ("decimal", pa.decimal128(10, 2)),
        ("large", pa.decimal128(25, 0)),
        ("date", pa.date32()),
        ("bytes", pa.binary()),
        ("floats", pa.list_(pa.float32())),
        ("times", pa.list_(pa.timestamp("us"))),
    ]
)
TIME = datetime(2026, 1, 31, 12, 0, 0, 1)
OTHER_VALUES: dict[str, list[Any]] = {
    "text": ["", "a1", "a-1", "\u0663", "\u00e9t\u00e9", "x y", "x\u00a0y", "a\n", "a\nb", "]", "a" * 9, "\U0001f600"],
    "float": [0.1, -0.0, 3.0, 1e10, 16777216.0],
    "decimal": [Decimal("0.30"), Decimal("1.00"), Decimal("-2.50")],
    "large": [Decimal(10**24), Decimal(2**53 + 1), Decimal(0)],
    "date": [date(2026, 1, 31), date(999, 1, 1)],
    "bytes": [b"", b"a", b"abc", b"abcd"],
    "floats": [[], [0.0, -0.0], [1.0, None], [None, None], [1.0, 2.0]],
    "times": [[TIME, TIME], [TIME, TIME.replace(microsecond=2)], [TIME, TIME.replace(second=1)]],
}
OTHER_ROWS = [{name: value} for name, values in OTHER_VALUES.items() for value in values]
OTHER_CASES: list[Any] = [
    *(
        of(text={"pattern": each})
        for each in [r"^\w+$", r"\d", r"\s", r"^\S*$", r"^[^\d\s]*\Z", "^.$", r"^a[-\d]", r"^\u00e9"]
    ),
    *(of(text={"pattern": each}) for each in [r"^(?:a|x).{2,}$", r"^[]]|^$", r"\W", r"\x61\n$", "^a{9}$", r"^[\w ]*$"]),
    of(text={"maxLength": 1}, date={"pattern": "^2"}, bytes={"minLength": 4, "maxLength": 4}),
    of(float={"const": 0.1}, decimal={"enum": [0.3, 1]}, large={"const": 2**53}),
    of(float={"multipleOf": 0.1}, decimal={"multipleOf": 0.1}),
    of(float={"exclusiveMinimum": 0}, decimal={"maximum": 0.3}, large={"maximum": 2**53}),
    of(large={"minimum": -(10**40), "exclusiveMaximum": 10**24}, date={"enum": ["2026-01-31"]}),
    of(floats={"uniqueItems": True, "contains": {"minimum": 2}, "minContains": 0}),
    of(times={"uniqueItems": True, "maxItems": 2}, bytes={"enum": [1, None]}),
    of(float={"anyOf": [{"type": "integer"}, {"maximum": 0}]}, floats={"not": {"contains": {"type": "integer"}}}),
]


@pytest.mark.behaviour("JSON", "Rows are taken or refused by a given JSON Schema as the package jsonschema judges them")
@pytest.mark.parametrize("keeps_nulls", [False, True])
@pytest.mark.parametrize(
    ("schema", "kind", "values"),
    [
        *((each, KIND, ROWS) for each in (*CASES, *OF_PRESENCE)),
        *((each, OTHER_KIND, OTHER_ROWS) for each in OTHER_CASES),
    ],
    ids=lambda value: str(value) if isinstance(value, dict | bool) else "",
)
def test_rows_are_judged_as_by_jsonschema(schema: Any, kind: pa.DataType, values: Any, keeps_nulls: bool) -> None:
    """By the draft that confluent-kafka's serializer uses, for all rows as they are written."""
    judge = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
    given = parse_schema(SchemaText(json.dumps(schema)))
    encoder = JsonEncoder(kind, "value", given, SessionSettings(ignores_null_fields=not keeps_nulls))
    rows = pa.array(values, kind)
    writer = writer_for(kind, "value", is_strict=True, null_fields=NullFields((given,), keeps_nulls, "value"))
    payloads = payloads_of(pieces_of(writer.tokens(rows, None), len(rows)), len(rows), None).to_pylist()
    written: list[bytes] = []
    left = list(range(len(values)))
    while not written:
        try:
            written = encoder.encode(rows.take(pa.array(left, pa.int64()))).to_pylist()
            break
        except RowSerializationError as error:
            refused = set(error.rows)
            left = [row for at, row in enumerate(left) if at not in refused]
    assert left == [row for row, payload in enumerate(payloads) if judge.is_valid(json.loads(payload))]
    assert written == [payloads[row] for row in left]


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
        (of(id=False), "allows no value here; drop the column"),
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


@with_each(
    ("schema", "message"),
    [
        (
            {"unevaluatedProperties": False},
            "has 'unevaluatedProperties' for column 'value', which kafkalite cannot",
        ),
        (of(lines={"prefixItems": [True]}), r"has 'prefixItems' for column 'value.lines'"),
        (
            of(lines={"items": {"properties": {"sku": {"$ref": "#/absent"}}}}),
            r"has '\$ref' for column 'value.lines\[\].sku'",
        ),
        (
            of(lines={"$schema": "x", "const": []}),
            "is list.* cannot validate against the JSON Schema's 'const'",
        ),
        (of(name={"pattern": "^(?=a)"}), r"the pattern '\^\(\?=a\)' with '\(\?', which kafkalite cannot match"),
        (of(name={"pattern": r"(a)\1"}), "which kafkalite cannot match"),
        (of(name={"pattern": "(a"}), "which kafkalite cannot match"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "expected one of draft-04"),
        (of(tags={"dependentRequired": {"a": ["b"]}}), "'dependentRequired' there; make the column a struct"),
        (of(id={"not": {"type": "integer"}}), "always matches the JSON Schema's 'not'"),
    ],
)
def test_rows_that_cannot_be_judged_are_refused_before(schema: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        JsonEncoder(KIND, "value", parse_schema(SchemaText(json.dumps(schema))))
