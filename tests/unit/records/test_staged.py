"""Staged records equal the output of the plain encoder for each record."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import Header
from kafka_sink.records.reference import header_entries, write_record
from kafka_sink.records.vectorized import StagedRecords
from tests.support.amounts import examples
from tests.support.cases import with_each

Row = tuple[int, bytes | None, bytes | None, list[Header]]

CELLS = st.none() | st.binary(max_size=80) | st.integers(60, 70).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CELLS), max_size=3)


def rows(headers: st.SearchStrategy[list[Header]], count: int) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(st.integers(0, 2**42), CELLS, CELLS, headers), min_size=count, max_size=count)


def stage(staged: StagedRecords, batch: list[Row]) -> None:
    for row, (stamp, key, value, headers) in enumerate(batch, len(staged.values)):
        staged.timestamps.append(stamp)
        staged.keys.append(key)
        staged.values.append(value)
        if headers:
            staged.headers[row] = len(headers), header_entries(headers)


def plain(batch: list[Row], first: int, base: int) -> tuple[bytes, int]:
    """The bytes of the records, and the size of the largest one."""
    expected = bytearray()
    largest = 0
    for delta, (stamp, key, value, headers) in enumerate(batch, first):
        start = len(expected)
        write_record(expected, delta, stamp - base, key, value, headers)
        largest = max(largest, len(expected) - start)
    return bytes(expected), largest


def encoded(staged: StagedRecords, base: int) -> tuple[bytes, int]:
    data, largest = staged.encode(base)
    return bytes(data), largest


@settings(deadline=None, max_examples=examples(240))
@given(
    st.sampled_from([1, 23, 24, 70]).flatmap(lambda count: rows(st.just([]), count) | rows(HEADERS, count)),
    st.integers(0, 70) | st.integers(8180, 8200),
    st.integers(0, 2**42),
)
def test_every_byte_is_that_of_the_plain_encoder(batch: list[Row], first: int, base: int) -> None:
    staged = StagedRecords(first)
    stage(staged, batch)
    assert encoded(staged, base) == plain(batch, first, base)


# The state after an interrupt between two of the lists, of a few records and of more.
@with_each("count", [0, 1, 23, 24, 29, 30])
def test_what_is_cut_off_is_gone(count: int) -> None:
    batch: list[Row] = [(1000 + row, b"k%d" % row, b"v" * row, [("h", b"%d" % row)]) for row in range(30)]
    staged = StagedRecords(5)
    stage(staged, batch)
    staged.timestamps.append(9000)
    staged.keys.append(b"not counted")
    staged.headers[30] = 1, header_entries([("not", b"counted")])
    staged.cut(count)
    assert encoded(staged, 1000) == plain(batch[:count], 5, 1000)
    more: list[Row] = [(2000, None, b"behind", [])]
    stage(staged, more)
    assert encoded(staged, 1000) == plain(batch[:count] + more, 5, 1000)


def test_lists_that_are_not_in_step_are_an_error() -> None:
    staged = StagedRecords(0)
    stage(staged, [(1000, b"k", b"v", [])])
    staged.keys.append(b"one more")
    with pytest.raises(ValueError, match="longer"):
        staged.encode(1000)


def test_header_keys_are_text_and_values_bytes() -> None:
    with pytest.raises(SerializationError, match="header 1: the key must be text, got bytes"):
        header_entries([("a", b""), (b"b", b"")])  # type: ignore[list-item]
    with pytest.raises(SerializationError, match=r"header 0 \(a\): the value must be bytes or None, got str"):
        header_entries([("a", "text")])  # type: ignore[list-item]
