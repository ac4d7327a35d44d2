"""What a registry in memory keeps, answers and refuses; no socket."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.protobuf.parsing import parse_file
from kafka_sink.testing.registry.avro_judge import problems
from kafka_sink.testing.registry.embedded_registry import answer
from kafka_sink.testing.registry.protobuf_judge import problems as protobuf_problems
from kafka_sink.testing.registry.schema_store import LEVELS, Schema, SchemaStore


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
    assert ask(store, "GET", "/schemas/types") == (200, ["AVRO", "JSON", "PROTOBUF"])


def messages(*fields: str, more: str = "") -> str:
    declared = " ".join(f"{each};" for each in fields)
    return f'syntax = "proto2"; package p; enum E {{ A = 0; }} message N {{}} message M {{ {declared} }} {more}'


def test_protobuf_is_kept_as_text_and_answered_as_descriptor_too() -> None:
    store = SchemaStore()
    path, text = "/subjects/p/versions", messages("optional int32 a = 1")
    assert ask(store, "POST", path, schema=text, schemaType="PROTOBUF") == (200, {"id": 1})
    assert ask(store, "GET", "/schemas/ids/1") == (200, {"schemaType": "PROTOBUF", "schema": text})
    (status, serialized) = ask(store, "GET", "/schemas/ids/1?format=serialized")
    file = FileDescriptorProto.FromString(base64.b64decode(serialized["schema"]))
    assert (status, [each.name for each in file.message_type]) == (200, ["N", "M"])
    # The same schema, by another file name and as a descriptor, is no other version.
    file.name = "other.proto"
    again = base64.b64encode(file.SerializeToString()).decode()
    assert ask(store, "POST", path, schema=again, schemaType="PROTOBUF") == (200, {"id": 1})
    assert ask(store, "GET", f"{path}/1?format=serialized")[1]["schema"] == serialized["schema"]
    refused = ask(store, "POST", path, schema="message M {", schemaType="PROTOBUF")
    assert (refused[0], "Invalid schema: the Protobuf schema is invalid" in refused[1]["message"]) == (422, True)


_A = "optional int32 a = 1"
CHANGES = [
    ([_A], [_A, "optional string b = 2"], None),
    ([_A, "optional string b = 2"], [_A], None),
    ([_A, "map<string, N> b = 2"], [_A], None),
    ([_A], ["optional uint64 a = 1"], None),
    ([_A], ["optional E a = 1"], None),
    ([_A], ["optional int32 other = 1"], None),
    (["optional string a = 1"], ["repeated bytes a = 1"], None),
    ([_A], ["optional string a = 1"], "FIELD_KIND_CHANGED: the field at path '#/p.M/1' is string, which does not read"),
    ([_A], ["optional sint32 a = 1"], "FIELD_KIND_CHANGED"),
    (["optional N a = 1"], ["optional M a = 1"], "FIELD_KIND_CHANGED"),
    ([_A], ["repeated int32 a = 1"], "FIELD_LABEL_CHANGED: the field at path '#/p.M/1' is repeated int32, and was"),
    ([_A], [_A, "required int32 b = 2"], "REQUIRED_FIELD_ADDED: the field 'b' at path '#/p.M/2'"),
    ([_A, "required int32 b = 2"], [_A], "REQUIRED_FIELD_REMOVED: the required field 'b'"),
    ([_A], ["required int32 a = 1"], "REQUIRED_FIELD_CHANGED"),
    (["oneof o { int32 a = 1; int32 b = 2; }"], [_A], "ONEOF_FIELD_REMOVED: the field 'b' of a oneof"),
    (["optional N a = 1", "message X {}"], ["optional N a = 1"], "MESSAGE_REMOVED: the message at path '#/p.M.X'"),
]


@pytest.mark.behaviour("Schema registry", "A Protobuf schema in which a number stands for something else is refused")
@pytest.mark.parametrize(("before", "after", "expected"), CHANGES)
def test_numbers_of_protobuf_keep_their_types(before: list[str], after: list[str], expected: str | None) -> None:
    reader, writer = (parse_file(messages(*fields)) for fields in (after, before))
    found = list(protobuf_problems(reader, writer))
    assert len(found) == (expected is not None)
    assert (expected or "") in "".join(found)


ADDRESS = '{"type": "record", "name": "shop.Address", "fields": [{"name": "zip", "type": "%s"}]}'
ORDER = '{"type": "record", "name": "shop.Order", "fields": [{"name": "to", "type": "Address"}]}'


def referring(name: str = "shop.Address", subject: str = "address", version: int = 1) -> dict[str, Any]:
    return {"schema": ORDER, "references": [{"name": name, "subject": subject, "version": version}]}


@pytest.mark.behaviour("Schema registry", "The registry in memory keeps references, and compares what they lead to")
def test_references_are_kept_and_compared() -> None:
    store = SchemaStore()
    refused = {42201: "no schema is found for the reference shop.Address: Subject 'address' not found."}
    status, answered = ask(store, "POST", "/subjects/order/versions", **referring())
    assert (status, answered["error_code"]) == (422, 42201) and refused[42201] in answered["message"]
    assert ask(store, "POST", "/subjects/address/versions", schema=ADDRESS % "string", schemaType=None) == (
        200,
        {"id": 1},
    )
    ids = [ask(store, "POST", "/subjects/order/versions", **referring(version=each))[1]["id"] for each in (-1, 1)]
    assert ids == [2, 2]
    # The same text without the reference is no schema.
    assert ask(store, "POST", "/subjects/order", schema=ORDER)[0] == 422
    found = ask(store, "POST", "/subjects/order", **referring())[1]
    assert (found["version"], found["references"]) == (1, referring()["references"])
    assert ask(store, "GET", "/schemas/ids/2")[1] == referring()
    ask(store, "PUT", "/config/address", compatibility="NONE")
    ask(store, "POST", "/subjects/address/versions", schema=ADDRESS % "int")
    status, answered = ask(store, "POST", "/subjects/order/versions", **referring(version=2))
    assert (
        status == 409
        and "path '/fields/0/type/fields/0/type' is int, which does not read string" in answered["message"]
    )
    assert ask(store, "GET", "/subjects/address/versions/1/referencedby") == (200, [2])
    assert ask(store, "GET", "/subjects/address/versions/2/referencedby") == (200, [])
    assert ask(store, "GET", "/subjects/address/versions/3/referencedby")[1]["error_code"] == 40402
    assert ask(store, "DELETE", "/subjects/address")[1]["error_code"] == 42206
    assert ask(store, "DELETE", "/subjects/order") == (200, [1])
    assert ask(store, "DELETE", "/subjects/address") == (200, [1, 2])


@pytest.mark.parametrize(
    "listed",
    [
        "x",
        [None],
        [{"name": "a"}],
        [{"name": "a", "subject": "s", "version": 0}],
        [{"name": "a", "subject": "s", "version": True}],
    ],
)
def test_references_that_are_none_are_refused(listed: Any) -> None:
    status, answered = ask(SchemaStore(), "POST", "/subjects/s/versions", schema=A, references=listed)
    assert (status, answered["error_code"]) == (422, 42201)
    assert "expected name, subject and version" in answered["message"]
