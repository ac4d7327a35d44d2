"""Schemas with references: passed as files, registered with references, and read back by confluent-kafka's clients; and
those that confluent-kafka registers. Without Spark: only the driver's part of a write, and the encoder.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.types import StructType

from kafka_sink.cli.values.typed_values import TypedColumn, payload_writer, shown
from kafka_sink.common.errors import ConfigError, RegistryError, SchemaNotFoundError
from kafka_sink.formats.column_format import format_of
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.files import read_schema
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from kafka_sink.spark.driver.column_formats import arrow_type, formats_of
from kafka_sink.spark.options import parse_options
from kafka_sink.testing import EmbeddedRegistry

protoc: Any = importlib.import_module("grpc_tools.protoc")

CONTEXT = SerializationContext("orders", MessageField.VALUE)
WELL_KNOWN = f"-I{Path(protoc.__file__).parent}/_proto"
ROW: dict[str, Any] = {"id": 7, "buyer": {"name": "Ann", "home": {"zip": "1010"}}, "ship_to": {"zip": "8010"}}
ADDRESS = StructType().add("zip", "string")
COLUMN = StructType().add("id", "long").add("buyer", StructType().add("name", "string").add("home", ADDRESS))
COLUMN = StructType().add("value", COLUMN.add("ship_to", ADDRESS))

PROTO = {
    "shop/order.proto": """syntax = "proto3"; package shop; import "shop/buyer.proto"; import 'common/v1/address.proto';
        import "google/protobuf/timestamp.proto"; // import "gone.proto";
        message Receipt { int64 id = 1; } message Order {
          int64 id = 1; Buyer buyer = 2; common.v1.Address ship_to = 3; google.protobuf.Timestamp at = 4; }""",
    "shop/buyer.proto": """syntax = "proto3"; package shop; import public "common/v1/address.proto";
        message Buyer { string name = 1; common.v1.Address home = 2; }""",
    "common/v1/address.proto": 'syntax = "proto3"; package common.v1; message Address { string zip = 1; }',
}
AVRO = {
    "order.avsc": """// What somebody buys.
        {"type": "record", "name": "Order", "namespace": "shop", "doc": "see http://x", "fields": [
            {"name": "id", "type": "long"}, {"name": "buyer", "type": "people.Buyer"},
            /* a second one */ {"name": "ship_to", "type": ["null", "common.Address"], "default": null}]}""",
    "buyer.avsc": """{"type": "record", "name": "Buyer", "namespace": "people", "fields": [
            {"name": "name", "type": "string"}, {"name": "home", "type": "common.Address"}]}""",
    "parts/address.avsc": """{"type": "record", "name": "common.Address", "fields": [
            {"name": "zip", "type": "string"}]}""",
}
JSON = {
    "order.json": """{"$id": "https://shop/order.json", "title": "Order", "type": "object", "properties": {
            "id": {"type": "integer"}, "buyer": {"$ref": "buyer.json"},
            "ship_to": {"$ref": "https://shop/address.json"}}}""",
    "buyer.json": """{"$id": "https://shop/buyer.json", "type": "object", "properties": {
            "name": {"type": "string"}, "home": {"$ref": "address.json"}}}""",
    "address.json": '{"$id": "https://shop/address.json", "type": "object", "properties": {"zip": {"type": "string"}}}',
}


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def payload_of(form: str, registry: EmbeddedRegistry, **options: str) -> bytes:
    """Return ROW as the sink writes it."""
    given = {"kafka.bootstrap.servers": "b:9092", "topic": "orders", "value.format": form, **options}
    (made,) = formats_of(COLUMN, parse_options({**given, "schema.registry.url": registry.url}))
    assert made.source is None  # No task needs it.
    kind = arrow_type(COLUMN["value"].dataType, "value")
    (payload,) = format_of(form).encoder(made, kind).encode(pa.array([ROW], kind), made.prefix).to_pylist()
    return bytes(payload)


def theirs(registry: EmbeddedRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def references(registry: EmbeddedRegistry, subject: str) -> dict[Any, Any]:
    found: Any = theirs(registry).get_latest_version(subject).schema.references
    return {each.name: (each.subject, each.version) for each in found}


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class that protoc generates for the message, for Confluent's serializer and deserializer."""
    folder = written(tmp_path / "classes", PROTO)
    assert protoc.main(["", f"-I{folder}", WELL_KNOWN, f"--python_out={folder}", *PROTO]) == 0
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("shop.order_pb2").Order
    for name in [name for name in sys.modules if name.startswith(("shop", "common."))]:
        del sys.modules[name]


