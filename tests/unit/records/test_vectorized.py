from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.columns import gather
from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk
from kafka_sink.records.reference import write_record
from kafka_sink.records.vectorized import content_sizes, encode_records, partition_order, sizes_from_content
from tests.support.cases import with_each


def column(rows: list[bytes | None]) -> BinaryColumn:
    return BinaryColumn.from_arrow(pa.array(rows, pa.binary()))


def plain(keys: list[bytes | None] | None, values: list[bytes | None], first: int, timestamp_delta: int) -> list[bytes]:
    found = []
    for row, value in enumerate(values):
        target = bytearray()
        write_record(target, first + row, timestamp_delta, keys[row] if keys else None, value)
        found.append(bytes(target))
    return found


# Key lengths around the capacities of a word, a view and a varint.
@with_each("key_length", [0, 1, 7, 8, 9, 11, 12, 13, 16, 63, 64, 8191, 8192])
@with_each("value_length", [0, 8, 12, 13, 100])
@with_each("first", [0, 60, 8188, (1 << 20) - 3])
def test_rows_of_one_length(key_length: int, value_length: int, first: int) -> None:
    keys: list[bytes | None] = [bytes([row]) * key_length for row in range(8)]
    values: list[bytes | None] = [bytes([200 - row]) * value_length for row in range(8)]
    expected = plain(keys, values, first, -3)
    found = encode_records(ColumnChunk(column(values), column(keys)), np.arange(first, first + 8), -3)
    assert bytes(found.data) == b"".join(expected)
    assert [bytes(found.data[start:end]) for start, end in pairwise(found.offsets.tolist())] == expected


# The bytes of a row are in its view up to twelve, and in a separate buffer from thirteen on.
@with_each("shortest", [11, 12, 13])
def test_rows_that_a_view_just_holds_beside_longer_ones(shortest: int) -> None:
    values: list[bytes | None] = [b"a" * shortest, b"b" * 40, b"c" * shortest, b"d" * (shortest + 1)]
    keys = values[::-1]
    found = encode_records(ColumnChunk(column(values), column(keys)), np.arange(4), 0)
    assert bytes(found.data) == b"".join(plain(keys, values, 0, 0))


def test_no_rows() -> None:
    found = encode_records(ColumnChunk(column([]), column([])), np.arange(0), 0)
    assert (bytes(found.data), found.offsets.tolist()) == (b"", [0])
    assert sizes_from_content(content_sizes(ColumnChunk(column([]))), np.arange(0), np.arange(0)).tolist() == []


def test_result_is_plain_bytes() -> None:
    found = encode_records(ColumnChunk(column([b"\xff" * 20])), np.arange(1), 0)
    assert (found.data.format, found.data.itemsize, found.data.contiguous) == ("B", 1, True)


def test_sizes() -> None:
    chunk = ColumnChunk(column([b"a", None, b"c" * 100]), column([None, b"", b"k"]))
    assert content_sizes(chunk).tolist() == [1 + 2 + 1, 1 + 1 + 1, 2 + 102 + 1]
    deltas, times = np.array([0, 64, 8192]), np.array([-1, 1 << 30, 0])
    sizes = sizes_from_content(content_sizes(chunk), deltas, times)
    assert sizes.tolist() == np.diff(encode_records(chunk, deltas, times).offsets).tolist()


def test_rows_of_one_length_have_sizes_too() -> None:
    assert content_sizes(ColumnChunk(column([b"ab", b"cd"]))).tolist() == [5, 5]


def test_buffers_over_two_gibibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With windows of 128 bytes instead: rows in any window and across windows are found."""
    monkeypatch.setattr(gather, "WINDOW_BITS", 6)
    values: list[bytes | None] = [b"%02d" % row * 25 for row in range(30)]
    found = encode_records(ColumnChunk(column(values), column(values)), np.arange(30), 0)
    assert bytes(found.data) == b"".join(plain(values, values, 0, 0))


@with_each("partitions", [[0] * 5, [3, 3, 7, 9], [], [2]])
def test_rows_that_are_grouped_already_stay(partitions: list[int]) -> None:
    order, runs, starts = partition_order(np.array(partitions, dtype=np.int32))
    assert order is None
    assert runs.tolist() == sorted(set(partitions))
    assert [partitions[start] for start in starts[:-1]] == runs.tolist()
    assert starts[-1] == len(partitions)


@with_each("highest", [255, 256, 65_535, 65_536])
def test_partition_order_holds_at_bounds_of_narrow_integers(highest: int) -> None:
    order, runs, starts = partition_order(np.array([highest, 0, highest], dtype=np.int32))
    assert order is not None and order.tolist() == [1, 0, 2]
    assert (runs.dtype, starts.dtype) == (np.int32, np.int64)
    assert (runs.tolist(), starts.tolist()) == ([0, highest], [0, 1, 3])
