"""Columns against messages: matching, conversion, and the errors of refused values."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.payloads import FieldsEncoder
from kafka_sink.formats.protobuf.descriptors import pool_of
from kafka_sink.formats.protobuf.parsing import parse_schema
from tests.support.cases import with_each
from tests.support.encoders import protobuf_encoder

#: The type of each field has the same name.
SCHEMA = """
syntax = "proto2";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
message M {
  enum Colour { RED = 0; BLUE = 4; AZURE = -1; }
  message Part { required int32 n = 1; optional Part part = 2; }
  message AlsoPart { optional int32 n = 1; }
  optional bool bool = 1;
  optional int32 int32 = 2;
  optional uint32 uint32 = 3;
  optional uint64 uint64 = 4;
  optional float float = 5;
  optional double double = 6;
  optional string string = 7;
  optional bytes bytes = 8;
  optional Colour colour = 9;
  optional Part part = 10;
  repeated string strings = 11;
  repeated int64 numbers = 12 [packed = true];
  map<string, int32> map = 13;
  optional google.protobuf.Timestamp at = 14;
  optional google.protobuf.Duration took = 15;
  optional google.protobuf.UInt32Value wrapped = 16;
  oneof choice { string one = 17; int32 other = 18; }
  optional group Group = 19 { optional int32 n = 1; }
  optional sint32 sint32 = 20;
  repeated Part parts = 21;
  optional int64 int64 = 22;
}
"""


def encoder(**columns: pa.DataType) -> FieldsEncoder:
    return protobuf_encoder(parse_schema(SCHEMA), pa.struct(list(columns.items())), "value")


def written(rows: list[dict[str, Any] | None], **columns: pa.DataType) -> list[Any]:
    """The messages that Google's library reads from the payloads of *rows*."""
    kind = message_factory.GetMessageClass(pool_of(SCHEMA).FindMessageTypeByName("M"))
    payloads = encoder(**columns).encode(pa.array(rows, pa.struct(list(columns.items())))).to_pylist()
    return [None if payload is None else kind.FromString(payload) for payload in payloads]


def test_fields_match_by_name_and_others_are_left_out() -> None:
    first, none, second = written(
        [{"string": "x", "bool": False}, None, {"bool": None}], string=pa.string(), bool=pa.bool_()
    )
    assert (first.string, first.HasField("bool"), none) == ("x", True, None)
    assert second.ListFields() == []


@pytest.mark.behaviour("Protobuf", "Without presence the default value is left out, and -0.0 is none")
@with_each(
    ("kind", "type_name", "values", "written"),
    [
        (pa.int32(), "int32", [0, 1, None], [b"", b"\x08\x01", b""]),
        (pa.string(), "string", ["", "a", None], [b"", b"\x0a\x01a", b""]),
        (pa.bool_(), "bool", [False, True, None], [b"", b"\x08\x01", b""]),
        (pa.float64(), "double", [0.0, -0.0], [b"", b"\x09" + b"\0" * 7 + b"\x80"]),
        (pa.float32(), "float", [0.0, -0.0], [b"", b"\x0d\0\0\0\x80"]),
        (pa.float32(), "double", [0.0, -0.0], [b"", b"\x09" + b"\0" * 7 + b"\x80"]),
    ],
)
def test_defaults_are_left_out_without_presence(
    kind: pa.DataType, type_name: str, values: list[Any], written: list[bytes]
) -> None:
    schema = parse_schema(f'syntax = "proto3"; message M {{ {type_name} a = 1; }}')
    rows = pa.array([{"a": value} for value in values], pa.struct([("a", kind)]))
    assert protobuf_encoder(schema, rows.type, "value").encode(rows).to_pylist() == written


def test_no_rows_are_no_payloads() -> None:
    assert written([], string=pa.string(), strings=pa.list_(pa.string()), map=pa.map_(pa.string(), pa.int32())) == []


def test_columns_of_nulls_are_left_out() -> None:
    (found,) = written(
        [{"string": None, "part": None, "strings": None}], string=pa.null(), part=pa.null(), strings=pa.null()
    )
    assert found.ListFields() == []


def test_messages_contain_themselves_as_deep_as_the_column() -> None:
    kind = pa.struct([("n", pa.int32())])
    for _ in range(5):
        kind = pa.struct([("n", pa.int32()), ("part", kind)])
    row: dict[str, Any] = {"n": 5}
    for depth in range(4, -1, -1):
        row = {"n": depth, "part": row}
    (found,) = written([{"part": row}], part=kind)
    assert [found.part.n, found.part.part.n, found.part.part.part.part.part.part.n] == [0, 1, 5]


