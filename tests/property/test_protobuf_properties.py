"""The columnar Protobuf encoder against Google's library, message by message: equal bytes for all types and for all
layouts of the rows in Arrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_sink.formats.payloads import FieldsEncoder
from kafka_sink.formats.protobuf.parsing import parse_schema
from tests.support.amounts import PROTOBUF_BATCHES
from tests.support.arrow_masks import with_hidden
from tests.support.encoders import protobuf_encoder
from tests.support.protobuf_shapes import Shape, by_google, declared, has_long_map, messages, written_again

pytestmark = [
    pytest.mark.behaviour(
        "Protobuf", "Payloads are those of Google's library, byte by byte, for rows of random messages"
    ),
    # The number of examples of the long run takes about an hour.
    pytest.mark.timeout(7200),
]

often = settings(
    max_examples=PROTOBUF_BATCHES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Shape, list[Any]]:
    shape = draw(messages())
    return shape, draw(st.lists(st.none() | shape.values, max_size=5))


def encoder_of(schema: str, kind: pa.DataType) -> FieldsEncoder:
    return protobuf_encoder(parse_schema(schema), kind, "value")


def in_order(encoded: pa.Array, schema: str, shape: Shape, rows: list[Any], begin: int = 0) -> list[bytes | None]:
    """The payloads of *encoded* with the entries of maps in Google's order; all other bytes stay."""
    found: list[bytes | None] = encoded.to_pylist()
    for index, payload in enumerate(found):
        if payload is not None and has_long_map(shape, rows[index]):
            again = payload[:begin] + written_again(schema, payload[begin:])
            assert len(again) == len(payload)
            found[index] = again
    return found


@often
@given(batches(), st.binary(max_size=9))
def test_payloads_equal_those_of_googles_library(batch: tuple[Shape, list[Any]], prefix: bytes) -> None:
    shape, rows = batch
    schema = declared(shape)
    encoded = encoder_of(schema, shape.arrow).encode(pa.array(rows, shape.arrow), prefix)
    encoded.validate(full=True)
    expected = [None if each is None else prefix + each for each in by_google(schema, shape, rows)]
    assert in_order(encoded, schema, shape, rows, len(prefix)) == expected


@settings(often, max_examples=max(PROTOBUF_BATCHES // 3, 1))
@given(batches(), st.data())
def test_slices_are_encoded_like_copies(batch: tuple[Shape, list[Any]], data: st.DataObject) -> None:
    shape, rows = batch
    begin = data.draw(st.integers(0, len(rows)))
    encoder = encoder_of(declared(shape), shape.arrow)
    whole = pa.array(rows, shape.arrow)
    assert encoder.encode(whole[begin:]).to_pylist() == encoder.encode(whole).to_pylist()[begin:]


@settings(often, max_examples=max(PROTOBUF_BATCHES // 3, 1))
@given(messages(), st.data())
def test_values_under_null_rows_are_not_written(shape: Shape, data: st.DataObject) -> None:
    rows = data.draw(st.lists(shape.values, min_size=1, max_size=5))
    hidden = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    masked = with_hidden(pa.array(rows, shape.arrow), hidden)
    schema = declared(shape)
    kept = [None if gone else row for row, gone in zip(rows, hidden, strict=True)]
    encoded = encoder_of(schema, shape.arrow).encode(masked)
    assert in_order(encoded, schema, shape, kept) == by_google(schema, shape, kept)


def test_many_rows_of_all_lengths_equal_googles_library() -> None:
    """Rows of all lengths from 0 to those whose varint has more than three bytes, in one batch."""
    from google.protobuf.wrappers_pb2 import StringValue

    sizes = np.r_[0:300, 16_380:16_388, 2_097_140:2_097_160].tolist()
    rows = [{"value": "x" * size} for size in sizes]
    kind = pa.struct([("value", pa.string())])
    schema = 'syntax = "proto3"; message M { string value = 1; }'
    expected = [StringValue(**row).SerializeToString() for row in rows]
    assert encoder_of(schema, kind).encode(pa.array(rows, kind)).to_pylist() == expected
