"""JSON Schemas of columns, and the compatibility of their changes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from kafka_sink.common.errors import KafkaError
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.column import FORMAT, JsonEncoder, derive_schema
from kafka_sink.formats.json.parsing import CONSTRAINTS, parse_schema
from kafka_sink.formats.schema_text import Reference, SchemaText
from tests.support.cases import with_each


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


ORDER = pa.struct(
    [
        required("id", pa.int64()),
        pa.field("price", pa.decimal128(10, 2)),
        required("at", pa.timestamp("us", "UTC")),
        pa.field("lines", pa.list_(pa.struct([required("sku", pa.string()), pa.field("data", pa.binary())]))),
        pa.field("tags", pa.map_(pa.string(), pa.date32())),
    ]
)


def test_derived_schema_is_closed_and_requires_what_is_not_null() -> None:
    derived = json.loads(derive_schema(ORDER, "value"))
    assert derived == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "topLevelRecord",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": "number"},
            "at": {"type": "string", "format": "date-time"},
            "lines": {
                "type": "array",
                "items": {
                    "oneOf": [
                        {"type": "null"},
                        {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {
                                "sku": {"type": "string"},
                                "data": {"type": "string", "contentEncoding": "base64"},
                            },
                            "required": ["sku"],
                        },
                    ]
                },
            },
            "tags": {
                "type": "object",
                "additionalProperties": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
            },
        },
        "required": ["id", "at"],
    }
    jsonschema.Draft7Validator.check_schema(derived)


@pytest.mark.behaviour("JSON", "What is written fits the schema that is derived, as the package jsonschema judges")
def test_what_is_written_fits_the_derived_schema() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "at": 0, "lines": [None, {"sku": "x", "data": b"1"}], "tags": [("a", None), ("b", 1)]},
        {"id": 2, "at": 1, "price": None, "lines": [], "tags": []},
    ]
    judge = jsonschema.Draft7Validator(json.loads(derive_schema(ORDER, "value")))
    for payload in JsonEncoder(ORDER, "value").encode(pa.array(rows, ORDER)).to_pylist():
        judge.validate(json.loads(payload))
    assert not judge.is_valid({"id": 1, "at": "x", "other": 1})


A = required("a", pa.int32())


@pytest.mark.behaviour("JSON", "Annotations of a given JSON Schema, and keywords about absent columns, stop no write")
def test_annotations_and_absent_columns_have_no_effect() -> None:
    kind = pa.struct([A, pa.field("name", pa.string()), pa.field("tags", pa.list_(pa.string()))])
    given = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "User",
        "type": "object",
        "x-owner": "team",
        "$defs": {
            "Name": {"type": ["string", "null"], "maxLength": 9},
            "Unused": {"not": {}},
            "Tags": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Name"}, {"type": "null"}]}},
        },
        "properties": {
            "a": {"type": "integer", "minimum": 0, "readOnly": True, "deprecated": True, "javaType": "x"},
            "name": {"$ref": "#/$defs/Name", "default": None, "examples": ["x"]},
            "tags": {"$ref": "#/$defs/Tags"},
            "definitions": {"const": 1},
            "place": {"items": [{"type": "string"}]},
        },
    }
    schema = SchemaText(json.dumps(given))
    assert FORMAT.registered_schema(FORMAT.given(schema, kind, "value")).text == schema.text
    given["properties"]["a"] = {"type": "string"}  # type: ignore[index]
    with pytest.raises(FormatError, match=r"column 'value.a' is int32, in JSON an integer"):
        FORMAT.given(SchemaText(json.dumps(given)), kind, "value")


@pytest.mark.behaviour("JSON", "A JSON Schema is compared with what it refers to in itself and in other schemas")
def test_what_a_schema_refers_to_is_compared() -> None:
    kind = pa.struct([required("a", pa.int32()), pa.field("next", pa.struct([("a", pa.int32())]))])
    leaf = SchemaText('{"definitions": {"number": {"type": "integer"}, "text": {"type": "string"}}}')
    node = '{"$id": "https://x/node.json", "properties": {"a": {"$ref": "%s#/definitions/%s"}}}'
    for address in ("leaf.json", "https://x/leaf.json"):
        for name, is_right in (("number", True), ("text", False)):
            middle = SchemaText(node % (address, name), (Reference("leaf.json", leaf),))
            whole = '{"$id": "https://x/", "properties": {"a": {}, "next": {"$ref": "node.json"}}}'
            schema = SchemaText(whole, (Reference("node.json", middle),))
            if is_right:
                # Tasks receive only the schema.
                FORMAT.encoder(replace(FORMAT.given(schema, kind, "value"), source=None), kind)
            else:
                with pytest.raises(FormatError, match=r"column 'value.next.a' is int32"):
                    FORMAT.given(schema, kind, "value")
    FORMAT.given(SchemaText('{"properties": {"a": {"type": "integer"}, "next": {"$ref": "#"}}}'), kind, "value")
    with pytest.raises(FormatError, match=r"has '\$ref' for column 'value.a'"):
        FORMAT.given(SchemaText('{"properties": {"a": {"$ref": "#x"}, "next": {"$ref": "#"}}}'), kind, "value")
    many = {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 9} for n in range(9)}, "$ref": "#/$defs/d0"}
    with pytest.raises(FormatError, match="more than 100000 parts"):
        parse_schema(SchemaText(json.dumps(many)))


@with_each(
    ("schema", "expected"),
    [
        ({"type": "strng"}, "'type': \"strng\", expected one of array, boolean"),
        ({"type": ["string", "strng"]}, "or a list of them"),
        ({"type": []}, "or a list of them"),
        ({"required": "a"}, "a list of texts"),
        ({"enum": "a"}, "a list"),
        ({"allOf": [{"minLength": "1"}]}, "a whole number"),
        ({"properties": {"a": {"maxItems": 1.5}}}, "a whole number"),
        ({"maximum": True}, "a number"),
        ({"pattern": 1}, "a text"),
        ({"uniqueItems": 1}, "a boolean"),
        ({"items": 1}, "an object or a boolean"),
        ({"additionalProperties": [True]}, "has [true] where a schema is expected: an object or a boolean"),
        ({"properties": {"a": {"not": []}}}, "has [] where a schema is expected"),
        ({"dependencies": {"a": [1]}}, "'required': [1], expected a list of texts"),
        ({"dependencies": {"a": 1}}, "has 1 where a schema is expected"),
        ({"dependentRequired": {"a": "b"}}, "an object of lists of texts"),
    ],
)
def test_keywords_have_their_kinds_of_values(schema: Any, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_schema(SchemaText(json.dumps(schema)))
    assert expected in str(caught.value)


#: JSON of all shapes that a keyword may hold, valid or not.
HELD: tuple[Any, ...] = (None, True, 1, "a", [], [1], ["b"], [[]], [{}], {}, {"type": "integer"}, {"b": 1})
SHAPES: tuple[Any, ...] = (*HELD, False, 1.5, -1, [None], ["a", "b"], [True], [{"a": 1}], *({"a": one} for one in HELD))


@pytest.mark.parametrize("draft", ["draft-04", "draft-07", "2019-09", "2020-12"])
def test_any_value_of_any_keyword_is_refused_or_compared(draft: str) -> None:
    """Schemas come from registries: none may cause an error that does not concern the schema."""
    rows = [
        pa.array([{"a": 1, "b": ["x", None]}, None], pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
        pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array(["a", None], pa.string()),
    ]
    compared = 0
    for keyword in sorted(CONSTRAINTS - {"$ref", "$dynamicRef", "$recursiveRef"}):
        for held in SHAPES:
            part = {keyword: held}
            for schema in (part, {"properties": {"a": part, "b": part}}, {"items": part, "not": part}):
                text = json.dumps({"$schema": draft, **schema})
                for column in rows:
                    with contextlib.suppress(KafkaError):
                        JsonEncoder(column.type, "value", parse_schema(SchemaText(text))).encode(column)
                        compared += 1
    assert compared > 1_000