@with_each(
    ("name", "kind", "value", "expected"),
    [
        ("int32", pa.date32(), dt.date(1969, 12, 31), -1),
        ("uint32", pa.int64(), (1 << 32) - 1, (1 << 32) - 1),
        ("int64", pa.time64("ns"), dt.time(12, 34, 56, 500_000), 45_296_500_000_000),
        ("uint64", pa.decimal128(20, 0), decimal.Decimal((1 << 64) - 1), (1 << 64) - 1),
        ("double", pa.float32(), 0.5, 0.5),
        ("colour", pa.string(), "BLUE", 4),
        ("colour", pa.int64(), -1, -1),
        ("bytes", pa.string(), "é", "é".encode()),
    ],
)
def test_columns_are_converted(name: str, kind: pa.DataType, value: Any, expected: Any) -> None:
    (found,) = written([{name: value}], **{name: kind})
    assert getattr(found, name) == expected


def test_moments_before_1970_and_negative_durations_are_exact() -> None:
    at = dt.datetime(1969, 12, 31, 23, 59, 58, 750_000, tzinfo=dt.UTC)
    took = -dt.timedelta(seconds=1, microseconds=250_000)
    (found,) = written([{"at": at, "took": took}], at=pa.timestamp("us", "UTC"), took=pa.duration("us"))
    assert (found.at.seconds, found.at.nanos) == (-2, 750_000_000)
    assert (found.took.seconds, found.took.nanos) == (-1, -250_000_000)


def test_group_is_written_between_its_tags() -> None:
    (found,) = written([{"group": {"n": 7}}], group=pa.struct([("n", pa.int32())]))
    assert found.group.n == 7


MISMATCHES: list[tuple[str, pa.DataType, str]] = [
    ("int32", pa.int64(), "column 'value.int32' is int64, which cannot be written as the schema's int32; cast the"),
    ("sint32", pa.int64(), "or make the field int64"),
    ("int64", pa.decimal128(18, 0), "is decimal(18, 0), which cannot be written as the schema's int64"),
    ("uint64", pa.decimal128(18, 2), "cannot be written as the schema's uint64"),
    ("float", pa.float64(), "cannot be written as the schema's float"),
    ("string", pa.binary(), "cannot be written as the schema's string"),
    ("bytes", pa.int32(), "cannot be written as the schema's bytes"),
    ("part", pa.int32(), "cannot be written as the schema's message M.Part"),
    ("at", pa.timestamp("us"), "cannot be written as the schema's message google.protobuf.Timestamp"),
    ("took", pa.int64(), "cannot be written as the schema's message google.protobuf.Duration"),
    ("wrapped", pa.string(), "column 'value.wrapped' is string, which cannot be written as the schema's uint32"),
    ("strings", pa.string(), "cannot be written as the schema's repeated string; make it an array"),
    ("strings", pa.list_(pa.int32()), "column 'value.strings[]' is int32"),
    ("map", pa.list_(pa.string()), "make it a map"),
    ("map", pa.map_(pa.int32(), pa.int32()), "column 'value.map{key}' is int32"),
    ("map", pa.map_(pa.string(), pa.string()), "column 'value.map{}' is string"),
    ("part", pa.struct([("part", pa.null())]), "column 'value.part.n' is missing: the schema's field 'n' is required"),
    ("part", pa.struct([("n", pa.null())]), "column 'value.part.n' is null, which cannot be written"),
    ("strnig", pa.string(), "column 'value.strnig' has no field in the schema's message M (did you mean string?)"),
    ("String", pa.string(), "column 'value.String' has no field in the schema's message M (did you mean string?)"),
]


