"""Schema changes that the judges of compatibility accept, by the rules of the documentation that each cites.

The expected results for Avro are those of SchemaCompatibility in Avro's library for Java, 1.12.1.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

import pytest

from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.testing.registry.avro_judge import problems as avro_problems
from kafka_sink.testing.registry.json_judge import problems as json_problems
from kafka_sink.testing.registry.protobuf_judge import problems as protobuf_problems
from kafka_sink.testing.registry.refusals import CannotJudgeError
from tests.support.cases import with_each


def said_of(judge: Any, reader: Any, writer: Any) -> str:
    """The kind of the first problem; empty if there is none."""
    found = judge(*(SchemaText(json.dumps(each)) for each in (reader, writer)))
    return str(found[0]).partition(":")[0] if found else ""


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": symbols, **more}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def tree(kind: str) -> dict[str, Any]:
    return record(field("next", ["null", "R"]), field("value", kind))


def decimal(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": scale}


#: Reader, writer, and the problem.
AVRO = [
    (record(field("a"), field("b", default=0)), record(field("a")), ""),
    (record(field("a"), field("b")), record(field("a")), "READER_FIELD_MISSING_DEFAULT_VALUE"),
    (record(field("a")), record(field("a"), field("b")), ""),
    (record(field("b", aliases=["a"])), record(field("a")), ""),
    # Java's library refuses an ambiguous field, and Apache's package takes the first candidate.
    (record(field("b", aliases=["a"])), record(field("a"), field("b")), "the field 'b' of the reader stands"),
    (record(field("a", aliases=["a"])), record(field("a")), "the field 'a' of the reader stands"),
    (record(name="n.S", aliases=["R"]), record(name="n.R"), ""),
    (record(name="n.S", aliases=["R"]), record(), "NAME_MISMATCH"),
    (record(name="S"), record(), "NAME_MISMATCH"),
    (record(name="x.R"), record(name="y.R"), ""),
    (
        record(field("a", record(name="T", namespace="", aliases=["S"])), name="n.R"),
        record(field("a", record(name="S", namespace="")), name="n.R"),
        "",
    ),
    (enum("A", default="A"), enum("A", "B"), ""),
    (enum("A"), enum("A", "B"), "MISSING_ENUM_SYMBOLS"),
    (enum("A", name="D"), enum("A"), "NAME_MISMATCH"),
    (enum("A", name="D", aliases=["E"]), enum("A"), ""),
    (fixed(2, "D"), fixed(2), "NAME_MISMATCH"),
    (fixed(2), fixed(3), "FIXED_SIZE_MISMATCH"),
    (tree("long"), tree("int"), ""),
    (tree("int"), tree("long"), "TYPE_MISMATCH"),
    ("long", "int", ""),
    ("int", "long", "TYPE_MISMATCH"),
    ("double", "float", ""),
    ("bytes", "string", ""),
    ("string", "bytes", ""),
    ("boolean", "int", "TYPE_MISMATCH"),
    (["null", "int"], "int", ""),
    ("int", ["null", "int"], "TYPE_MISMATCH"),
    (["null", "long"], ["null", "int"], ""),
    (["int"], ["int", "string"], "MISSING_UNION_BRANCH"),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, ""),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "TYPE_MISMATCH"),
    (decimal(2), "bytes", ""),
    (decimal(2), decimal(1), ""),
]


@pytest.mark.behaviour("Schema registry", "Avro's compatibility is what Avro's library for Java says")
@with_each(("reader", "writer", "expected"), AVRO)
def test_avro(reader: Any, writer: Any, expected: str) -> None:
    said = said_of(avro_problems, reader, writer)
    assert said.startswith(expected) and bool(said) == bool(expected)


def test_avro_names_the_place() -> None:
    reader, writer = (SchemaText(json.dumps(record(field("a"), field("b", kind)))) for kind in ("int", "string"))
    (said,) = avro_problems(reader, writer)
    assert said == "TYPE_MISMATCH: reader type: int not compatible with writer type: string at path '/fields/1/type'"


#: Fields before and after, and the problem. Each pair is a message of its own in the same two files.
PROTOBUF = [
    ("optional int32 a = 1;", "optional int32 a = 1; optional string b = 2;", ""),
    ("optional int32 a = 1; optional string b = 2;", "optional int32 a = 1;", ""),
    ("optional int32 a = 1; map<string, N> b = 2;", "optional int32 a = 1;", ""),
    ("optional int32 a = 1;", "optional int32 other = 1;", ""),
    ("optional int32 a = 1;", "optional uint64 a = 1;", ""),
    ("optional int32 a = 1;", "optional E a = 1;", ""),
    ("optional int32 a = 1;", "optional sint32 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("optional fixed32 a = 1;", "optional sfixed32 a = 1;", ""),
    ("optional fixed64 a = 1;", "optional double a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("optional float a = 1;", "optional double a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("optional string a = 1;", "repeated bytes a = 1;", ""),
    ("optional int32 a = 1;", "repeated int32 a = 1;", "FIELD_NUMERIC_LABEL_CHANGED"),
    ("optional int32 a = 1;", "required int32 a = 1;", "FIELD_NUMERIC_LABEL_CHANGED"),
    ("optional string a = 1;", "required string a = 1;", ""),
    ("", "required int32 a = 1;", "REQUIRED_FIELD_ADDED"),
    ("required int32 a = 1;", "", "REQUIRED_FIELD_REMOVED"),
    ("optional N a = 1;", "optional O a = 1;", "FIELD_NAMED_TYPE_CHANGED"),
    ("optional N a = 1;", "repeated N a = 1;", ""),
    ("optional N a = 1;", "optional string a = 1;", "FIELD_KIND_CHANGED"),
    ("map<string, int32> a = 1;", "map<string, int64> a = 1;", ""),
    ("map<string, int32> a = 1;", "map<int32, int32> a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("map<string, int32> a = 1;", "repeated N a = 1;", "FIELD_KIND_CHANGED"),
    ("message X {}", "", "MESSAGE_REMOVED"),
    ("message X { optional int32 a = 1; }", "message X { optional string a = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
    ("enum Y { Y0 = 0; Y1 = 1; }", "enum Y { Y2 = 0; }", ""),
    ("enum Y { Y0 = 0; }", "", ""),
    ("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", ""),
    ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }", "ONEOF_FIELD_REMOVED"),
    ("oneof o { int32 a = 1; int32 b = 2; }", "optional int32 a = 1;", "ONEOF_FIELD_REMOVED"),
    ("oneof o { int32 a = 1; int32 b = 2; }", "", ""),
    ("oneof o { int32 a = 1; int32 b = 2; }", "oneof other { int32 a = 1; int32 b = 2; }", ""),
    ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; } optional int32 b = 2;", ""),
    ("optional int32 a = 1;", "oneof o { int32 a = 1; int32 b = 2; }", ""),
    ("optional int32 a = 1; optional int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", "MULTIPLE_FIELDS_MOVED"),
    ("oneof o { int32 a = 1; } optional int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", "FIELD_MOVED_TO_EX"),
    ("oneof o { int32 a = 1; }", "oneof o { string a = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
]


def proto(at: int) -> SchemaText:
    """All messages of PROTOBUF before (*at* 0) or after the change."""
    declared = "message N { optional M0 m = 1; } message O {} enum E { A = 0; }"
    messages = " ".join(f"message M{number} {{ {each[at]} }}" for number, each in enumerate(PROTOBUF))
    return SchemaText(f'syntax = "proto2"; package p; {declared} {messages}')


@pytest.mark.behaviour("Schema registry", "A Protobuf schema in which a number stands for something else is refused")
def test_protobuf() -> None:
    found: dict[int, list[str]] = defaultdict(list)
    for each in protobuf_problems(proto(1), proto(0)):
        place = re.search(r"'#/M(\d+)/", each)
        assert place is not None, each
        found[int(place[1])].append(each)
    for number, (before, after, expected) in enumerate(PROTOBUF):
        said = found[number]
        assert len(said) == bool(expected) and "".join(said).startswith(expected), (before, after, said)


def test_protobuf_of_other_syntaxes() -> None:
    fields = "{} a = 1; {} b = 2; repeated int32 c = 3;"
    before, after = fields.format("int32", "optional int32"), fields.format("repeated int32", "repeated int32")
    one, two, other, edition, group = (
        SchemaText(f"{syntax}; package {package}; message M {{ {declared} }}")
        for syntax, package, declared in (
            ('syntax = "proto3"', "p", before),
            ('syntax = "proto3"', "p", after),
            ('syntax = "proto3"', "q", before),
            ('edition = "2023"', "p", "int32 a = 1;"),
            ('syntax = "proto2"', "p", "optional group A = 1 {}"),
        )
    )
    # A proto3 field without a written label has none, and then Confluent's registry does not compare it.
    (said,) = protobuf_problems(two, one)
    assert said == "FIELD_NUMERIC_LABEL_CHANGED: the field at path '#/M/2' is repeated, and was optional"
    assert protobuf_problems(other, one) == ["PACKAGE_CHANGED: the package is 'q', and was 'p'"]
    for each in (edition, group):
        with pytest.raises(CannotJudgeError, match="this registry cannot judge"):
            protobuf_problems(each, group)


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    return {**opened(required, **properties), "additionalProperties": False}


def opened(required: str = "", **properties: Any) -> dict[str, Any]:
    kinds = {name: {"type": each} if isinstance(each, str) else each for name, each in properties.items()}
    return {"type": "object", "properties": kinds, "required": list(required)}


def partly(kind: str, **properties: Any) -> dict[str, Any]:
    return {**opened(**properties), "additionalProperties": {"type": kind}}


INT, TEXT, NUMBER, NULL = ({"type": each} for each in ("integer", "string", "number", "null"))

#: Reader, writer, and the problem.
JSON = [
    (closed(a="integer", b="string"), closed(a="integer"), ""),
    (
        closed("ab", a="integer", b="string"),
        closed("a", a="integer"),
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    ),
    (closed("ab", a="integer", b={"type": "string", "default": ""}), closed("a", a="integer"), ""),
    (closed("a", a="integer"), closed(a="integer"), "REQUIRED_ATTRIBUTE_ADDED"),
    (closed("a", a={"type": "integer", "default": 0}), closed(a="integer"), ""),
    (closed(a="integer"), closed("a", a="integer"), ""),
    (closed(a="integer"), closed(a="integer", b="string"), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    (closed(a="integer"), closed(a="integer", b=False), ""),
    (opened(a="integer"), opened(a="integer", b="string"), ""),
    (opened(a="integer", b="string"), opened(a="integer"), "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (opened("b", a="integer", b="string"), opened(a="integer"), "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (opened(a="integer", b=True), opened(a="integer"), ""),
    (partly("string", a="integer"), partly("string", a="integer", b="string"), ""),
    (partly("string", a="integer"), partly("string", a="integer", b="integer"), "TYPE_CHANGED"),
    (partly("string", b="string"), partly("string"), ""),
    (partly("string", b="integer"), partly("string"), "TYPE_CHANGED"),
    (opened(), closed(), ""),
    (closed(), opened(), "ADDITIONAL_PROPERTIES_REMOVED"),
    (partly("string"), opened(), "ADDITIONAL_PROPERTIES_NARROWED"),
    (opened(), partly("string"), ""),
    (partly("number"), partly("integer"), ""),
    (NUMBER, INT, ""),
    (INT, NUMBER, "TYPE_CHANGED"),
    (TEXT, INT, "TYPE_CHANGED"),
    (True, INT, ""),
    ({"title": "anything"}, INT, ""),
    (INT, True, "TYPE_CHANGED"),
    (INT, False, ""),
    ({"type": ["integer", "null"]}, INT, ""),
    (INT, {"type": ["integer", "null"]}, "TYPE_CHANGED"),
    ({"type": ["null", "number"]}, {"type": ["integer", "null"]}, ""),
    ({"type": ["null"]}, NULL, ""),
    ({"oneOf": [NULL, NUMBER]}, {"oneOf": [INT, NULL]}, ""),
    ({"oneOf": [NULL, INT]}, {"oneOf": [INT, NULL, TEXT]}, "SUM_TYPE_NARROWED"),
    ({"oneOf": [NULL, TEXT]}, {"oneOf": [NULL, INT]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    ({"oneOf": [NUMBER, TEXT]}, {"oneOf": [INT, NUMBER]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED"),
    ({"oneOf": [NUMBER, INT]}, {"oneOf": [INT, NUMBER]}, ""),
    ({"anyOf": [INT, NULL]}, {"oneOf": [INT, NULL]}, ""),
    ({"oneOf": [INT, NULL]}, {"anyOf": [INT, NULL]}, "COMBINED_TYPE_CHANGED"),
    ({"allOf": [INT, NUMBER]}, {"allOf": [INT]}, "PRODUCT_TYPE_EXTENDED"),
    ({"allOf": [INT]}, {"allOf": [INT, NUMBER]}, ""),
    (NUMBER, {"allOf": [TEXT, NUMBER]}, ""),
    ({"enum": [1, 2]}, {"enum": [1]}, ""),
    ({"enum": [1]}, {"enum": [1, 2]}, "ENUM_NARROWED"),
    ({"type": "string", "enum": ["a"]}, TEXT, "ENUM_NARROWED"),
    (TEXT, {"type": "string", "enum": ["a"]}, ""),
    ({"const": 1}, {"const": True}, "CONST_NARROWED"),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 4}, ""),
    ({"type": "string", "maxLength": 4}, {"type": "string", "maxLength": 5}, "MAX_LENGTH_CHANGED"),
    ({"type": "string", "minLength": 4}, TEXT, "MIN_LENGTH_ADDED"),
    (TEXT, {"type": "string", "pattern": "a"}, ""),
    ({"type": "string", "pattern": "b"}, {"type": "string", "pattern": "a"}, "PATTERN_CHANGED"),
    ({"type": "number", "minimum": 1}, {"type": "number", "minimum": 2}, ""),
    ({"type": "number", "exclusiveMinimum": 3}, {"type": "number", "exclusiveMinimum": 2}, "EXCLUSIVE_MINIMUM_CHANGED"),
    ({"type": "number", "multipleOf": 0.1}, {"type": "number", "multipleOf": 0.3}, ""),
    ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 3}, "MULTIPLE_OF_CHANGED"),
    ({"type": "array", "items": NUMBER}, {"type": "array", "items": INT}, ""),
    ({"type": "array", "items": INT}, {"type": "array"}, "SCHEMA_ADDED"),
    ({"type": "array"}, {"type": "array", "items": INT}, ""),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, "UNIQUE_ITEMS_ADDED"),
    ({"type": "array", "uniqueItems": False}, {"type": "array", "uniqueItems": True}, ""),
    ({"properties": {"a": NUMBER}}, {"type": "object", "properties": {"a": INT}}, ""),
]


@pytest.mark.behaviour("Schema registry", "JSON Schemas are compared by Confluent's rules, as far as they are known")
@with_each(("reader", "writer", "expected"), JSON)
def test_json(reader: Any, writer: Any, expected: str) -> None:
    assert said_of(json_problems, reader, writer) == expected


@with_each(
    "schema",
    [
        {"type": "object", "patternProperties": {"a": INT}},
        {"type": "array", "items": [INT]},
        {"type": "array", "prefixItems": [INT]},
        {"type": ["string", "integer"], "enum": ["a", 1]},
        {"type": "string", "maximum": 1},
        {"oneOf": [INT], "anyOf": [INT]},
        {"if": INT},
        {"minLength": 1, "minimum": 1},
        {"$ref": "other.json"},
    ],
)
def test_json_that_is_not_judged_is_refused(schema: dict[str, Any]) -> None:
    """Refused unless it is unchanged."""
    changed = {"type": "object", "properties": {"a": schema}}
    assert said_of(json_problems, changed, changed) == ""
    for pair in ((changed, opened(a={"type": "object"})), (opened(a={"type": "object"}), changed)):
        with pytest.raises(CannotJudgeError, match="this registry cannot judge"):
            said_of(json_problems, *pair)


def several(count: int, name: str) -> list[dict[str, Any]]:
    return [record(field("x"), name=f"{name}{number}") for number in range(count)]


def wide(count: int) -> dict[str, Any]:
    return record(*(field(f"f{number}") for number in range(count)))


def objects(count: int, name: str) -> list[dict[str, Any]]:
    return [{"type": "object", "required": [f"{name}{number}"]} for number in range(count)]


@pytest.mark.behaviour("Schema registry", "Judges of compatibility make 50,000 comparisons of two schemas at most")
@with_each(
    ("judge", "reader", "writer", "text"),
    [
        (
            avro_problems,
            record(field("u", several(250, "A"))),
            record(field("u", several(250, "B"))),
            "50000 comparisons",
        ),
        (avro_problems, wide(5001), wide(1), "a record of Avro with more than 5000 fields"),
        (avro_problems, wide(1), wide(5001), "a record of Avro with more than 5000 fields"),
        (
            avro_problems,
            record(*(field(f"r{number}", record(field("x"), namespace=f"a{number}")) for number in range(800))),
            record(*(field(f"r{number}", record(field("x"), namespace=f"b{number}")) for number in range(800))),
            "1000000 comparisons",
        ),
        (json_problems, {"anyOf": objects(250, "a")}, {"anyOf": objects(250, "b")}, "50000 comparisons"),
    ],
)
def test_schemas_that_take_too_long_to_compare_are_refused(judge: Any, reader: Any, writer: Any, text: str) -> None:
    with pytest.raises(CannotJudgeError, match=text):
        said_of(judge, reader, writer)


def test_a_long_chain_of_messages_is_compared() -> None:
    def chain(kind: str) -> SchemaText:
        messages = (f"message M{number} {{ M{number + 1} a = 1; }}" for number in range(2_000))
        return SchemaText(f'syntax = "proto3"; {" ".join(messages)} message M2000 {{ {kind} a = 1; }}')

    assert protobuf_problems(chain("int32"), chain("int64")) == []
    (problem,) = protobuf_problems(chain("string"), chain("int64"))
    assert problem.startswith("FIELD_SCALAR_KIND_CHANGED: the field at path '#/M2000/1'")


def test_records_of_5000_columns_that_may_be_null_are_compared() -> None:
    kinds = (["null", "int"], ["null", "long"])
    old, new = (record(*(field(f"f{number}", kind, default=None) for number in range(5_000))) for kind in kinds)
    assert said_of(avro_problems, new, old) == ""
    assert said_of(avro_problems, old, new) == "MISSING_UNION_BRANCH"
