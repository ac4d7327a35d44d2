"""The columnar Avro encoder against fastavro, row by row: equal bytes for all types and layouts of Arrow's arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_sink.formats.avro.column import derive_schema
from tests.support.amounts import AVRO_BATCHES
from tests.support.arrow_masks import with_hidden
from tests.support.avro_shapes import Shape, by_fastavro, read_by_fastavro, records, shapes, with_own_names
from tests.support.encoders import avro_encoder

pytestmark = pytest.mark.behaviour("Avro", "Payloads are those of fastavro, byte by byte, for rows of random types")

often = settings(
    max_examples=AVRO_BATCHES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Shape, list[Any]]:
    shape = draw(records(shapes()) | shapes())
    return shape, draw(st.lists(st.none() | shape.values, max_size=5))


def told(shape: Shape, rows: list[Any]) -> list[Any]:
    return [None if row is None else shape.told(row) for row in rows]


@often
@given(batches(), st.binary(max_size=9))
def test_payloads_equal_those_of_fastavro(batch: tuple[Shape, list[Any]], prefix: bytes) -> None:
    shape, rows = batch
    schema = json.dumps(with_own_names(shape.avro))
    encoded = avro_encoder(schema, shape.arrow, "value").encode(pa.array(rows, shape.arrow), prefix)
    encoded.validate(full=True)
    expected = by_fastavro(schema, told(shape, rows))
    assert encoded.to_pylist() == [None if each is None else prefix + each for each in expected]


@settings(often, max_examples=max(AVRO_BATCHES // 3, 1))
@given(batches(), st.data())
def test_slices_are_encoded_like_copies(batch: tuple[Shape, list[Any]], data: st.DataObject) -> None:
    shape, rows = batch
    begin = data.draw(st.integers(0, len(rows)))
    encoder = avro_encoder(json.dumps(with_own_names(shape.avro)), shape.arrow, "value")
    whole = pa.array(rows, shape.arrow)
    assert encoder.encode(whole[begin:]).to_pylist() == encoder.encode(whole).to_pylist()[begin:]


@settings(often, max_examples=max(AVRO_BATCHES // 3, 1))
@given(records(shapes()), st.data())
def test_values_under_null_rows_are_not_written(shape: Shape, data: st.DataObject) -> None:
    rows = data.draw(st.lists(shape.values, min_size=1, max_size=5))
    hidden = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    masked = with_hidden(pa.array(rows, shape.arrow), hidden)
    nested = pa.StructArray.from_arrays([masked], fields=[pa.field("inner", shape.arrow)])
    schema = json.dumps(with_own_names({"type": "record", "name": "outer", "fields": [_nullable("inner", shape)]}))
    encoded = avro_encoder(schema, nested.type, "value").encode(nested)
    kept = [{"inner": None if gone else shape.told(row)} for row, gone in zip(rows, hidden, strict=True)]
    assert encoded.to_pylist() == by_fastavro(schema, kept)


def _nullable(name: str, shape: Shape) -> dict[str, Any]:
    return {"name": name, "type": [shape.avro, "null"]}


@settings(often, max_examples=max(AVRO_BATCHES // 3, 1))
@given(batches())
def test_derived_schemas_are_read_by_fastavro(batch: tuple[Shape, list[Any]]) -> None:
    """A payload that fastavro reads and writes again has the same bytes."""
    shape, rows = batch
    schema = derive_schema(shape.arrow, "value")
    encoded = avro_encoder(schema, shape.arrow, "value").encode(pa.array(rows, shape.arrow)).to_pylist()
    plain = json.dumps(_without_logical_types(json.loads(schema)))
    read = [None if payload is None else read_by_fastavro(plain, payload) for payload in encoded]
    assert by_fastavro(plain, read) == encoded


def _without_logical_types(avro: Any) -> Any:
    if isinstance(avro, list):
        return [_without_logical_types(each) for each in avro]
    if isinstance(avro, dict):
        return {name: _without_logical_types(each) for name, each in avro.items() if name != "logicalType"}
    return avro


def test_many_rows_of_all_lengths_equal_fastavro() -> None:
    """Rows of all lengths from 0 to those whose varint has more than three bytes, in one batch."""
    sizes = np.r_[0:200, 8190:8194, 1_048_570:1_048_580].tolist()
    rows = [{"text": "x" * size, "data": b"y" * (size % 15)} for size in sizes]
    kind = pa.struct([("text", pa.string()), ("data", pa.binary())])
    schema = derive_schema(kind, "value")
    assert avro_encoder(schema, kind, "value").encode(pa.array(rows, kind)).to_pylist() == by_fastavro(schema, rows)
