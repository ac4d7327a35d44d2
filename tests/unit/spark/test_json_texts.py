"""Dead letters are JSON, whatever types and values the rows have."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.spark.task.dead_letters import json_column
from tests.support.cases import with_each

SPAN = timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=500_000)
SHOWN = "INTERVAL '1 02:03:04.5' DAY TO SECOND"


def loaded(column: pa.Array) -> list[Any]:
    return [None if text is None else json.loads(text) for text in json_column(column, "value").to_pylist()]


@pytest.mark.behaviour("Dead letters", "A dead letter is JSON, whatever types its row has")
@with_each(
    ("kind", "values", "expected"),
    [
        (pa.duration("us"), [SPAN, None, -timedelta(seconds=1)], [SHOWN, None, "INTERVAL '-0 00:00:01' DAY TO SECOND"]),
        (
            pa.struct([("id", pa.int64()), ("wait", pa.duration("us")), ("at", pa.timestamp("us", "UTC"))]),
            [{"id": 1, "wait": SPAN, "at": datetime(2026, 1, 1, tzinfo=UTC)}, None, {"id": 2}],
            [{"id": 1, "wait": SHOWN, "at": "2026-01-01T00:00:00.000Z"}, None, {"id": 2}],
        ),
        (pa.list_(pa.duration("us")), [[SPAN, None], [], None], [[SHOWN, None], [], None]),
        (
            pa.map_(pa.string(), pa.list_(pa.struct([("wait", pa.duration("us")), ("price", pa.decimal128(5, 2))]))),
            [[("a", [{"wait": SPAN, "price": Decimal("1.50")}]), ('b"', [])], None],
            [{"a": [{"wait": SHOWN, "price": 1.5}], 'b"': []}, None],
        ),
        (pa.map_(pa.date32(), pa.int32()), [[(datetime(2026, 1, 2).date(), 7)]], [{"2026-01-02": 7}]),
        (pa.map_(pa.int32(), pa.duration("us")), [[(7, SPAN)]], [{"7": SHOWN}]),
        (pa.time64("us"), [datetime(2026, 1, 1, 3, 4).time()], ["03:04:00"]),
    ],
)
def test_every_type_is_json(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    column = pa.array(values, kind)
    assert loaded(column) == expected
    assert loaded(pa.concat_arrays([column, column]).slice(1, len(values))) == [*expected[1:], expected[0]]


def test_bytes_that_are_no_text_are_json() -> None:
    text = pa.array([b"a", b"\xff\xfe", None], pa.binary()).view(pa.string())
    rows = pa.StructArray.from_arrays([pa.array([1, 2, 3]), text], names=["id", "text"])
    assert loaded(rows) == [{"id": 1, "text": "a"}, {"id": 2, "text": "��"}, {"id": 3}]


def test_moments_that_python_does_not_have_are_json() -> None:
    rows = pa.array([2**62], pa.int64()).view(pa.timestamp("us", "UTC"))
    assert loaded(pa.StructArray.from_arrays([rows, pa.array([SPAN])], names=["at", "wait"]))[0]["wait"] == SHOWN