@pytest.mark.behaviour("Protobuf", "A column that does not fit is refused with its path, both types and what to do")
@with_each(("name", "kind", "expected"), MISMATCHES)
def test_columns_that_do_not_fit_are_refused(name: str, kind: pa.DataType, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        encoder(**{name: kind})
    assert expected in str(caught.value)


@pytest.mark.parametrize("kind", [pa.int64(), pa.struct([("bool", pa.bool_()), ("bool", pa.bool_())])])
def test_rows_that_are_no_message_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(FormatError, match=r"make it a struct|two fields named 'bool'"):
        protobuf_encoder(parse_schema(SCHEMA), kind, "value")


LIST, PARTS = pa.list_(pa.string()), pa.list_(pa.struct([("n", pa.int32())]))
MAP = pa.map_(pa.string(), pa.int32())
MOMENT = pa.timestamp("us", "UTC")
D, D20, PART = decimal.Decimal, pa.decimal128(20, 0), pa.struct([("n", pa.int32())])
ROWS: list[tuple[str, pa.DataType, Any, Any, str]] = [
    ("uint32", pa.int64(), 1, -1, "has -1 in column 'value.uint32', but uint32 takes 0 to 4294967295; correct"),
    ("uint32", pa.int64(), 1, 1 << 32, "has 4294967296 in column 'value.uint32'"),
    ("uint32", pa.int32(), 1, -1, "has -1 in column 'value.uint32'"),
    ("uint64", pa.int64(), 1, -1, "has -1 in column 'value.uint64', but uint64 takes 0 to 18446744073709551615"),
    ("uint64", D20, D(1), D(1 << 64), "has Decimal('18446744073709551616')"),
    ("uint64", D20, D(1), D(-1), "has Decimal('-1') in column 'value.uint64'"),
    ("wrapped", pa.int64(), 1, -1, "has -1 in column 'value.wrapped'"),
    (
        "colour",
        pa.string(),
        "RED",
        "GREEN",
        "has 'GREEN' in column 'value.colour', which is not one of the enum's names",
    ),
    ("colour", pa.int32(), 0, 1, "has 1 in column 'value.colour', which is not one of the enum's numbers (0, 4, -1)"),
    ("strings", LIST, ["a"], ["a", None], "is null in column 'value.strings[]', and Protobuf has no null in lists"),
    ("numbers", pa.list_(pa.int64()), [1], [None], "is null in column 'value.numbers[]'"),
    ("map", MAP, [("a", 1)], [("a", None)], "is null in column 'value.map{}', and Protobuf has no null in"),
    ("part", PART, {"n": 1}, {"n": None}, "is null in column 'value.part.n', which the schema"),
    ("parts", PARTS, [{"n": 1}], [{"n": 1}, None], "is null in column 'value.parts[]'"),
    ("parts", PARTS, [{"n": 1}], [{"n": None}], "is null in column 'value.parts[].n', which the schema requires"),
    (
        "at",
        MOMENT,
        0,
        253_402_300_800_000_000,
        "has 253402300800000000 in column 'value.at', but google.protobuf.Timest",
    ),
    ("at", MOMENT, 0, -62_135_596_800_000_001, "takes the years 1 to 9999"),
    ("took", pa.duration("us"), 0, 315_576_000_001_000_000, "google.protobuf.Duration takes 10,000 years"),
]


@pytest.mark.behaviour("Protobuf", "All rows that do not fit are refused at once, with the path and the value")
@with_each(("name", "kind", "good", "bad", "expected"), ROWS)
def test_rows_that_do_not_fit_are_refused_at_once(
    name: str, kind: pa.DataType, good: Any, bad: Any, expected: str
) -> None:
    rows = pa.array([{name: good}, {name: bad}, None, {name: good}, {name: bad}], pa.struct([(name, kind)]))
    with pytest.raises(RowSerializationError) as caught:
        encoder(**{name: kind}).encode(rows)
    assert list(caught.value.rows) == [1, 4]
    assert expected in str(caught.value)
    kept = rows.take(pa.array([0, 2, 3]))
    assert encoder(**{name: kind}).encode(kept).null_count == 1


def test_text_that_is_no_utf8_is_refused() -> None:
    texts = pa.array([b"a", b"\xff", b"\xff"]).view(pa.string())
    rows = pa.StructArray.from_arrays([texts], names=["string"], mask=pa.array([False, False, True]))
    with pytest.raises(
        RowSerializationError, match=r"has bytes in column 'value.string' that are not valid UTF-8; cast"
    ) as caught:
        encoder(string=pa.string()).encode(rows)
    assert list(caught.value.rows) == [1]


@pytest.mark.behaviour("Protobuf", "A row with several values in a oneof is refused")
def test_several_values_in_a_oneof_are_refused() -> None:
    rows: list[Any] = [{"one": "a", "other": None}, {"one": "a", "other": 0}, None, {"one": None, "other": 1}]
    kind = pa.struct([("one", pa.string()), ("other", pa.int32())])
    with pytest.raises(RowSerializationError) as caught:
        encoder(one=pa.string(), other=pa.int32()).encode(pa.array(rows, kind))
    assert list(caught.value.rows) == [1]
    assert "has more than one of the columns one, other of the oneof 'value.choice'; make all but one" in str(
        caught.value
    )
    found = written([rows[0], rows[3]], one=pa.string(), other=pa.int32())
    assert [each.WhichOneof("choice") for each in found] == ["one", "other"]