@pytest.mark.behaviour(
    "Schema registry", "A project of Protobuf is registered with references, and confluent-kafka reads it"
)
@pytest.mark.parametrize("way", ["folder", "file", "files", "descriptor set"])
def test_a_project_of_protobuf_is_read_back(registry: EmbeddedRegistry, order: Any, tmp_path: Path, way: str) -> None:
    folder = written(tmp_path / "project", PROTO)
    described = tmp_path / "all.desc"
    assert (
        protoc.main(["", f"-I{folder}", WELL_KNOWN, "--include_imports", f"--descriptor_set_out={described}", *PROTO])
        == 0
    )
    beside = written(tmp_path / "beside", {"root.proto": PROTO["shop/order.proto"], **PROTO}) / "root.proto"
    given = {
        "folder": str(folder),
        "file": f"file:{beside}",
        "files": ", ".join(str(folder / name) for name in PROTO),
        "descriptor set": str(described),
    }[way]
    payload = payload_of("protobuf", registry, **{"value.schema": given, "value.message": "shop.Order"})
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, theirs(registry))
    found = read(payload, CONTEXT)
    assert (found.id, found.buyer.name, found.buyer.home.zip, found.ship_to.zip) == (7, "Ann", "1010", "8010")
    assert references(registry, "orders-value") == {
        "shop/buyer.proto": ("shop/buyer.proto", 1),
        "common/v1/address.proto": ("common/v1/address.proto", 1),
    }
    assert references(registry, "shop/buyer.proto") == {"common/v1/address.proto": ("common/v1/address.proto", 1)}
    # A second write registers nothing, and Confluent's own serializer registers the same files.
    count = len(theirs(registry).get_subjects())
    assert payload_of("protobuf", registry, **{"value.schema": given, "value.message": "Order"}) == payload
    assert theirs(registry).get_versions("shop/buyer.proto") == [1]
    assert len(theirs(registry).get_subjects()) == count
    if way == "descriptor set":
        ProtobufSerializer(order, theirs(registry), {"use.deprecated.format": False})(found, CONTEXT)
        assert theirs(registry).get_versions("common/v1/address.proto") == [1]


