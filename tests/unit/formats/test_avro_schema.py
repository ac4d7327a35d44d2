"""Accepted schemas, and the schemas that are derived from the types of columns."""

from __future__ import annotations

import json

import fastavro
import pyarrow as pa
import pytest

from kafka_sink.formats.avro.column import derive_schema
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.avro.schema import Decimal, Enum, Fixed, Primitive, Record
from kafka_sink.formats.errors import FormatError
from tests.support.cases import with_each

ORDER = pa.struct(
    [
        pa.field("id", pa.int64(), False),
        pa.field("small", pa.int8()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("lines", pa.list_(pa.field("element", pa.struct([pa.field("sku", pa.string(), False)]), False))),
        pa.field("tags", pa.map_(pa.string(), pa.field("value", pa.float32()))),
        pa.field("buyer", pa.struct([pa.field("address", pa.struct([pa.field("city", pa.string())]))]), False),
    ]
)


@pytest.mark.behaviour("Avro", "The derived schema has the names, namespaces and unions of spark-avro's to_avro")
def test_derived_schema_is_that_of_spark_avro() -> None:
    line = {
        "type": "record",
        "name": "lines",
        "namespace": "topLevelRecord",
        "fields": [{"name": "sku", "type": "string"}],
    }
    address = {
        "type": "record",
        "name": "address",
        "namespace": "topLevelRecord.buyer",
        "fields": [{"name": "city", "type": ["string", "null"]}],
    }
    expected = [
        ("id", "long"),
        ("small", ["int", "null"]),
        ("price", [{"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}, "null"]),
        ("at", [{"type": "long", "logicalType": "timestamp-micros"}, "null"]),
        ("local", [{"type": "long", "logicalType": "local-timestamp-micros"}, "null"]),
        ("day", [{"type": "int", "logicalType": "date"}, "null"]),
        ("lines", [{"type": "array", "items": line}, "null"]),
        ("tags", [{"type": "map", "values": ["float", "null"]}, "null"]),
        (
            "buyer",
            {
                "type": "record",
                "name": "buyer",
                "namespace": "topLevelRecord",
                "fields": [{"name": "address", "type": [address, "null"]}],
            },
        ),
    ]
    schema = json.loads(derive_schema(ORDER, "value"))
    assert schema == {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [{"name": name, "type": kind} for name, kind in expected],
    }
    fastavro.parse_schema(schema)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(pa.int16(), "int"), (pa.string(), "string"), (pa.list_(pa.field("element", pa.bool_(), False)), "array")],
)
def test_a_column_without_fields_has_a_schema_too(kind: pa.DataType, expected: str) -> None:
    declared = json.loads(derive_schema(kind, "key"))
    assert (declared["type"] if isinstance(declared, dict) else declared) == expected


@pytest.mark.behaviour("Avro", "Types and names without a counterpart are refused with the column and what to do")
@with_each(
    ("kind", "expected"),
    [
        (pa.struct([("unit price", pa.int32())]), "column 'value.unit price' has a name that Avro does not allow"),
        (pa.struct([("a", pa.list_(pa.struct([("1st", pa.int32())])))]), "column 'value.a[].1st' has a name"),
        (pa.struct([("a", pa.int32()), ("a", pa.int32())]), "column 'value' has two fields named 'a'; rename"),
        (pa.struct([("m", pa.map_(pa.int32(), pa.int32()))]), "column 'value.m' is a map with keys of type int32"),
        (pa.struct([("v", pa.month_day_nano_interval())]), "column 'value.v' has the type month_day_nano_interval"),
    ],
)
def test_columns_without_counterpart_are_refused(kind: pa.DataType, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        derive_schema(kind, "value")
    assert str(caught.value).startswith(expected)
    assert any(remedy in str(caught.value) for remedy in ("rename", "cast"))


def test_named_types_are_found_by_name_and_namespace() -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
    fields = [
        {"name": "home", "type": address},
        {"name": "work", "type": "Address"},
        {"name": "other", "type": ["null", "org.shop.Address"], "default": None},
    ]
    order = {"type": "record", "name": "Order", "namespace": "org.shop", "fields": fields}
    found = parse_schema(json.dumps(order))
    assert isinstance(found, Record)
    home, work, _ = (field.type for field in found.fields)
    assert found.name == "org.shop.Order"
    assert isinstance(home, Record)
    assert home.name == "org.shop.Address"
    assert work == home


def test_types_are_read_with_their_logical_types() -> None:
    assert parse_schema("string") == Primitive("string")
    assert parse_schema('{"type":"long","logicalType":"timestamp-millis"}') == Primitive("long", "timestamp-millis")
    assert parse_schema('{"type":"fixed","name":"f","size":3}') == Fixed("f", 3)
    assert parse_schema('{"type":"enum","name":"e","symbols":["A","B"]}') == Enum("e", ("A", "B"))
    decimal = '{"type":"fixed","name":"f","size":4,"logicalType":"decimal","precision":9,"scale":2}'
    assert parse_schema(decimal) == Decimal(9, 2, 4)


def test_logical_types_that_are_invalid_are_ignored() -> None:
    assert parse_schema('{"type":"int","logicalType":"timestamp-micros"}') == Primitive("int")
    assert parse_schema('{"type":"bytes","logicalType":"decimal","precision":2,"scale":3}') == Primitive("bytes")
    too_small = '{"type":"fixed","name":"f","size":2,"logicalType":"decimal","precision":9}'
    assert parse_schema(too_small) == Fixed("f", 2)


@pytest.mark.behaviour("Avro", "A schema that is invalid is refused with the place and the reason")
@with_each(
    ("schema", "expected"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "brackets more than 400 levels deep"),
        ("7", "the schema is 7, expected a type of Avro"),
        ('{"type":"record","name":"R"}', "record R) has no list of fields"),
        ('{"type":"record","name":"R-1","fields":[]}', "has the name 'R-1'"),
        ('{"type":"record","name":"R","fields":[{"name":"a b","type":"int"}]}', "a field needs a name of its own"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"text"}]}', "field a of record R has the unknown"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"R"}]}', "cannot contain itself"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "expected names, each once"),
        ('{"type":"fixed","name":"F","size":-1}', "has the size -1"),
        ('["null",["int","null"]]', "a union within a union"),
        ('["int","int"]', "has int twice"),
        ("[]", "a union without types"),
        ('{"type":"array"}', "the schema[] is None"),
        ('[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]', "declares F a second time"),
    ],
)
def test_invalid_schemas_are_refused(schema: str, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_schema(schema)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 400
