"""Staged records are what the plain encoder makes of them one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import Header
from kafka_sink.records.reference import header_entries, write_record
from kafka_sink.records.vectorized import StagedRecords
from tests.support.amounts import examples

Row = tuple[int, bytes | None, bytes | None, list[Header]]

CELLS = st.none() | st.binary(max_size=80) | st.integers(60, 70).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CELLS), max_size=3)


def rows(headers: st.SearchStrategy[list[Header]], count: int) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(st.integers(0, 2**42), CELLS, CELLS, headers), min_size=count, max_size=count)


def encode(batch: list[Row], first: int, base: int) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
    staged = StagedRecords(first)
    for row, (stamp, key, value, headers) in enumerate(batch):
        staged.timestamps.append(stamp)
        staged.keys.append(key)
        staged.values.append(value)
        if headers:
            staged.headers[row] = len(headers), header_entries(headers)
    expected = bytearray()
    largest = 0
    for delta, (stamp, key, value, headers) in enumerate(batch, first):
        start = len(expected)
        write_record(expected, delta, stamp - base, key, value, headers)
        largest = max(largest, len(expected) - start)
    data, found_largest = staged.encode(base)
    return (bytes(data), found_largest), (bytes(expected), largest)


@settings(deadline=None, max_examples=examples(240))
@given(
    st.sampled_from([1, 23, 24, 70]).flatmap(lambda count: rows(st.just([]), count) | rows(HEADERS, count)),
    st.integers(0, 70) | st.integers(8180, 8200),
    st.integers(0, 2**42),
)
def test_every_byte_is_that_of_the_plain_encoder(batch: list[Row], first: int, base: int) -> None:
    found, expected = encode(batch, first, base)
    assert found == expected


def test_header_keys_are_text_and_values_bytes() -> None:
    with pytest.raises(SerializationError, match="header 1: the key must be text, got bytes"):
        header_entries([("a", b""), (b"b", b"")])  # type: ignore[list-item]
    with pytest.raises(SerializationError, match=r"header 0 \(a\): the value must be bytes or None, got str"):
        header_entries([("a", "text")])  # type: ignore[list-item]
