"""What a registry in memory keeps, answers and refuses; no socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_sink.formats.avro.compatibility import problems
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.registry.embedded_registry import answer
from kafka_sink.registry.schema_store import LEVELS, Schema, SchemaStore


def record(*fields: Any, name: str = "R") -> str:
    listed = [{"name": each[0], "type": each[1], **({"default": each[2]} if len(each) == 3 else {})} for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def ask(store: SchemaStore, method: str, path: str, **body: Any) -> tuple[int, Any]:
    return answer(store, method, path, json.dumps(body).encode() if body else b"")


A = record(("a", "int"))
#: A field without a default is new: earlier data cannot be read.
A_AND_B = record(("a", "int"), ("b", "int"))
#: A field with a default is new.
A_AND_DEFAULT = record(("a", "int"), ("b", "int", 0))


def test_same_schema_has_the_same_id_in_every_subject() -> None:
    store = SchemaStore()
    ids = [
        ask(store, "POST", path, schema=schema)[1]["id"]
        for path, schema in (
            ("/subjects/one/versions", A),
            ("/subjects/one/versions?normalize=false", json.dumps(json.loads(A), indent=3)),
            ("/subjects/two/versions", A),
            ("/subjects/two/versions", A_AND_DEFAULT),
        )
    ]
    assert ids == [1, 1, 1, 2]
    assert ask(store, "GET", "/subjects/two/versions") == (200, [1, 2])
    assert ask(store, "GET", "/schemas/ids/2") == (200, {"schema": A_AND_DEFAULT})
    latest = {"subject": "two", "version": 2, "id": 2, "schema": A_AND_DEFAULT}
    assert ask(store, "GET", "/subjects/two/versions/latest") == (200, latest)
    assert ask(store, "GET", "/subjects/two/versions/1")[1]["schema"] == A
    assert ask(store, "POST", "/subjects/two", schema=A)[1]["version"] == 1
    assert ask(store, "GET", "/subjects") == (200, ["one", "two"])
    assert ask(store, "DELETE", "/subjects/one") == (200, [1])
    assert ask(store, "GET", "/subjects") == (200, ["two"])


def test_names_of_subjects_may_have_slashes() -> None:
    store = SchemaStore()
    ask(store, "POST", "/subjects/a%2Fb/versions", schema=A)
    assert ask(store, "GET", "/subjects") == (200, ["a/b"])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/none/versions", {}, 404, 40401),
        ("GET", "/subjects/s/versions/7", {}, 404, 40402),
        ("GET", "/subjects/s/versions/x", {}, 404, 40402),
        ("GET", "/schemas/ids/99", {}, 404, 40403),
        ("POST", "/subjects/s", {"schema": A_AND_DEFAULT}, 404, 40403),
        ("POST", "/subjects/s/versions", {"schema": "{"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": A, "schemaType": "PROTOBUF"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": A_AND_B}, 409, 409),
        ("PUT", "/config", {"compatibility": "SOMEHOW"}, 422, 42203),
        ("GET", "/elsewhere", {}, 404, 404),
        ("PUT", "/subjects", {}, 404, 404),
    ],
)
def test_refusals_have_status_and_code_of_the_contract(
    method: str, path: str, body: dict[str, Any], status: int, code: int
) -> None:
    store = SchemaStore()
    store.register("s", Schema("AVRO", A))
    found = ask(store, method, path, **body)
    assert (found[0], found[1]["error_code"]) == (status, code)
    assert found[1]["message"]


def test_a_body_that_is_no_object_is_refused() -> None:
    for body in (b"[", b"[]", b"[" * 100_000):
        assert answer(SchemaStore(), "POST", "/subjects/s", body)[0] == 400


@pytest.mark.behaviour("Schema registry", "The registry in memory refuses what its level of compatibility forbids")
@pytest.mark.parametrize(
    ("level", "with_default", "without_default", "back_to_first"),
    [
        ("BACKWARD", True, False, True),
        ("FORWARD", True, True, True),
        ("FULL", True, False, True),
        ("NONE", True, True, True),
    ],
)
def test_levels_of_compatibility(level: str, with_default: bool, without_default: bool, back_to_first: bool) -> None:
    for schema, accepted in ((A_AND_DEFAULT, with_default), (A_AND_B, without_default), (A, back_to_first)):
        store = SchemaStore()
        assert ask(store, "PUT", "/config/s", compatibility=level) == (200, {"compatibility": level})
        assert ask(store, "GET", "/config/s") == (200, {"compatibilityLevel": level})
        store.register("s", Schema("AVRO", A))
        tried = ask(store, "POST", "/compatibility/subjects/s/versions/latest", schema=schema)
        assert tried[1]["is_compatible"] == accepted
        assert ask(store, "POST", "/subjects/s/versions", schema=schema)[0] == (200 if accepted else 409)


def test_transitive_levels_compare_with_all_versions() -> None:
    versions = [A, record(("a", "int"), ("b", "string", "x")), record(("a", "int"))]
    for level, accepted in (("BACKWARD", 200), ("BACKWARD_TRANSITIVE", 409)):
        store = SchemaStore()
        store.set_level("NONE")
        store.register("s", Schema("AVRO", record(("b", "int"))))
        for each in versions:
            store.register("s", Schema("AVRO", each))
        store.set_level(level)
        last = record(("a", "int"), ("b", "string", "y"))
        assert ask(store, "POST", "/subjects/s/versions", schema=last)[0] == accepted
    assert len(LEVELS) == 7


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ('"long"', '"int"', []),
        ('"int"', '"long"', ["TYPE_MISMATCH: the type at path '/' is int, which does not read long"]),
        ('["null","int"]', '"int"', []),
        ('"int"', '["null","int"]', ["TYPE_MISMATCH: the type at path '/' is int, which does not read null"]),
        ('{"type":"array","items":"int"}', '{"type":"array","items":"string"}', ["/items"]),
        ('{"type":"map","values":"int"}', '{"type":"map","values":"string"}', ["/values"]),
        ('{"type":"enum","name":"E","symbols":["A"]}', '{"type":"enum","name":"E","symbols":["A","B"]}', ["lacks B"]),
        ('{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"F","size":3}', ["fixed F of 2 bytes"]),
        ('{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}', '"bytes"', []),
        (A_AND_B, A, ["the field 'b' at path '/fields/1' has no default value"]),
        (A, record(("a", "int"), name="S"), ["NAME_MISMATCH"]),
        (record(("a", "string")), A, ["'/fields/0/type' is string"]),
    ],
)
def test_what_a_schema_can_read(reader: str, writer: str, expected: list[str]) -> None:
    found = list(problems(parse_schema(reader), parse_schema(writer)))
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True))


def json_schema(*required: str, **properties: str) -> str:
    typed = {name: {"type": kind} for name, kind in properties.items()}
    return json.dumps(
        {"type": "object", "additionalProperties": False, "properties": typed, "required": list(required)}
    )


def test_json_schemas_are_kept_with_their_type_and_compared() -> None:
    store = SchemaStore()
    path, first = "/subjects/j/versions", json_schema("a", a="integer")
    assert ask(store, "POST", path, schema=first, schemaType="JSON") == (200, {"id": 1})
    assert ask(store, "GET", "/schemas/ids/1") == (200, {"schemaType": "JSON", "schema": first})
    assert ask(store, "GET", f"{path}/1")[1]["schemaType"] == "JSON"
    assert ask(store, "POST", "/subjects/j", schema=first, schemaType="JSON")[1]["version"] == 1
    assert ask(store, "POST", path, schema=json_schema("a", a="integer", b="string"), schemaType="JSON")[0] == 200
    refused = ask(store, "POST", path, schema=json_schema("a", "b", a="integer", b="string"), schemaType="JSON")
    assert (refused[0], "REQUIRED_ATTRIBUTE_ADDED" in refused[1]["message"]) == (409, True)
    assert "the type is AVRO, and was JSON" in ask(store, "POST", path, schema=A)[1]["message"]
    assert ask(store, "POST", path, schema="[]", schemaType="JSON")[0] == 422
    assert ask(store, "POST", path, schema='syntax = "proto3";', schemaType="PROTOBUF")[0] == 422
    assert ask(store, "GET", "/schemas/types") == (200, ["AVRO", "JSON"])
