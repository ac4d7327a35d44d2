"""The text form by which ``kafkalite verify`` compares values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from kafka_sink.cli.comparing import Comparable, canonical
from kafka_sink.common.errors import SerializationError
from tests.support.cases import with_each

NOON = dt.datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=dt.UTC)
EXACT = Comparable("json", "value", None)


@with_each(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": [{"x": None}]}, {"a": [{}]}),
        (1.0, 1),
        ("2026-01-31T12:00:00.500000+00:00", "2026-01-31T12:00:00.5Z"),
        ("2026-01-31T13:00:00.5+01:00", "2026-01-31T12:00:00.5"),
        ("2026-01-31T12:00:00.000", "2026-01-31T12:00:00Z"),
    ],
)
def test_equal_values_have_the_same_text(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)


@with_each(
    ("one", "other"),
    [
        ([1, None], [1]),
        (None, {}),
        (True, 1),
        ("1", 1),
        (1.5, 1),
        (2.0**53, 2**53 + 1),
        ("2026-01-31T12:00:00", "2026-01-31 12:00:00"),
        ("2026-01-31T12:00:00+01:00", "2026-01-31T12:00:00Z"),
        ("12:00:00.50", "12:00:00.5"),
        ("2026-02-31T12:00:00+01:00", "2026-02-31T11:00:00"),
        ("\ud800", "\ud801"),
    ],
)
def test_other_values_have_another_text(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)


def test_value_nested_too_deeply_is_refused() -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    with pytest.raises(SerializationError, match="nested too deeply"):
        canonical(value)


def test_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"the value cannot be compared: .*4300 digits"):
        EXACT.of_payload(b"9" * 4_301)


def test_cells_of_files_are_compared_like_payloads() -> None:
    cell = {"at": NOON, "price": Decimal("1.50"), "raw": b"\xff", "note": None}
    payload = b'\0\0\0\0\x01{"price": "1.50", "raw": {"base64": "/w=="}, "at": "2026-01-31T12:00:00.5+00:00"}'
    assert EXACT.of_cell(cell) == EXACT.of_cell(payload) == EXACT.of_payload(payload)
    assert EXACT.of_cell('{"a": 1.0}') == EXACT.of_payload(b'{"a":1}')
    assert EXACT.of_payload(None) is EXACT.of_cell(None) is None
    assert EXACT.of_payload(b"null") is not None, "a tombstone is not a value that is null"


def test_cells_without_a_format_are_bytes() -> None:
    plain = Comparable(None, "value", None)
    assert [plain.of_cell(cell) for cell in (b"\xff", "é", 7, {"base64": "/w=="}, None)] == [
        b"\xff",
        "é".encode(),
        b"7",
        b"\xff",
        None,
    ]
    for cell in (True, 0.5, {"a": 1}):
        with pytest.raises(SerializationError, match="field value: expected text"):
            plain.of_cell(cell)
