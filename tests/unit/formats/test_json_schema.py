"""JSON Schemas of columns, and which changes of them are compatible."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.column import FORMAT, JsonEncoder, derive_schema
from kafka_sink.formats.json.compatibility import check_rows, parse_schema, problems
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


def derived(*fields: pa.Field) -> Any:
    return parse_schema(SchemaText(derive_schema(pa.struct(fields), "value")))


A = required("a", pa.int32())


@with_each(
    ("reader", "writer", "problem"),
    [
        ([A], [A], None),
        ([A, pa.field("b", pa.string())], [A], None),
        ([A, required("b", pa.string())], [A], "REQUIRED_ATTRIBUTE_ADDED: path '/properties/b'"),
        ([A], [A, pa.field("b", pa.string())], "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL: path '/properties/b'"),
        ([pa.field("a", pa.int32())], [A], None),
        ([A], [pa.field("a", pa.int32())], "REQUIRED_ATTRIBUTE_ADDED"),
        ([required("a", pa.float64())], [A], None),
        ([A], [required("a", pa.float64())], "TYPE_CHANGED: the type at path '/properties/a' is 'integer'"),
        ([required("a", pa.string())], [A], "TYPE_CHANGED"),
        ([required("a", pa.list_(pa.int32()))], [required("a", pa.list_(required("x", pa.int32())))], None),
        ([required("a", pa.list_(required("x", pa.int32())))], [required("a", pa.list_(pa.int32()))], "path '/prop"),
        (
            [required("a", pa.map_(pa.string(), pa.float64()))],
            [required("a", pa.map_(pa.string(), required("value", pa.int32())))],
            None,
        ),
        (
            [required("a", pa.map_(pa.string(), required("value", pa.int32())))],
            [required("a", pa.map_(pa.string(), required("value", pa.string())))],
            "path '/properties/a/additionalProperties'",
        ),
        (
            [required("a", pa.struct([pa.field("n", pa.int32())]))],
            [required("a", pa.map_(pa.string(), pa.int32()))],
            "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL: path '/properties/a/properties/n'",
        ),
    ],
)
def test_changes_of_columns_are_compatible_or_named(
    reader: list[pa.Field], writer: list[pa.Field], problem: str | None
) -> None:
    found = list(problems(derived(*reader), derived(*writer)))
    assert (found == []) if problem is None else problem in found[0]


def test_given_schema_takes_the_rows_or_is_refused() -> None:
    own = derive_schema(pa.struct([A]), "value")
    for given in (
        "true",
        "{}",
        own,
        '{"type": ["object", "null"]}',
        '{"anyOf": [{"type": "string"}, {"type": "object"}]}',
    ):
        assert check_rows(SchemaText(given), own, "value") == []
    for given, message in (
        (
            '{"type": "object", "required": ["b"]}',
            "column 'value' does not fit the JSON Schema .REQUIRED_ATTRIBUTE_ADDED",
        ),
        ("false", "TYPE_NARROWED"),
        ('{"type": "array"}', "TYPE_CHANGED"),
        ("{", "the JSON Schema is not valid JSON"),
        ("[]", "expected an object"),
    ):
        with pytest.raises(FormatError, match=message):
            check_rows(SchemaText(given), own, "value")


@pytest.mark.behaviour(
    "JSON", "Annotations and constraints of a given JSON Schema stop no write; one warning names these"
)
def test_constraints_that_are_not_compared_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
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
    for _ in range(2):
        form = FORMAT.given(schema, kind, "unchecked")
    assert FORMAT.registered_schema(form).text == schema.text
    told = [each for each in caplog.messages if "'unchecked'" in each]
    assert len(told) == 1
    assert told[0].endswith(": const, items, maxLength, minimum")
    given["properties"]["a"] = {"type": "string"}  # type: ignore[index]
    with pytest.raises(FormatError, match="TYPE_CHANGED: the type at path '/properties/a'"):
        FORMAT.given(SchemaText(json.dumps(given)), kind, "unchecked")


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
                assert check_rows(schema, derive_schema(kind, "value"), "value") == []
            else:
                with pytest.raises(FormatError, match="TYPE_CHANGED: the type at path '/properties/next/properties/a'"):
                    check_rows(schema, derive_schema(kind, "value"), "value")
    within = '{"properties": {"a": {"$ref": "#x"}, "next": {"$ref": "#"}}}'
    assert check_rows(SchemaText(within), derive_schema(kind, "value"), "value") == ["$ref"]
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
    ],
)
def test_keywords_have_their_kinds_of_values(schema: Any, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_schema(SchemaText(json.dumps(schema)))
    assert expected in str(caught.value)