@pytest.mark.behaviour("Schema registry", "Avro with references is registered with them, and confluent-kafka reads it")
def test_avro_with_references_is_read_back(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    payload = payload_of("avro", registry, **{"value.schema": str(written(tmp_path, AVRO))})
    assert AvroDeserializer(theirs(registry))(payload, CONTEXT) == ROW
    assert references(registry, "orders-value") == {
        "people.Buyer": ("people.Buyer", 1),
        "common.Address": ("common.Address", 1),
    }
    whole = theirs(registry).get_latest_version("orders-value").schema
    assert json.loads(str(whole.schema_str))["fields"][1]["type"] == "people.Buyer"
    # Requests of other clients about references.
    by_name = {each: theirs(registry).get_referenced_by(each, 1) for each in ("common.Address", "people.Buyer")}
    assert {name: len(ids) for name, ids in by_name.items()} == {"common.Address": 2, "people.Buyer": 1}
    with pytest.raises(Exception, match="One or more references exist"):
        theirs(registry).delete_subject("common.Address")


def test_json_with_references_is_read_back(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    payload = payload_of("json", registry, **{"value.schema": str(written(tmp_path, JSON))})
    whole = theirs(registry).get_latest_version("orders-value").schema
    assert JSONDeserializer(whole, schema_registry_client=theirs(registry))(payload, CONTEXT) == ROW
    assert set(references(registry, "orders-value")) == {"buyer.json", "https://shop/address.json"}
    wrong = {**JSON, "address.json": JSON["address.json"].replace("string", "integer")}
    with pytest.raises(FormatError, match=r"column 'value.(buyer.home|ship_to).zip' is string"):
        payload_of("json", registry, **{"value.schema": str(written(tmp_path, wrong))})


@pytest.mark.behaviour(
    "Schema registry", "What others registered with references is written by its latest version, and by key.refs"
)
def test_references_of_others_are_resolved(registry: EmbeddedRegistry) -> None:
    ours, others = RegistryClient(*registry_configs({"schema.registry.url": registry.url})), theirs(registry)
    others.register_schema("address", Schema(AVRO["parts/address.avsc"], "AVRO"))
    address = SchemaReference("common.Address", "address", 1)
    others.register_schema("buyer", Schema(AVRO["buyer.avsc"], "AVRO", [address]))
    order = AVRO["order.avsc"].partition("\n")[2].replace("/* a second one */", "")
    refs = [{"name": "people.Buyer", "subject": "buyer", "version": -1}, {**address.to_dict()}]
    schema = {"value.schema": order, "value.refs": json.dumps(refs)}
    payload = payload_of("avro", registry, **schema)
    assert AvroDeserializer(others)(payload, CONTEXT) == ROW
    assert references(registry, "orders-value") == {"people.Buyer": ("buyer", 1), "common.Address": ("address", 1)}
    latest = {"use.latest.version": "true"}
    assert payload_of("avro", registry, **latest) == payload
    # The command line reads the record, and writes records with its schema.
    (text,) = (shown("avro", "value", ours)(payload),)
    assert json.loads(text)["buyer"] == ROW["buyer"]
    column = TypedColumn("orders", "value", "avro")
    assert payload_writer(ours, column)(ROW, "value") == payload
    for more, expected in (
        ({**schema, "value.refs": "{"}, "option value.refs is not valid JSON"),
        ({**schema, "value.refs": '[{"name": "x"}]'}, "option value.refs has the reference"),
        ({"value.refs": "[]"}, "option value.refs has no effect without value.schema"),
    ):
        with pytest.raises(ConfigError, match=expected):
            payload_of("avro", registry, **more)
    with pytest.raises(SchemaNotFoundError, match="Subject 'none' not found"):
        payload_of("avro", registry, **{**schema, "value.refs": json.dumps([{**refs[1], "subject": "none"}])})


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_texts_refer_to_what_others_registered(registry: EmbeddedRegistry, form: str) -> None:
    files, name, root = {
        "protobuf": (PROTO, "common/v1/address.proto", "shop/buyer.proto"),
        "json": (JSON, "address.json", "buyer.json"),
    }[form]
    theirs(registry).register_schema("address", Schema(files[name], form.upper()))
    refs = json.dumps([{"name": name, "subject": "address", "version": 1}])
    given = {"value.format": form, "value.schema": files[root], "value.refs": refs}
    column = StructType().add("value", StructType().add("name", "string").add("home", ADDRESS))
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "orders", **given, "schema.registry.url": registry.url}
    formats_of(column, parse_options(options))
    assert references(registry, "orders-value") == {name: ("address", 1)}


def test_import_of_a_namesake_is_the_other_file(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    files = {
        "v1/part.proto": 'syntax = "proto3"; package v1; import "part.proto"; message Part { Inner inner = 1; }',
        "part.proto": 'syntax = "proto3"; message Inner { int64 n = 1; }',
    }
    schema = read_schema("protobuf", [written(tmp_path, files)])
    assert [(each.name, each.schema.text) for each in schema.references] == [("part.proto", files["part.proto"])]
    files["v2/part.proto"] = files["v1/part.proto"].replace("v1", "v2")
    with pytest.raises(FormatError, match=r"there are several: v1/part.proto, v2/part.proto"):
        read_schema("protobuf", [written(tmp_path, files)])
    files["root.proto"] = 'syntax = "proto3"; import "part.proto"; import "x/y.proto"; message Root {}'
    files |= {f"{folder}/x/y.proto": 'syntax = "proto3";' for folder in ("a", "b")}
    with pytest.raises(
        FormatError, match=r"root.proto refers to x/y.proto, which several files are: a/x/y.proto, b/x/y"
    ):
        read_schema("protobuf", [written(tmp_path, files)], "Root")


def test_a_long_chain_of_files_is_refused(tmp_path: Path) -> None:
    files = {f"f{n}.json": f'{{"properties": {{"a": {{"$ref": "f{n + 1}.json"}}}}}}' for n in range(900)}
    with pytest.raises(FormatError, match="more than 100 levels deep"):
        read_schema("json", [written(tmp_path, files)])


def test_hidden_files_of_a_folder_are_no_schemas(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    folder = written(tmp_path, {**AVRO, ".git/x.avsc": "{", "notes.txt": "", "package.json": "{}"})
    assert payload_of("avro", registry, **{"value.schema": str(folder)})


def test_command_line_writes_by_a_folder(registry: EmbeddedRegistry, order: Any, tmp_path: Path) -> None:
    ours = RegistryClient(*registry_configs({"schema.registry.url": registry.url}))
    avro = TypedColumn("orders", "value", "avro", written(tmp_path / "avro", AVRO))
    payload = payload_writer(ours, avro)(ROW, "value")
    assert payload is not None and AvroDeserializer(theirs(registry))(payload, CONTEXT) == ROW
    assert set(references(registry, "orders-value")) == {"people.Buyer", "common.Address"}
    protobuf = TypedColumn("others", "value", "protobuf", written(tmp_path / "protobuf", PROTO), "Order")
    payload = payload_writer(ours, protobuf)(ROW, "value")
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, theirs(registry))
    assert payload is not None and read(payload, CONTEXT).ship_to.zip == "8010"


def test_references_that_are_not_registered_are_named(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    given = {"value.schema": str(written(tmp_path, AVRO)), "auto.register.schemas": "false"}
    with pytest.raises(
        RegistryError, match=r"column 'value': its schema is not a version .*'common.Address' not found"
    ):
        payload_of("avro", registry, **given)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("DefaultReferenceSubjectNameStrategy", "shop/buyer.proto"),
        ("QualifiedReferenceSubjectNameStrategy", "shop.buyer"),
    ],
)
def test_subjects_of_references_are_named_by_the_strategy(
    registry: EmbeddedRegistry, tmp_path: Path, strategy: str, subject: str
) -> None:
    given = {"value.schema": str(written(tmp_path, PROTO)), "value.message": "Order"}
    strategy = f"io.confluent.kafka.serializers.subject.{strategy}"
    payload_of("protobuf", registry, **given, **{"reference.subject.name.strategy": strategy})
    assert references(registry, "orders-value")["shop/buyer.proto"] == (subject, 1)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.avsc": '"int"', "b.avsc": '"int"'}, r"and there are several: a.avsc, b.avsc; name the files instead"),
        ({"a.txt": '"int"'}, r"has no file that ends in .avsc or .json"),
        (
            {
                name: json.dumps({"type": "record", "name": name[0], "fields": [{"name": "f", "type": other}]})
                for name, other in (("A.avsc", "B"), ("B.avsc", "A"))
            },
            "and there are none that no other refers to",
        ),
    ],
)
def test_folders_without_one_schema_are_refused(
    registry: EmbeddedRegistry, tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    with pytest.raises(FormatError, match=f"option value.schema: .*{expected}"):
        payload_of("avro", registry, **{"value.schema": str(written(tmp_path, files))})


def test_files_in_a_circle_are_refused(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    files = {
        name: f'{{"properties": {{"a": {{"$ref": "{other}"}}}}}}'
        for name, other in (("a.json", "b.json"), ("b.json", "a.json"))
    }
    folder = written(tmp_path, files)
    with pytest.raises(FormatError, match="refers to itself, through others"):
        payload_of("json", registry, **{"value.schema": f"{folder}/a.json,{folder}/b.json"})


def test_latest_json_schema_is_not_compared_if_told_so(registry: EmbeddedRegistry) -> None:
    theirs(registry).register_schema("orders-value", Schema('{"type": "object", "required": ["x"]}', "JSON"))
    latest = {"use.latest.version": "true"}
    with pytest.raises(FormatError, match=r"column 'value.x' is missing"):
        payload_of("json", registry, **latest)
    payload = payload_of("json", registry, **latest, **{"latest.compatibility.strict": "false"})
    assert json.loads(payload[5:]) == ROW


def test_confluents_serializer_writes_what_is_read_here(registry: EmbeddedRegistry, order: Any) -> None:
    ours = RegistryClient(*registry_configs({"schema.registry.url": registry.url}))
    message = order(id=1, ship_to={"zip": "z"})
    payload = ProtobufSerializer(order, theirs(registry), {"use.deprecated.format": False})(message, CONTEXT)
    assert json.loads(shown("protobuf", "value", ours)(payload))["ship_to"] == {"zip": "z"}
    latest = {"use.latest.version": "true", "value.message": "Order"}
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, theirs(registry))
    assert read(payload_of("protobuf", registry, **latest), CONTEXT).buyer.home.zip == "1010"
    with pytest.raises(FormatError, match="has no message 'Address'"):
        payload_of("protobuf", registry, **{**latest, "value.message": "Address"})
    avro = (
        AvroSerializer(
            theirs(registry),
            Schema(
                '{"type": "array", "items": "common.Address"}',
                "AVRO",
                [SchemaReference("common.Address", "address", 1)],
            ),
        )
        if theirs(registry).register_schema("address", Schema(AVRO["parts/address.avsc"], "AVRO"))
        else None
    )
    assert avro is not None
    assert (
        shown("avro", "value", ours)(avro([{"zip": "1"}], SerializationContext("other", MessageField.VALUE)))
        == '[{"zip": "1"}]'
    )
