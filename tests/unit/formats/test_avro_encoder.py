"""Columns against given schemas: matching, conversion, and the errors of refused values."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.payloads import FieldsEncoder
from tests.support.avro_shapes import by_fastavro, read_by_fastavro
from tests.support.cases import with_each
from tests.support.encoders import avro_encoder


def record(*fields: Any) -> str:
    """A schema with *fields*, each (name, type) or (name, type, default)."""
    listed = [{"name": each[0], "type": each[1], **({"default": each[2]} if len(each) == 3 else {})} for each in fields]
    return json.dumps({"type": "record", "name": "R", "fields": listed})


def struct(*fields: Any) -> pa.DataType:
    return pa.struct(list(fields))


def written(schema: str, kind: pa.DataType, rows: list[Any]) -> list[Any]:
    """The values that fastavro reads from the payloads of *rows*."""
    payloads = avro_encoder(schema, kind, "value").encode(pa.array(rows, kind)).to_pylist()
    return [None if payload is None else read_by_fastavro(schema, payload) for payload in payloads]


ENUM = {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}
FIXED = {"type": "fixed", "name": "F", "size": 3}
DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("int", 7, 7),
    ("string", "none", "none"),
    ("bytes", "\u00ff\u0001", b"\xff\x01"),
    ("boolean", True, True),
    ("double", 1.5, 1.5),
    (ENUM, "BLUE", "BLUE"),
    (FIXED, "abc", b"abc"),
    (["null", "int"], None, None),
    (["int", "null"], 3, 3),
    # Avro 1.12: the default is a value of the first type of the union that matches.
    (["null", "string"], "hello", "hello"),
    (["string", "null"], None, None),
    (["null", "int", "boolean"], True, True),
    (["null", ENUM, "string"], "GREEN", "GREEN"),
    (["null", "double"], 2, 2.0),
    ({"type": "array", "items": "long"}, [1, 2], [1, 2]),
    ({"type": "map", "values": "string"}, {"a": "b"}, {"a": "b"}),
    ({"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}, {"x": 1}),
    ("string", "a default of more than eight bytes", "a default of more than eight bytes"),
]


@pytest.mark.behaviour("Avro", "A field without a column takes its default, or null; it is refused if it has neither")
@with_each(("kind", "default", "expected"), DEFAULTS)
def test_missing_column_takes_the_default(kind: Any, default: Any, expected: Any) -> None:
    schema = record(("missing", kind, default), ("id", "int"))
    rows = written(schema, struct(("id", pa.int32())), [{"id": 1}, None, {"id": 2}])
    assert rows == [{"missing": expected, "id": 1}, None, {"missing": expected, "id": 2}]


def test_missing_column_without_default_is_null_if_it_may_be() -> None:
    schema = record(("id", "int"), ("note", ["string", "null"]))
    assert written(schema, struct(("id", pa.int32())), [{"id": 1}]) == [{"id": 1, "note": None}]


@pytest.mark.behaviour("Avro", "A column is widened as Avro allows: int, long, float, double")
@with_each(
    ("kind", "avro", "value", "expected"),
    [
        (pa.int8(), "long", -3, -3),
        (pa.int32(), "long", 1 << 30, 1 << 30),
        (pa.int32(), "float", 5, 5.0),
        (pa.int64(), "double", 1 << 40, float(1 << 40)),
        (pa.float32(), "double", 0.5, 0.5),
        (pa.string(), "bytes", "é", "é".encode()),
    ],
)
def test_narrow_columns_are_widened(kind: pa.DataType, avro: str, value: Any, expected: Any) -> None:
    assert written(record(("a", avro)), struct(("a", kind)), [{"a": value}]) == [{"a": expected}]


def test_fields_match_by_name_in_the_order_of_the_schema() -> None:
    schema = record(("b", "string"), ("a", ["null", "int"]))
    kind = struct(("a", pa.int32()), ("b", pa.string()))
    rows = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert avro_encoder(schema, kind, "value").encode(pa.array(rows, kind)).to_pylist() == by_fastavro(schema, rows)


def test_decimals_gain_digits_that_the_schema_has() -> None:
    avro = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4}
    rows = written(
        record(("a", [avro, "null"])), struct(("a", pa.decimal128(12, 2))), [{"a": decimal.Decimal("-7.25")}]
    )
    assert rows == [{"a": decimal.Decimal("-7.2500")}]


@pytest.mark.parametrize("kind", ["long", {"type": "long", "logicalType": "timestamp-millis"}])
def test_timestamps_before_1970_are_rounded_down_to_millis(kind: Any) -> None:
    schema = record(("a", kind))
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    payloads = avro_encoder(schema, kind := struct(("a", pa.timestamp("us", "UTC"))), "value").encode(
        pa.array([{"a": moment}], kind)
    )
    assert payloads.to_pylist() == [b"\x01"]


def test_a_union_of_one_type_has_its_position() -> None:
    assert written(record(("a", ["int"])), struct(("a", pa.int32())), [{"a": 4}]) == [{"a": 4}]


def test_no_rows_are_no_payloads() -> None:
    kind = struct(("a", pa.int32()), ("l", pa.list_(pa.int32())))
    schema = record(("a", "int"), ("l", {"type": "array", "items": ["int", "null"]}))
    assert avro_encoder(schema, kind, "value").encode(pa.array([], kind)).to_pylist() == []


MISMATCHES: list[tuple[Any, pa.DataType, str]] = [
    ("int", pa.int64(), "column 'value.a' is int64, which cannot be written as the schema's int; cast"),
    ("string", pa.binary(), "column 'value.a' is binary, which cannot be written as the schema's string"),
    (["int", "string", "null"], pa.int32(), "only unions of null and one other type are written"),
    ({"type": "record", "name": "S", "fields": []}, pa.int32(), "make it a struct"),
    ("int", pa.decimal128(9, 2), "cannot be written as the schema's int"),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us"), "use local-timestamp-micros"),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.int64(), "the schema's long (timestamp-micros)"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, pa.decimal128(9, 2), "decimal(4,1)"),
    ({"type": "array", "items": "int"}, pa.list_(pa.string()), "column 'value.a[]' is string"),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.bool_()), "column 'value.a{}' is bool"),
    ("null", pa.int32(), "column 'value.a' is int32, which cannot be written as the schema's null; drop"),
]


@pytest.mark.behaviour("Avro", "A column that does not fit the schema is refused with path, both types and what to do")
@with_each(("avro", "kind", "expected"), MISMATCHES)
def test_columns_that_do_not_fit_are_refused(avro: Any, kind: pa.DataType, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        avro_encoder(record(("a", avro)), struct(("a", kind)), "value")
    assert expected in str(caught.value)


@with_each(
    ("fields", "kind", "expected"),
    [
        ([("id", "int")], struct(("id", pa.int32()), ("extra", pa.int32())), "column 'value.extra' has no field"),
        ([("id", "int")], struct(("Id", pa.int32())), "column 'value.Id' has no field in the schema's record R (did"),
        ([("id", "int"), ("b", "int")], struct(("id", pa.int32())), "column 'value.b' is missing"),
        ([("id", "int"), ("b", "int", "x")], struct(("id", pa.int32())), "the default 'x' of the schema's field is no"),
        ([("id", "int"), ("b", FIXED, "x")], struct(("id", pa.int32())), "the default 'x' of the schema's field is no"),
        ([("id", "int"), ("b", "int", 1.5)], struct(("id", pa.int32())), "the default 1.5 of the schema's field is no"),
    ],
)
def test_columns_and_fields_without_a_match_are_refused(fields: list[Any], kind: pa.DataType, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        avro_encoder(record(*fields), kind, "value")
    assert expected in str(caught.value)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
ROWS: list[tuple[Any, pa.DataType, Any, Any, str]] = [
    ("int", pa.int32(), 1, None, "is null in column 'value.a', which the schema does not allow"),
    (ENUM, pa.string(), "RED", "GREEN", "has 'GREEN' in column 'value.a', which is not one of the enum's symbols"),
    (FIXED, pa.binary(), b"abc", b"ab", "has b'ab' in column 'value.a', but the schema has fixed of 3 bytes"),
    (DECIMAL, pa.decimal128(9, 2), decimal.Decimal("99.99"), decimal.Decimal("-100.00"), "has Decimal('-100.00')"),
    (
        {"type": "long", "logicalType": "timestamp-nanos"},
        pa.timestamp("us", "UTC"),
        dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2300, 1, 1, tzinfo=dt.UTC),
        "has 10413792000000000 in column 'value.a', which times 1000 exceeds 64 bits",
    ),
]


#: The location of the value: its path, the type around it, and the content of a row with some values there.
WITHIN: dict[str, Callable[[Any, pa.DataType], tuple[str, tuple[Any, pa.DataType], Callable[[list[Any]], Any]]]] = {
    "record": lambda avro, kind: ("value.a", (avro, kind), lambda values: values[-1]),
    "array": lambda avro, kind: ("value.a[]", ({"type": "array", "items": avro}, pa.list_(kind)), list),
    "map": lambda avro, kind: (
        "value.a{}",
        ({"type": "map", "values": avro}, pa.map_(pa.string(), kind)),
        lambda values: [(str(index), value) for index, value in enumerate(values)],
    ),
}


@pytest.mark.behaviour("Avro", "A value that does not fit is refused with row, path, value and what to do")
@with_each("within", WITHIN)
@with_each(("avro", "kind", "good", "bad", "expected"), ROWS)
def test_rows_that_do_not_fit_are_named(
    avro: Any, kind: pa.DataType, good: Any, bad: Any, expected: str, within: str
) -> None:
    path, shape, wrap = WITHIN[within](avro, kind)
    column = struct(("a", shape[1]))
    rows = pa.array(
        [{"a": wrap([good, good])}, {"a": wrap([good])}, {"a": wrap([good, bad])}, {"a": wrap([bad])}], column
    )
    with pytest.raises(RowSerializationError) as caught:
        avro_encoder(record(("a", shape[0])), column, "value").encode(rows)
    assert caught.value.row == 2
    assert expected.replace("value.a", path) in str(caught.value)


def test_values_of_null_rows_are_neither_checked_nor_written() -> None:
    """A value below a null struct or in a null list is not part of any row."""
    columns = [pa.array(["RED", "GREEN"]), pa.array(["a text of more than twelve bytes"] * 2)]
    inner = pa.StructArray.from_arrays(columns, names=["a", "t"], mask=pa.array([False, True]))
    rows = pa.StructArray.from_arrays([inner], names=["inner"])
    fields = [{"name": "a", "type": ENUM}, {"name": "t", "type": "string"}]
    schema = record(("inner", [{"type": "record", "name": "S", "fields": fields}, "null"]))
    found = avro_encoder(schema, rows.type, "value").encode(rows).to_pylist()
    kept = {"a": "RED", "t": "a text of more than twelve bytes"}
    assert [read_by_fastavro(schema, each) for each in found] == [{"inner": kept}, {"inner": None}]


def test_items_of_null_lists_are_not_written() -> None:
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), pa.array(["RED", "x", "y", "BLUE"]), mask=pa.array([False, True, False])
    )
    rows = pa.StructArray.from_arrays([lists], names=["l"])
    schema = record(("l", [{"type": "array", "items": ENUM}, "null"]))
    found = avro_encoder(schema, rows.type, "value").encode(rows).to_pylist()
    assert [read_by_fastavro(schema, each)["l"] for each in found] == [["RED"], None, ["BLUE"]]


@pytest.mark.behaviour(
    "Avro", "An error names all rows with the problem, so that the others can be encoded without them"
)
@given(st.lists(st.sampled_from(["RED", "x", None, 5, 10**6, [["RED"]], [["RED", "y"], ["z"]], [], [["y", "RED"]]])))
def test_rows_without_those_of_errors_are_written(rows: list[Any]) -> None:
    schema = record(("colour", ENUM), ("price", PRICE), ("all", {"type": "array", "items": SHADES}))
    kind = struct(("colour", pa.string()), ("price", pa.decimal128(12, 2)), ("all", pa.list_(pa.list_(pa.string()))))
    values = [value_of(each) for each in rows]
    array, left, problems = pa.array(values, kind), list(range(len(rows))), 0
    encoder = avro_encoder(schema, kind, "value")
    while True:
        try:
            payloads = encoder.encode(array.take(pa.array(left, pa.int64()))).to_pylist()
            break
        except RowSerializationError as error:
            problems += 1
            assert sorted(error.rows) == list(dict.fromkeys(error.rows)), rows
            assert error.column in ("value.colour", "value.price", "value.all[][]"), rows
            for row in error.rows:
                assert f"column '{error.column}'" in error.problem_of(row), rows
            left = [each for row, each in enumerate(left) if row not in error.rows]
    good = [each for each in range(len(rows)) if alone(encoder, array, each)]
    assert left == good, rows
    assert problems <= 4, rows
    assert [read_by_fastavro(schema, payload) for payload in payloads] == [values[each] for each in good], rows


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
SHADES = {"type": "array", "items": {"type": "enum", "name": "Shade", "symbols": ["RED"]}}


def value_of(drawn: Any) -> dict[str, Any]:
    """A row with *drawn* in the field of its type, and valid values in the other fields."""
    row: dict[str, Any] = {"colour": "BLUE", "price": decimal.Decimal("1.00"), "all": [["RED"]]}
    if isinstance(drawn, int):
        row["price"] = decimal.Decimal(drawn)
    elif isinstance(drawn, list):
        row["all"] = drawn
    else:
        row["colour"] = drawn
    return row


def alone(encoder: FieldsEncoder, array: pa.Array, row: int) -> bool:
    """Whether *row* can be written as the only row."""
    try:
        encoder.encode(array.slice(row, 1))
    except RowSerializationError:
        return False
    return True
