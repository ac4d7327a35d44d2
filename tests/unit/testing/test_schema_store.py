"""The state, the responses and the errors of a registry in memory, without a socket."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from kafka_sink.broker.log.filesystem import CheckedFile, with_checksum
from kafka_sink.common.errors import ConfigError
from kafka_sink.testing.registry import schema_store
from kafka_sink.testing.registry.avro_judge import compact
from kafka_sink.testing.registry.embedded_registry import answer
from kafka_sink.testing.registry.schema_store import LEVELS, SchemaStore
from kafka_sink.testing.registry.schemas import KeptSchema
from kafka_sink.testing.registry.schemas import problems as judge
from tests.fakes.memory_filesystem import Crash, MemoryFileSystem
from tests.support.cases import with_each


def record(*fields: Any, name: str = "R") -> str:
    listed = [{"name": each[0], "type": each[1], **({"default": each[2]} if len(each) == 3 else {})} for each in fields]
    return compact({"type": "record", "name": name, "fields": listed})


def guid_of(text: str) -> str:
    return str(uuid.UUID(bytes=hashlib.md5(text.encode()).digest()))


def ask(store: SchemaStore, method: str, path: str, **body: Any) -> tuple[int, Any]:
    return answer(store, method, path, json.dumps(body).encode() if body else b"")


A = record(("a", "int"))
#: The new field has no default: earlier data cannot be read.
A_AND_B = record(("a", "int"), ("b", "int"))
#: The new field has a default.
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
    known = {"schema": A_AND_DEFAULT, "guid": guid_of(A_AND_DEFAULT)}
    assert ask(store, "GET", "/schemas/ids/2") == (200, known)
    assert ask(store, "GET", f"/schemas/guids/{known['guid']}") == (200, known)
    assert ask(store, "GET", "/schemas/ids/2/schema") == (200, A_AND_DEFAULT)
    latest = {"subject": "two", "version": 2, "id": 2, **known}
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


@with_each(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/subjects/none/versions", {}, 404, 40401),
        ("GET", "/subjects/s/versions/7", {}, 404, 40402),
        ("GET", "/subjects/s/versions/x", {}, 422, 42202),
        ("GET", "/subjects/s/versions/0", {}, 422, 42202),
        ("GET", "/schemas/ids/99/versions", {}, 404, 40403),
        ("GET", "/schemas/guids/x", {}, 404, 40403),
        ("POST", "/compatibility/subjects/s/versions/7", {"schema": A}, 404, 40402),
        ("POST", "/subjects/none/versions", {}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": A, "id": 7}, 422, 42205),
        ("POST", "/subjects/s/versions", {"schema": A, "version": 7}, 422, 42205),
        ("POST", "/subjects/s/versions", {"schema": A, "id": "7"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": A, "metadata": "x"}, 422, 42201),
        ("POST", "/subjects/s/versions", {"schema": A, "metadata": {"a": "\ud800"}}, 400, 400),
        ("POST", "/subjects/s/versions", {"schema": A, "schemaTagsToAdd": [{}]}, 422, 42201),
        ("POST", "/subjects/:.context:s/versions", {"schema": A}, 422, 42208),
        ("GET", "/config/s", {}, 404, 40408),
        ("DELETE", "/config/s", {}, 404, 40401),
        ("PUT", "/config", {"compatibility": "FULL", "alias": "x"}, 422, 42205),
        ("GET", "/mode/s", {}, 404, 40409),
        ("DELETE", "/mode/s", {}, 404, 40401),
        ("PUT", "/mode", {"mode": "FORWARD"}, 422, 42204),
        ("PUT", "/mode", {"mode": "IMPORT"}, 422, 42205),
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
    store.register("s", KeptSchema("AVRO", A))
    found = ask(store, method, path, **body)
    assert (found[0], found[1]["error_code"]) == (status, code)
    assert found[1]["message"]


def test_a_body_that_is_no_object_is_refused() -> None:
    for body in (b"[", b"[]", b"[" * 100_000):
        assert answer(SchemaStore(), "POST", "/subjects/s", body)[0] == 400


@pytest.mark.behaviour("Schema registry", "The registry in memory refuses what its level of compatibility forbids")
@with_each(
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
        store.register("s", KeptSchema("AVRO", A))
        tried = ask(store, "POST", "/compatibility/subjects/s/versions/latest?verbose=true", schema=schema)
        assert tried[1]["is_compatible"] == accepted
        assert ask(store, "POST", "/subjects/s/versions", schema=schema)[0] == (200 if accepted else 409)


def test_transitive_levels_compare_with_all_versions() -> None:
    versions = [A, record(("a", "int"), ("b", "string", "x")), record(("a", "int"))]
    for level, accepted in (("BACKWARD", 200), ("BACKWARD_TRANSITIVE", 409)):
        store = SchemaStore()
        store.set_level({"compatibility": "NONE"})
        store.register("s", KeptSchema("AVRO", record(("b", "int"))))
        for each in versions:
            store.register("s", KeptSchema("AVRO", each))
        store.set_level({"compatibility": level})
        last = record(("a", "int"), ("b", "string", "y"))
        assert ask(store, "POST", "/subjects/s/versions", schema=last)[0] == accepted
    assert len(LEVELS) == 7


def json_schema(*required: str, **properties: str) -> str:
    typed = {name: {"type": kind} for name, kind in properties.items()}
    return compact({"type": "object", "additionalProperties": False, "properties": typed, "required": list(required)})


def test_json_schemas_are_kept_with_their_type_and_compared() -> None:
    store = SchemaStore()
    path, first = "/subjects/j/versions", json_schema("a", a="integer")
    assert ask(store, "POST", path, schema=first, schemaType="JSON")[1]["id"] == 1
    assert ask(store, "GET", "/schemas/ids/1") == (200, {"schemaType": "JSON", "schema": first, "guid": guid_of(first)})
    assert ask(store, "GET", f"{path}/1")[1]["schemaType"] == "JSON"
    assert ask(store, "POST", "/subjects/j", schema=first, schemaType="JSON")[1]["version"] == 1
    assert ask(store, "POST", path, schema=json_schema("a", a="integer", b="string"), schemaType="JSON")[0] == 200
    refused = ask(store, "POST", path, schema=json_schema("a", "b", a="integer", b="string"), schemaType="JSON")
    assert (refused[0], "REQUIRED_ATTRIBUTE_ADDED" in refused[1]["message"]) == (409, True)
    assert "different schema type: it is AVRO, and was JSON" in ask(store, "POST", path, schema=A)[1]["message"]
    assert ask(store, "POST", path, schema="[]", schemaType="JSON")[0] == 422
    assert ask(store, "GET", "/schemas/types") == (200, ["AVRO", "JSON", "PROTOBUF"])


def messages(*fields: str, more: str = "") -> str:
    declared = " ".join(f"{each};" for each in fields)
    return f'syntax = "proto2"; package p; enum E {{ A = 0; }} message N {{}} message M {{ {declared} }} {more}'


def test_protobuf_is_kept_as_text_and_answered_as_descriptor_too() -> None:
    store = SchemaStore()
    path, text = "/subjects/p/versions", messages("optional int32 a = 1")
    assert ask(store, "POST", path, schema=text, schemaType="PROTOBUF")[1]["id"] == 1
    assert ask(store, "GET", "/schemas/ids/1")[1]["schema"] == text
    (status, serialized) = ask(store, "GET", "/schemas/ids/1?format=serialized")
    file = FileDescriptorProto.FromString(base64.b64decode(serialized["schema"]))
    assert (status, [each.name for each in file.message_type]) == (200, ["N", "M"])
    # The same schema, with another file name and as a descriptor, is not a new version.
    file.name = "other.proto"
    again = base64.b64encode(file.SerializeToString()).decode()
    assert ask(store, "POST", path, schema=again, schemaType="PROTOBUF")[1]["version"] == 1
    assert ask(store, "GET", f"{path}/1?format=serialized")[1]["schema"] == serialized["schema"]
    # A file for imports need not contain a message.
    assert ask(store, "POST", "/subjects/e/versions", schema="enum E { A = 0; }", schemaType="PROTOBUF")[0] == 200
    refused = ask(store, "POST", path, schema="message M {", schemaType="PROTOBUF")
    assert (refused[0], "Invalid schema: the Protobuf schema is invalid" in refused[1]["message"]) == (422, True)


ADDRESS = '{"type":"record","name":"Address","namespace":"shop","fields":[{"name":"zip","type":"%s"}]}'
ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"to","type":"Address"}]}'


def referring(name: str = "shop.Address", subject: str = "address", version: int = 1) -> dict[str, Any]:
    return {"schema": ORDER, "references": [{"name": name, "subject": subject, "version": version}]}


@pytest.mark.behaviour("Schema registry", "The registry in memory keeps references, and compares what they lead to")
def test_references_are_kept_and_compared() -> None:
    store = SchemaStore()
    refused = {42201: "no schema is found for the reference shop.Address: Subject 'address' not found."}
    status, answered = ask(store, "POST", "/subjects/order/versions", **referring())
    assert (status, answered["error_code"]) == (422, 42201) and refused[42201] in answered["message"]
    assert ask(store, "POST", "/subjects/address/versions", schema=ADDRESS % "string", schemaType=None)[1]["id"] == 1
    ids = [ask(store, "POST", "/subjects/order/versions", **referring(version=each))[1]["id"] for each in (-1, 1)]
    assert ids == [2, 2]
    # The same text without the reference is not a valid schema.
    assert ask(store, "POST", "/subjects/order", schema=ORDER)[0] == 422
    found = ask(store, "POST", "/subjects/order", **referring())[1]
    assert (found["version"], found["references"]) == (1, referring()["references"])
    assert referring().items() <= ask(store, "GET", "/schemas/ids/2")[1].items()
    # The same schema in one text finds the version, too.
    whole = json.loads(ORDER)
    whole["fields"][0]["type"] = json.loads(ADDRESS % "string")
    assert ask(store, "POST", "/subjects/order", schema=json.dumps(whole))[1]["version"] == 1
    ask(store, "PUT", "/config/address", compatibility="NONE")
    ask(store, "POST", "/subjects/address/versions", schema=ADDRESS % "int")
    status, answered = ask(store, "POST", "/subjects/order/versions", **referring(version=2))
    assert status == 409 and "writer type: string at path '/fields/0/type/fields/0/type'" in answered["message"]
    assert ask(store, "GET", "/subjects/address/versions/1/referencedby") == (200, [2])
    assert ask(store, "GET", "/subjects/address/versions/2/referencedby") == (200, [])
    assert ask(store, "GET", "/subjects/address/versions/3/referencedby")[1]["error_code"] == 40402
    assert ask(store, "DELETE", "/subjects/address")[1]["error_code"] == 42206
    assert ask(store, "DELETE", "/subjects/address/versions/1")[1]["error_code"] == 42206
    assert ask(store, "DELETE", "/subjects/order") == (200, [1])
    assert ask(store, "GET", "/subjects/address/versions/1/referencedby") == (200, [])
    assert ask(store, "GET", "/subjects/address/versions/1/referencedby?deleted=true") == (200, [2])
    assert ask(store, "DELETE", "/subjects/address") == (200, [1, 2])
    # A deleted schema to which a deleted schema refers is kept, and can be read.
    assert ask(store, "DELETE", "/subjects/address?permanent=true")[1]["error_code"] == 42206
    assert ask(store, "POST", "/subjects/order?deleted=true", **referring())[1]["deleted"]
    assert ask(store, "DELETE", "/subjects/order?permanent=true") == (200, [1])
    assert ask(store, "DELETE", "/subjects/address?permanent=true") == (200, [1, 2])


@with_each(
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


#: Schemas, with the canonical form of each by Avro's own library for Java.
SAME_IN_AVRO = [
    (
        '{"fields":[{"type":"string","name":"id"},{"name":"n","default":null,"type":["null","int"]}],'
        '"name":"shop.key.Key", "type":"record"}',
        '{"type":"record","name":"Key","namespace":"shop.key","fields":[{"name":"id","type":"string"},'
        '{"name":"n","type":["null","int"],"default":null}]}',
    ),
    (
        '{"name":"Key","type":"record","namespace":"shop","doc":"d","aliases":["Old","other.Old"],"x":1,"fields":[{"name":'
        '"a","type":{"type":"int"},"order":"ascending","aliases":["b"],"doc":"f","p":[1]}]}',
        '{"type":"record","name":"Key","namespace":"shop","doc":"d","fields":[{"name":"a","type":"int","doc":"f",'
        '"aliases":["b"],"p":[1]}],"x":1,"aliases":["Old","other.Old"]}',
    ),
    (
        '{"type":"record","name":"a.Node","fields":[{"name":"next","type":["null","a.Node"]},{"name":"other","type":'
        '{"type":"record","name":"b.Leaf","fields":[{"name":"up","type":"a.Node"},'
        '{"name":"self","type":{"type":"array","items":"Leaf"}}]}}]}',
        '{"type":"record","name":"Node","namespace":"a","fields":[{"name":"next","type":["null","Node"]},{"name":"other",'
        '"type":{"type":"record","name":"Leaf","namespace":"b","fields":[{"name":"up","type":"a.Node"},'
        '{"name":"self","type":{"type":"array","items":"Leaf"}}]}}]}',
    ),
    (
        '{"type":"record","name":"a.R","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"],'
        '"default":"A","doc":"e"}},{"name":"f","type":{"type":"fixed","name":"F","size":4,"namespace":""}},'
        '{"name":"g","type":{"type":"map","values":"E"},"order":"ignore"}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"e","type":{"type":"enum","name":"E","doc":"e",'
        '"symbols":["A","B"],"default":"A"}},{"name":"f","type":{"type":"fixed","name":"F","namespace":"","size":4}},'
        '{"name":"g","type":{"type":"map","values":"E"},"order":"ignore"}]}',
    ),
    ('{"type": "string"}', '"string"'),
    ('{"type": "string", "avro.java.string": "String"}', '{"type":"string","avro.java.string":"String"}'),
]


@pytest.mark.behaviour("Schema registry", "The same schema in other words has the same id, a recursive one too")
@with_each(("words", "text"), SAME_IN_AVRO)
def test_schemas_are_compared_as_avro_writes_them(words: str, text: str) -> None:
    store = SchemaStore()
    first = ask(store, "POST", "/subjects/s/versions", schema=words)[1]
    assert (first["schema"], first["guid"]) == (text, guid_of(text))
    assert ask(store, "POST", "/subjects/s/versions", schema=text)[1] == first


#: Results of Avro's library for Java for new schemas: refused or accepted.
ODD_IN_AVRO = [
    (record(("a", "int", "x")), False),
    (record(("a", "int", None)), False),
    (record(("a", "int", 1 << 31)), False),
    (record(("a", "long", 1 << 31)), True),
    (record(("a", "boolean", 1)), False),
    (record(("a", ["null", "int"], 1)), True),
    (record(("a", ["null", "int"], "null")), False),
    (record(("a", "float", "NaN")), True),
    (record(("a", "float", "x")), False),
    (record(("a", ["float"], "NaN")), False),
    (record(("a", {"type": "array", "items": "int"}, [1])), True),
    (record(("a", {"type": "map", "values": "int"}, {"b": None})), False),
    (record(("a", {"type": "record", "name": "I", "fields": [{"name": "b", "type": "int"}]}, {"b": 1})), True),
    (record(("a", {"type": "record", "name": "I", "fields": [{"name": "b", "type": "int"}]}, {})), False),
    (record(("a", "R", {})), False),
    ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', False),
    ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"up"}]}', False),
    ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","aliases":"x"}]}', False),
    ('{"type":"record","name":"R","aliases":[1],"fields":[]}', False),
]


@with_each(("schema", "is_taken"), ODD_IN_AVRO)
def test_new_schemas_are_checked_as_avro_checks_them(schema: str, is_taken: bool) -> None:
    status, answered = ask(SchemaStore(), "POST", "/subjects/s/versions", schema=schema)
    assert (status, answered.get("error_code")) == ((200, None) if is_taken else (422, 42201)), answered


def test_normal_forms_are_the_same_in_any_order() -> None:
    one, other = '{"type":"int","b":1,"a":2}', '{"type":"int","a":2,"b":1}'
    for kind, words in (
        ("AVRO", (one, other)),
        ("JSON", ('{"title":"a","type":"object"}', '{"type":"object","title":"a"}')),
    ):
        store = SchemaStore()
        ask(store, "POST", "/subjects/s/versions", schema=words[0], schemaType=kind)
        assert ask(store, "POST", "/subjects/s", schema=words[1], schemaType=kind)[0] == 404
        ask(store, "DELETE", "/subjects/s")
        paths = "/subjects/n/versions?normalize=true", "/subjects/n/versions"
        ids = [ask(store, "POST", paths[0], schema=each, schemaType=kind)[1]["id"] for each in words]
        assert ids[0] == ids[1]
        # As a configuration of the subject.
        assert ask(store, "PUT", "/config/n", normalize=True) == (200, {"normalize": True})
        assert ask(store, "POST", paths[1], schema=words[1], schemaType=kind)[1]["id"] == ids[0]


@pytest.mark.behaviour("Schema registry", "What is deleted can be read until it is deleted for good, and numbers go on")
def test_versions_are_deleted_in_two_steps() -> None:
    store = SchemaStore()
    for each in (A, A_AND_DEFAULT):
        ask(store, "POST", "/subjects/s/versions", schema=each)
    assert ask(store, "DELETE", "/subjects/s/versions/1?permanent=true")[1]["error_code"] == 40407
    assert ask(store, "DELETE", "/subjects/s/versions/1") == (200, 1)
    assert ask(store, "DELETE", "/subjects/s/versions/1")[1]["error_code"] == 40406
    assert ask(store, "GET", "/subjects/s/versions") == (200, [2])
    assert ask(store, "GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert ask(store, "GET", "/subjects/s/versions/1")[1]["error_code"] == 40402
    assert ask(store, "GET", "/subjects/s/versions/1?deleted=true")[1]["deleted"]
    assert ask(store, "GET", "/schemas/ids/1/subjects") == (200, [])
    assert ask(store, "GET", "/schemas/ids/1/versions?deleted=true") == (200, [{"subject": "s", "version": 1}])
    assert ask(store, "GET", "/schemas/ids/1")[1]["schema"] == A
    # The same schema again: the same id, a new version, and the old version is removed.
    again = ask(store, "POST", "/subjects/s/versions", schema=A)[1]
    assert (again["id"], again["version"]) == (1, 3)
    assert ask(store, "GET", "/subjects/s/versions?deleted=true") == (200, [2, 3])
    assert ask(store, "DELETE", "/subjects/s?permanent=true")[1]["error_code"] == 40405
    assert ask(store, "DELETE", "/subjects/s") == (200, [2, 3])
    assert ask(store, "DELETE", "/subjects/s")[1]["error_code"] == 40404
    assert ask(store, "GET", "/subjects") == (200, [])
    assert ask(store, "GET", "/subjects?deleted=true&subjectPrefix=s") == (200, ["s"])
    ask(store, "PUT", "/config/s", compatibility="FULL")
    assert ask(store, "DELETE", "/subjects/s?permanent=true") == (200, [2, 3])
    assert ask(store, "GET", "/subjects?deleted=true") == (200, [])
    assert ask(store, "GET", "/config/s")[1]["error_code"] == 40408
    assert ask(store, "GET", "/schemas/ids/1")[1]["error_code"] == 40403
    # Records may contain these ids, so they are not used again.
    assert ask(store, "POST", "/subjects/s/versions", schema=A)[1]["id"] == 3


def test_levels_belong_to_subjects_or_to_all() -> None:
    store = SchemaStore()
    assert ask(store, "GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert ask(store, "PUT", "/config", compatibility="full") == (200, {"compatibility": "full"})
    assert ask(store, "GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "FULL"})
    ask(store, "PUT", "/config/s", compatibility="NONE")
    assert ask(store, "DELETE", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert ask(store, "DELETE", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert ask(store, "GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})


@pytest.mark.behaviour("Schema registry", "Modes forbid changes, and IMPORT keeps the ids that schemas had elsewhere")
def test_modes() -> None:
    store = SchemaStore()
    ask(store, "POST", "/subjects/s/versions", schema=A)
    assert ask(store, "PUT", "/mode/s", mode="readonly")[0] == 200
    assert ask(store, "GET", "/mode/s") == (200, {"mode": "READONLY"})
    for each in ("POST /subjects/s/versions", "DELETE /subjects/s", "DELETE /subjects/s/versions/1"):
        assert ask(store, *each.split(), schema=A)[1]["error_code"] == 42205
    assert ask(store, "POST", "/subjects/other/versions", schema=A)[0] == 200
    assert ask(store, "DELETE", "/mode/s") == (200, {"mode": "READONLY"})
    ask(store, "DELETE", "/subjects/s")
    assert ask(store, "PUT", "/mode/s", mode="IMPORT")[0] == 200
    assert ask(store, "GET", "/subjects?deleted=true") == (200, ["other"])
    path = "/subjects/s/versions"
    assert ask(store, "POST", path, schema=A_AND_B)[1]["error_code"] == 42205
    assert ask(store, "POST", path, schema=A_AND_B, id=1)[1]["message"].startswith("Overwrite new schema with id 1")
    found = [ask(store, "POST", path, schema=each, id=number)[1] for each, number in ((A, 40), (A_AND_B, 41), (A, 40))]
    assert [(each["id"], each["version"]) for each in found] == [(40, 1), (41, 2), (40, 1)]
    assert ask(store, "POST", path, schema=record(("c", "int")), id=50, version=9)[1]["version"] == 9
    assert ask(store, "GET", "/subjects/s/versions") == (200, [1, 2, 9])
    # New ids continue after the imported ones.
    assert ask(store, "POST", "/subjects/other/versions", schema=record())[1]["id"] == 51
    assert ask(store, "GET", "/mode?defaultToGlobal=true") == (200, {"mode": "READWRITE"})
    assert ask(store, "PUT", "/mode?force=true", mode="IMPORT")[0] == 200
    assert ask(store, "DELETE", "/mode") == (200, {"mode": "IMPORT"})


RULE = {"name": "positive", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "message.a > 0", "doc": None}


@pytest.mark.behaviour("Schema registry", "Metadata and rules are kept with a schema, or refused")
def test_contracts_are_kept() -> None:
    store = SchemaStore()
    path, owner = "/subjects/s/versions", {"properties": {"owner": "x"}}
    plain = ask(store, "POST", path, schema=A)[1]
    first = ask(store, "POST", path, schema=A, metadata={**owner, "tags": None}, ruleSet={"domainRules": [RULE]})[1]
    assert (first["id"], first["metadata"]) == (plain["id"] + 1, owner)
    assert first["ruleSet"] == {"domainRules": [{name: each for name, each in RULE.items() if each}]}
    # A schema without metadata gets that of the version before, and is found by it.
    assert ask(store, "POST", path, schema=A)[1] == first
    second = ask(store, "POST", path, schema=A_AND_DEFAULT)[1]
    assert (second["metadata"], second["ruleSet"]) == (owner, first["ruleSet"])
    assert ask(store, "POST", "/subjects/s", schema=A_AND_DEFAULT)[1]["version"] == 3
    third = ask(store, "POST", path, metadata={"properties": {}})[1]
    assert (third["schema"], third["metadata"]) == (A_AND_DEFAULT, {"properties": {}})
    assert ask(store, "GET", f"{path}/3")[1] == second


@with_each(
    "rules",
    [
        [],
        {"otherRules": []},
        {"domainRules": {}},
        {"domainRules": [{**RULE, "name": "no name"}]},
        {"domainRules": [RULE, RULE]},
        {"domainRules": [{**RULE, "type": None}]},
        {"migrationRules": [RULE]},
    ],
)
def test_rules_that_are_none_are_refused(rules: Any) -> None:
    status, answered = ask(SchemaStore(), "POST", "/subjects/s/versions", schema=A, ruleSet=rules)
    assert (status, answered["error_code"]) == (422, 42210)


def test_schemas_are_listed() -> None:
    store = SchemaStore()
    for subject, schema in (("one", A), ("one", A_AND_DEFAULT), ("two", A)):
        ask(store, "POST", f"/subjects/{subject}/versions", schema=schema)
    assert [each["id"] for each in ask(store, "GET", "/schemas?subjectPrefix=one")[1]] == [1, 2]
    assert [each["id"] for each in ask(store, "GET", "/schemas?latestOnly=true")[1]] == [2, 1]
    assert ask(store, "GET", "/schemas/ids/1/subjects") == (200, ["one", "two"])
    assert ask(store, "GET", "/contexts") == (200, ["."])


@pytest.mark.behaviour("Schema registry", "What the registry in memory cannot judge is refused, and never accepted")
def test_what_cannot_be_judged_is_refused() -> None:
    store, path = SchemaStore(), "/subjects/s/versions"
    first, second = (json.dumps({"type": "object", "not": {"required": [each]}}) for each in "ab")
    assert ask(store, "POST", path, schema=first, schemaType="JSON")[0] == 200
    status, answered = ask(store, "POST", path, schema=second, schemaType="JSON")
    assert (status, answered["error_code"]) == (422, 42205)
    assert "this registry cannot judge a changed JSON Schema with not; set compatibility NONE" in answered["message"]
    assert ask(store, "POST", "/compatibility/subjects/s/versions", schema=second, schemaType="JSON")[0] == 422
    ask(store, "PUT", "/config/s", compatibility="NONE")
    assert ask(store, "POST", path, schema=second, schemaType="JSON")[0] == 200


def test_avro_is_judged_only_with_apaches_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "avro", None)
    store = SchemaStore()
    assert ask(store, "POST", "/subjects/s/versions", schema=A)[0] == 200
    message = ask(store, "POST", "/subjects/s/versions", schema=A_AND_DEFAULT)[1]["message"]
    assert "pip install 'kafkalite[registry]', or set compatibility NONE" in message
    assert ask(store, "POST", "/subjects/s/versions", schema=A)[0] == 200


FILE = Path("/data/schema-registry.json")


def opened(disk: MemoryFileSystem) -> SchemaStore:
    return SchemaStore(CheckedFile(FILE.parent, disk, FILE.name))


#: Each request changes the state.
CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/subjects/s/versions", {"schema": A}),
    ("PUT", "/config/s", {"compatibility": "NONE", "normalize": True}),
    ("POST", "/subjects/s/versions", {"schema": '{"type":"object","title":"\u00e9"}', "schemaType": "JSON"}),
    ("POST", "/subjects/address/versions", {"schema": ADDRESS % "string", "metadata": {"properties": {"a": "b"}}}),
    ("POST", "/subjects/order/versions", referring()),
    ("PUT", "/mode/order", {"mode": "READONLY"}),
    ("DELETE", "/subjects/s/versions/1", {}),
    ("DELETE", "/subjects/s/versions/1?permanent=true", {}),
    ("PUT", "/config", {"compatibility": "FULL"}),
    ("POST", "/subjects/t/versions", {"schema": A}),
    ("DELETE", "/subjects/t", {}),
    ("DELETE", "/mode/order", {}),
    ("DELETE", "/config", {}),
]
QUESTIONS = [f"/{each}?deleted=true" for each in ("schemas", "subjects", "config", "mode")]


def seen(store: SchemaStore) -> list[Any]:
    levels = [ask(store, "GET", f"/{what}/{subject}") for what in ("config", "mode") for subject in ("s", "order")]
    return [*(ask(store, "GET", each) for each in QUESTIONS), *levels]


@pytest.mark.behaviour(
    "Schema registry", "In a data directory all is kept whenever the process dies, and no id comes twice"
)
def test_what_was_answered_outlives_every_crash() -> None:
    disk = MemoryFileSystem()
    states, ids = [seen(opened(disk))], set()
    for method, path, body in CHANGES:
        store = opened(disk)
        status, answered = ask(store, method, path, **body)
        assert status == 200
        states.append(seen(store))
        assert seen(opened(disk)) == states[-1] != states[-2]
        ids |= {answered["id"]} if method == "POST" else set()
    assert ids == {1, 2, 3, 4, 5}
    for at in range(1, disk.steps + 1):
        fresh, done = MemoryFileSystem(), 0
        fresh.crash_at = at
        with pytest.raises(Crash):
            store = opened(fresh)
            for method, path, body in CHANGES:
                ask(store, method, path, **body)
                done += 1
        fresh.lose_unflushed()
        assert seen(opened(fresh.clone())) in states[done : done + 2]


def test_what_cannot_be_stored_is_not_seen() -> None:
    disk = MemoryFileSystem()
    store = opened(disk)
    ask(store, "POST", "/subjects/s/versions", schema=A)
    disk.read_only = True
    status, answered = ask(store, "POST", "/subjects/s/versions", schema=A_AND_DEFAULT)
    assert (status, answered["error_code"]) == (500, 50001)
    assert ask(store, "GET", "/subjects/s/versions") == (200, [1])


def test_damaged_and_strange_files_are_refused() -> None:
    disk = MemoryFileSystem()
    ask(opened(disk), "POST", "/subjects/s/versions", schema=A)
    disk.replace_file(FILE, with_checksum(b'{"lastId": 1}'))
    with pytest.raises(ConfigError, match=r"schema-registry\.json is of another version of kafkalite"):
        opened(disk)
    disk.replace_file(FILE, b"{}")
    with pytest.raises(ConfigError, match=r"schema-registry\.json is damaged"):
        opened(disk)


def test_a_schema_is_judged_anew_if_its_subject_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SchemaStore()
    ask(store, "POST", "/subjects/s/versions", schema=A)
    judged: list[str] = []

    def problems(new: KeptSchema, old: KeptSchema, asks: Any) -> list[str]:
        judged.append(old.text)
        if len(judged) == 1:
            ask(store, "DELETE", "/subjects/s")
            ask(store, "POST", "/subjects/s/versions", schema=record(("a", "string")))
        return judge(new, old, asks)

    monkeypatch.setattr(schema_store, "problems", problems)
    assert ask(store, "POST", "/subjects/s/versions", schema=A_AND_DEFAULT)[0] == 409
    assert judged == [A, record(("a", "string"))]
