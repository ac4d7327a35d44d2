"""The positions of a column's rows in its buffer, and the bytes that are read there, up to the last one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.columns.binary_column import MAX_ROW_BYTES, BinaryColumn, is_utf8
from tests.support.cases import with_each

#: From this size on, the data of a column is not copied for reads beyond its end.
MUCH = 1 << 14
#: Bytes without short repetitions nearby.
NOISE = np.random.default_rng(7).integers(0, 256, 2 * MUCH, dtype=np.uint8).tobytes()


def column(data: bytes, starts: list[int], lengths: list[int], *, is_contiguous: bool = False) -> BinaryColumn:
    return BinaryColumn.of(
        pa.py_buffer(data), np.array(starts, np.int64), np.array(lengths, np.int64), None, is_contiguous=is_contiguous
    )


def require_windows(rows: BinaryColumn, width: int, at: int = 0) -> None:
    found = rows.windows(width, at)
    assert found.shape == (len(rows), width)
    for row, window in enumerate(found):
        # The bytes after the end of the row are arbitrary.
        whole = (rows.value(row) or b"")[at : at + width]
        assert window[: len(whole)].tobytes() == whole, (row, width, at)


def is_view(rows: BinaryColumn, width: int, at: int = 0) -> bool:
    return bool(np.shares_memory(rows.windows(width, at), rows.data))


@with_each("offsets", [None, pa.py_buffer(b""), pa.py_buffer(bytes(4))])
def test_arrays_of_no_rows_need_no_offsets(offsets: pa.Buffer | None) -> None:
    found = BinaryColumn.from_arrow(pa.Array.from_buffers(pa.binary(), 0, [None, offsets, pa.py_buffer(b"")]))
    assert (len(found), found.min_length, found.max_length, found.null_count) == (0, 0, 0, 0)


def test_only_rows_without_nulls_are_known_to_be_contiguous() -> None:
    assert BinaryColumn.from_arrow(pa.array([b"a", b"bc"])).is_contiguous
    hidden = [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"abc")]
    assert not BinaryColumn.from_arrow(pa.Array.from_buffers(pa.binary(), 2, hidden)).is_contiguous


def test_a_row_may_have_a_gibibyte() -> None:
    lengths = np.array([3, 1 << 30])
    found = BinaryColumn.of(pa.py_buffer(b"not really"), np.array([0, 3]), lengths, None, is_contiguous=True)
    assert (found.min_length, found.max_length, MAX_ROW_BYTES) == (3, 1 << 30, 1 << 30)
    assert found.lengths is lengths


# One byte less than the bytes after the rows, as many, and one more.
@with_each("at", [0, 1, 4])
@with_each("behind", range(16))
@with_each("front", [0, 5])
def test_windows_of_rows_of_one_length_are_not_copied(at: int, behind: int, front: int) -> None:
    data = NOISE[: front + 3 * 4 + behind]
    rows = column(data, [front, front + 4, front + 8], [4, 4, 4], is_contiguous=True)
    require_windows(rows, 8, at)
    assert is_view(rows, 8, at) == (at + 4 <= behind)
    require_windows(rows.slice(1, 1), 8, at)
    assert not is_view(rows.take(np.array([0, 1, 2])), 8, at)


# Many bytes follow, so that only the rows themselves determine how they are read.
@with_each("width", [1, 8, 12])
@with_each("is_contiguous", [True, False])
@with_each("rows", [[5, 1, 12, 0, 3], [0, 4, 4], [4, 0], [12, 12, 12]])
def test_windows_of_any_rows(width: int, is_contiguous: bool, rows: list[int]) -> None:
    starts = np.cumsum(rows) - rows + 7
    whole = column(NOISE[:200], starts.tolist(), rows, is_contiguous=is_contiguous)
    require_windows(whole, width)
    require_windows(whole.take(np.arange(len(rows))[::-1]), width)


@with_each("is_contiguous", [True, False])
@with_each("size", [0, 3, MUCH])
def test_windows_of_no_rows(is_contiguous: bool, size: int) -> None:
    assert column(NOISE[:size], [], [], is_contiguous=is_contiguous).windows(4).shape == (0, 4)


# A window ends before the end of the data, at it, or beyond it; small data is copied, larger data is not.
@with_each("size", [1, 30, MUCH - 1, MUCH, MUCH + 1, 2 * MUCH])
@with_each("width", [1, 4, 12])
def test_windows_round_the_end_of_the_data(size: int, width: int) -> None:
    places = [place for place in range(size - 2 * width - 1, size + 1) if place >= 0]
    rows = column(NOISE[:size], places, [size - place for place in places])
    require_windows(rows, width)
    for stop in range(1, len(places)):
        require_windows(rows.slice(0, stop), width)
    with_room = [place for place in places if place + 1 <= size]
    require_windows(column(NOISE[:size], with_room, [size - place for place in with_room]), width, at=1)


def test_windows_copy_no_large_buffer() -> None:
    rows = column(bytes(1 << 22), [0, 9, (1 << 22) - 3], [9, 1, 3])
    tracemalloc.start()
    try:
        rows.windows(8)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 16


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_null_is_utf8_beside_what_is_not(kind: pa.DataType) -> None:
    assert is_utf8(pa.array([b"a", None, b"\xff", b"", "ß".encode()], kind)).tolist() == [True, True, False, True, True]
    assert is_utf8(pa.array([b"a", None], kind)).tolist() == [True, True]
