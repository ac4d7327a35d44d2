"""JSON of the smallest bigint, of numbers in a schema that no column can have, and of times under null structs."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.json.column import JsonEncoder
from tests.support.arrow_masks import with_hidden

LEAST = -(1 << 63)


@pytest.mark.parametrize(
    "keywords",
    [
        {"enum": [LEAST, 1]},
        {"const": LEAST},
        {"not": {"const": LEAST}},
        {"exclusiveMinimum": LEAST},
        {"minimum": LEAST + 1},
        {"minimum": LEAST},
        {"enum": [10**400, 0]},
    ],
    ids=str,
)
def test_bounds_of_bigint_are_judged_as_by_jsonschema(keywords: dict[str, Any]) -> None:
    rows = [LEAST, LEAST + 1, 0, 1, -LEAST - 1]
    schema = {"properties": {"a": keywords}}
    array = pa.array([{"a": row} for row in rows], pa.struct([("a", pa.int64())]))
    encoder = JsonEncoder(array.type, "value", json.loads(json.dumps(schema)))
    try:
        encoder.encode(array)
        refused: list[int] = []
    except RowSerializationError as error:
        refused = list(error.rows)
    judge = Draft202012Validator(schema)
    assert refused == [index for index, row in enumerate(rows) if not judge.is_valid({"a": row})]


def test_times_under_null_structs_may_be_anything() -> None:
    times = pa.array([1, -5, 10**15], pa.int64()).view(pa.time64("us"))
    inner = with_hidden(pa.StructArray.from_arrays([times], ["t"]), [False, True, True])
    rows = pa.StructArray.from_arrays([inner], ["s"])
    assert JsonEncoder(rows.type, "value").encode(rows).to_pylist() == [b'{"s":{"t":"00:00:00.000001"}}', b"{}", b"{}"]


def test_decimals_under_null_structs_may_be_anything() -> None:
    kind = pa.decimal128(5, 0)
    data = b"".join(number.to_bytes(16, "little", signed=True) for number in (6, 1 << 100))
    numbers = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(data)])
    inner = with_hidden(pa.StructArray.from_arrays([numbers], ["d"]), [False, True])
    rows = pa.StructArray.from_arrays([inner], ["s"])
    schema = {"properties": {"s": {"properties": {"d": {"multipleOf": 3}}}}}
    assert JsonEncoder(rows.type, "value", schema).encode(rows).to_pylist() == [b'{"s":{"d":6}}', b"{}"]
