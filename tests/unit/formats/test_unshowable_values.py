"""A value without a text, date or time zone in Python is refused like any other, and its row is a bad row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.json.column import JsonEncoder
from kafka_sink.formats.protobuf.parsing import parse_schema
from tests.support.encoders import avro_encoder, protobuf_encoder

TEXTS = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
PAST_9999 = 253_402_300_800_000_000
LOW_OR_HIGH = {"anyOf": [{"properties": {"n": {"maximum": 1}}}, {"properties": {"n": {"minimum": 5}}}]}


def test_text_that_is_no_utf8_is_no_symbol_of_an_enum() -> None:
    enum = '{"type": "enum", "name": "E", "symbols": ["a", "b"]}'
    with pytest.raises(RowSerializationError, match=r"row 1 has .* in column 'value', which is not one of the enum's"):
        avro_encoder(enum, pa.string(), "value").encode(TEXTS)
    proto = 'syntax = "proto3"; enum E { a = 0; b = 1; } message M { E e = 1; }'
    rows = pa.StructArray.from_arrays([TEXTS], names=["e"])
    with pytest.raises(RowSerializationError, match=r"row 1 has .* in column 'value.e', which is not one of the"):
        protobuf_encoder(parse_schema(proto), rows.type, "value").encode(rows)


@pytest.mark.parametrize("schema", [{"enum": ["a"]}, {"pattern": "^a"}], ids=str)
def test_text_that_is_no_utf8_is_against_a_json_schema(schema: dict[str, Any]) -> None:
    with pytest.raises(RowSerializationError, match=r"row . has .* in column 'value', which is against"):
        JsonEncoder(pa.string(), "value", schema).encode(TEXTS)


@pytest.mark.parametrize(
    "other",
    [
        TEXTS,
        pa.array([0, PAST_9999]).view(pa.timestamp("us", "UTC")),
        pa.array([0, 2_932_897], pa.int32()).view(pa.date32()),
        # A time zone that Spark and kafkalite support, and Python does not.
        pa.array([0, 1]).view(pa.timestamp("us", "PST")),
    ],
    ids=lambda array: str(array.type),
)
def test_rows_with_such_a_value_are_refused_for_other_reasons(other: pa.Array) -> None:
    rows = pa.StructArray.from_arrays([other, pa.array([1, 2])], names=["other", "n"])
    with pytest.raises(RowSerializationError, match=r"row 1 has .* in column 'value', which does not fit any of"):
        JsonEncoder(rows.type, "value", LOW_OR_HIGH).encode(rows)


def test_rows_with_such_a_value_are_written_by_an_alternative() -> None:
    times = pa.array([0, 1]).view(pa.timestamp("us", "GMT+8"))
    rows = pa.StructArray.from_arrays([times, pa.array([1, None])], names=["at", "n"])
    schema = {"anyOf": [{"minProperties": 2}, {"maxProperties": 1}]}
    texts = JsonEncoder(rows.type, "value", schema).encode(rows).to_pylist()
    assert texts == [b'{"at":"1970-01-01T08:00:00.000+08:00","n":1}', b'{"at":"1970-01-01T08:00:00.000+08:00"}']
