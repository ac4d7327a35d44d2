"""Protobuf schemas: derived from columns, read from text, files and descriptors, and refused ones."""

from __future__ import annotations

import base64
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.files import read_schema
from kafka_sink.formats.protobuf.column import FORMAT, derive_schema
from kafka_sink.formats.protobuf.descriptors import descriptors, linked
from kafka_sink.formats.protobuf.parsing import parse_schema
from kafka_sink.formats.protobuf.schema import Message, ProtobufSchema
from kafka_sink.formats.schema_text import SchemaText
from tests.support.cases import with_each


def struct(*fields: Any) -> pa.DataType:
    return pa.struct(list(fields))


def not_null(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


ORDER = struct(
    not_null("id", pa.int64()),
    ("note", pa.string()),
    ("tags", pa.list_(pa.string())),
    ("amounts", pa.list_(pa.int16())),
    ("counts", pa.map_(pa.string(), pa.int32())),
    ("at", pa.timestamp("us", "UTC")),
    ("took", pa.duration("us")),
    ("customer", struct(("first_name", pa.string()), ("customer", struct(("vip", pa.bool_()))))),
    ("order_lines", pa.list_(struct(("sku", pa.binary()), ("price", pa.float64()), ("weight", pa.float32())))),
    ("by_day", pa.map_(pa.int64(), struct(("n", pa.int8())))),
)
ORDER_TEXT = """syntax = "proto3";

import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";

message topLevelRecord {
  message Customer {
    message Customer {
      optional bool vip = 1;
    }
    optional string first_name = 1;
    Customer customer = 2;
  }
  message OrderLines {
    optional bytes sku = 1;
    optional double price = 2;
    optional float weight = 3;
  }
  message ByDay {
    optional int32 n = 1;
  }
  int64 id = 1;
  optional string note = 2;
  repeated string tags = 3;
  repeated int32 amounts = 4;
  map<string, int32> counts = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Duration took = 7;
  Customer customer = 8;
  repeated OrderLines order_lines = 9;
  map<int64, ByDay> by_day = 10;
}
"""


@pytest.mark.behaviour("Protobuf", "The derived schema is what protoc reads from its text, and needs no package")
def test_derived_schema_is_what_protoc_reads_from_its_text() -> None:
    derived = derive_schema(ORDER, "value")
    assert derived.text == ORDER_TEXT
    assert plain(derived.schema) == plain(parse_schema(derived.text))


def plain(schema: ProtobufSchema) -> Any:
    return schema.root, schema.position, sorted(schema.messages.items(), key=lambda each: each[0])


def test_names_of_messages_differ_from_those_beside_them() -> None:
    inner = struct(("x", pa.int32()))
    kind = struct(
        ("Line", inner),
        ("LineMessage", pa.string()),
        ("a_", inner),
        ("_b", inner),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("counts_entry", inner),
    )
    derived = derive_schema(kind, "value")
    assert plain(derived.schema) == plain(parse_schema(derived.text))
    names = {each.rpartition(".")[2] for each in derived.schema.messages}
    assert names == {"topLevelRecord", "LineMessageMessage", "A", "B", "CountsEntry", "CountsEntryMessage"}


@pytest.mark.behaviour("Protobuf", "A column without a counterpart is refused with its path and what to do")
@with_each(
    ("kind", "expected"),
    [
        (pa.decimal128(9, 2), "column 'value.a' is decimal(9, 2), which has no counterpart in Protobuf; cast it to"),
        (pa.date32(), "cast it to timestamp, or to string"),
        (pa.timestamp("us"), "cast it to timestamp, which has a time zone"),
        (pa.null(), "cast it to a type, or drop it"),
        (pa.time64("us"), "cast it to string, or drop it"),
        (pa.list_(pa.list_(pa.int32())), "column 'value.a[]' is list<item: int32>, and Protobuf has no lists and maps"),
        (pa.list_(struct(("b", pa.date32()))), "column 'value.a[].b' is date32"),
        (pa.map_(pa.string(), pa.date32()), "column 'value.a{}' is date32"),
        (pa.map_(pa.float64(), pa.int32()), "column 'value.a' is a map with keys of type double, but"),
    ],
)
def test_columns_without_a_counterpart_are_refused(kind: pa.DataType, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        derive_schema(struct(("a", kind)), "value")
    assert expected in str(caught.value)


@with_each(
    ("kind", "expected"),
    [
        (pa.int64(), "column 'key' is int64, but a payload of Protobuf is a message; make it a struct: struct('*')"),
        (struct(("a b", pa.int32())), "column 'key.a b' has a name that Protobuf does not allow"),
        (struct(("a", pa.int32()), ("a", pa.int32())), "the fields 'a' and 'a', which have the same name"),
        (struct(("foo_bar", pa.int32()), ("fooBar", pa.int32())), "the fields 'foo_bar' and 'fooBar', which have"),
        (struct(("m", pa.map_(pa.string(), pa.int8())), ("MEntry", pa.int8())), "the name that Protobuf gives to the"),
        (struct(*((name, pa.map_(pa.string(), pa.int8())) for name in "mM")), "has two fields named 'MEntry'"),
    ],
)
def test_rows_and_names_that_protobuf_does_not_have_are_refused(kind: pa.DataType, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        derive_schema(kind, "key")
    assert expected in str(caught.value)


SEVERAL = """
syntax = "proto3";
package shop;
message Order { map<string, int32> counts = 1; message Line { message Part {} } message Note {} }
message Customer { message Note {} }
"""


@pytest.mark.behaviour("Protobuf", "The message is the first one of the schema, or the one that is named")
@with_each(
    ("message", "root", "position"),
    [
        (None, "shop.Order", (0,)),
        ("Customer", "shop.Customer", (1,)),
        ("shop.Order.Line.Part", "shop.Order.Line.Part", (0, 0, 0)),
        ("Order.Note", "shop.Order.Note", (0, 1)),
    ],
)
def test_message_is_the_first_one_or_the_named_one(message: str | None, root: str, position: tuple[int, ...]) -> None:
    schema = parse_schema(SEVERAL, message)
    assert (schema.root, schema.position) == (root, position)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Ordr", "has no message 'Ordr'"),
        ("Note", "has several messages 'Note': shop.Order.Note, shop.Customer.Note; name one of them in full"),
    ],
)
def test_unknown_and_ambiguous_messages_are_refused(message: str, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_schema(SEVERAL, message)
    assert expected in str(caught.value)


@with_each(
    ("text", "expected"),
    [
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "Field number 1 has already been used"),
        ('syntax = "proto3"; import "other.proto"; message M { Other a = 1; }', "others need a descriptor set"),
        ('syntax = "proto3"; enum E { A = 0; }', "declares no message"),
        (base64.b64encode(b"\xff\xff").decode(), "is not a descriptor in base64"),
    ],
)
def test_invalid_schemas_are_refused_with_the_words_of_protoc(text: str, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_schema(text)
    assert expected in str(caught.value)


@pytest.mark.behaviour("Protobuf", "A schema is text, a .proto file with files that it imports, or a descriptor set")
def test_files_and_sets_are_read_with_what_they_import(tmp_path: Path) -> None:
    (tmp_path / "part.proto").write_text('syntax = "proto3"; package p; message Part { int32 n = 1; }')
    whole = tmp_path / "whole.proto"
    whole.write_text('syntax = "proto3"; package p; import "part.proto"; message Whole { Part part = 1; }')
    text = linked(read_schema("protobuf", [whole]))
    expected = {"p.Whole": Message, "p.Part": Message}
    assert {name: type(each) for name, each in parse_schema(text).messages.items()} == expected
    # An imported schema is not the registered one: its messages have no index in it.
    with pytest.raises(FormatError, match="has no message 'Part'"):
        parse_schema(text, "Part")
    described = tmp_path / "whole.desc"
    described.write_bytes(base64.b64decode(text).replace(b"kafkalite-linked.proto", b"a-long-name/whole.proto"[:22]))
    both = read_schema("protobuf", [described])
    assert parse_schema(linked(both)) == parse_schema(text)
    assert parse_schema(linked(both), "Part").root == "p.Part"
    kind = struct(("n", pa.int32()))
    alone = FORMAT.registered_schema(FORMAT.given(both, kind, "key", "Part"))
    assert [each.name for each in descriptors(alone.text).file] == ["part.proto"]
    registered = FORMAT.registered_schema(FORMAT.given(both, kind, "key"))
    assert [each.name for each in registered.references] == ["part.proto"]
    assert registered.references[0].schema.text == alone.text
    whole.write_text("not a descriptor")
    with pytest.raises(FormatError, match="is not a valid descriptor set"):
        read_schema("protobuf", [whole.rename(tmp_path / "whole.bin")])


@pytest.mark.parametrize("name", ["../part.proto", "/part.proto", "other/../../part.proto", "part.txt"])
def test_a_file_imports_nothing_from_outside_its_folder(name: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / "other").mkdir(parents=True)
    name = name.replace("/part", f"{tmp_path}/part") if name.startswith("/") else name
    for folder in (tmp_path, inside):
        (folder / "part.txt").write_text('syntax = "proto3"; message Part { int32 n = 1; }')
    (tmp_path / "part.proto").write_text('syntax = "proto3"; message Part { int32 n = 1; }')
    whole = inside / "whole.proto"
    whole.write_text(f'syntax = "proto3"; import "{name}"; message Whole {{ Part part = 1; }}')
    assert read_schema("protobuf", [whole]).references == ()


def test_descriptor_without_what_it_imports_is_refused() -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp at = 1; }'
    )
    alone = descriptors(text).file[-1]
    assert parse_schema(base64.b64encode(alone.SerializeToString()).decode()) == parse_schema(text)
    alone.dependency.append("other.proto")
    with pytest.raises(FormatError, match=r"imports 'other.proto', which is missing"):
        parse_schema(base64.b64encode(alone.SerializeToString()).decode())


@pytest.mark.behaviour("Protobuf", "Tasks and derived schemas need no package")
def test_tasks_and_derived_schemas_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = struct(("id", pa.int64()))
    text = 'syntax = "proto3"; message M { optional int64 id = 1; }'
    given = pickle.dumps(FORMAT.given(SchemaText(text), kind, "value"))
    for module in [each for each in sys.modules if each.partition(".")[0] in ("google", "grpc_tools")]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("google", "grpc_tools"):
        monkeypatch.setitem(sys.modules, module, None)
    rows = pa.array([{"id": 5}], kind)
    for form in (pickle.loads(given), FORMAT.derived(kind, "value")):
        assert FORMAT.encoder(form, kind).encode(rows).to_pylist() == [b"\x08\x05"]


@pytest.mark.behaviour("Protobuf", "Without the extra a given schema is refused with what to install")
@pytest.mark.parametrize(("module", "package"), [("grpc_tools", "grpcio-tools"), ("google.protobuf", "protobuf")])
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, module: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FormatError, match=rf"needs the package {package}, which pip install 'kafkalite\[protobuf\]'"):
        parse_schema(f'syntax = "proto3"; message M {{}} // {package}')
