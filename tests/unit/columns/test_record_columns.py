from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk, HeadersColumn, length_values
from kafka_sink.common.errors import RowSerializationError, SerializationError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = [b"one", None, b"", b"a longer row", b"\xff\xfe"]
TEXTS = ["one", None, "", "a longer row", "ß"]


def rows_of(column: BinaryColumn) -> list[bytes | None]:
    return [column.value(row) for row in range(len(column))]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())]
)
def test_bytes_of_any_layout(kind: pa.DataType) -> None:
    column = BinaryColumn.from_arrow(pa.array(ROWS, pa.binary()).cast(kind))
    assert rows_of(column) == ROWS
    assert column.lengths.tolist() == [3, 0, 0, 12, 2]
    assert (column.min_length, column.max_length, column.null_count) == (0, 12, 1)
    assert column.null_mask is not None
    assert column.null_mask.tolist() == [False, True, False, False, False]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_of_any_layout(kind: pa.DataType) -> None:
    column = BinaryColumn.from_arrow(pa.array(TEXTS, pa.string()).cast(kind))
    assert rows_of(column) == [None if text is None else text.encode() for text in TEXTS]


def test_fixed_size_and_null_types() -> None:
    assert rows_of(BinaryColumn.from_arrow(pa.array([b"ab", None], pa.binary(2)))) == [b"ab", None]
    assert rows_of(BinaryColumn.from_arrow(pa.nulls(3))) == [None, None, None]


@pytest.mark.parametrize("kind", [pa.int32(), pa.list_(pa.binary()), pa.struct([("a", pa.binary())])])
def test_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(SerializationError, match=r"must be text or bytes, got an Arrow column of type"):
        BinaryColumn.from_arrow(pa.nulls(2, kind))


def test_text_that_is_not_utf8_is_taken_as_it_lies() -> None:
    array = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    assert rows_of(BinaryColumn.from_arrow(array)) == [b"\xff\xfe"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_parts_of_arrow_arrays(kind: pa.DataType) -> None:
    array = pa.array(ROWS, kind)
    for start in range(len(ROWS)):
        for stop in range(start, len(ROWS) + 1):
            assert rows_of(BinaryColumn.from_arrow(array[start:stop])) == ROWS[start:stop]


def test_rows_that_no_record_can_hold() -> None:
    starts, lengths = np.array([0, 3]), np.array([3, (1 << 30) + 1])
    with pytest.raises(
        SerializationError, match="row 1 has 1073741825 bytes, but a key or value may have at most 1073741824"
    ):
        BinaryColumn.of(pa.py_buffer(b"not really a GiB"), starts, lengths, None, is_contiguous=True)


def test_no_nulls_no_mask() -> None:
    assert BinaryColumn.from_arrow(pa.array(ROWS, pa.binary())[2:]).null_mask is None
    assert BinaryColumn.from_arrow(pa.array([], pa.binary())).null_count == 0


def test_bytes_below_a_null_do_not_count() -> None:
    array = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 5], np.int32)), pa.py_buffer(b"junk!")]
    )
    column = BinaryColumn.from_arrow(array)
    assert rows_of(column) == [None, b"k!"]
    assert column.lengths.tolist() == [0, 2]


def test_take_and_slice_move_no_bytes() -> None:
    column = BinaryColumn.from_arrow(pa.array(ROWS, pa.binary()))
    taken = column.take(np.array([4, 3, 3, 1, 0, 2, 4]))
    assert rows_of(taken) == [ROWS[row] for row in (4, 3, 3, 1, 0, 2, 4)]
    assert rows_of(taken.slice(1, 3)) == [ROWS[row] for row in (3, 3, 1)]
    assert rows_of(taken.slice(7, 0)) == []
    assert taken.data is column.data


def test_take_of_rows_of_one_length() -> None:
    column = BinaryColumn.from_arrow(pa.array([b"ab", b"cd"]))
    assert rows_of(column.take(np.array([1]))) == [b"cd"]
    assert rows_of(column.take(np.array([1, 0, 1]))) == [b"cd", b"ab", b"cd"]


@pytest.mark.parametrize("width", [1, 4, 8, 12, 40])
@pytest.mark.parametrize("rows", [[b"abcd", b"efgh", b"ijkl"], [b"", b"a", b"abc", b""], [b"ab"], [b""]])
def test_windows(width: int, rows: list[bytes]) -> None:
    column = BinaryColumn.from_arrow(pa.array([b"front", *rows, b"back"], pa.binary())[1:-1])
    for part in (column, column.take(np.arange(len(rows))[::-1])):
        found = part.windows(width)
        assert found.shape == (len(rows), width)
        for row, window in enumerate(found):
            whole = part.value(row) or b""
            assert window[: len(whole)].tobytes() == whole[:width]


def test_windows_at_the_very_end_of_the_data() -> None:
    column = BinaryColumn.from_arrow(pa.array([b"0123456789", b"ab", b"c", b""]))
    found = column.windows(4)
    assert [bytes(found[1][:2]), bytes(found[2][:1])] == [b"ab", b"c"]
    assert column.slice(0, 2).windows(4, at=1)[0].tobytes() == b"1234"


def test_lengths_are_one_number_or_one_of_each_row() -> None:
    same = length_values(BinaryColumn.from_arrow(pa.array([b"ab", b"cd"])))
    assert isinstance(same, int) and same == 2
    for rows, wanted in (([b"ab", b"c"], [2, 1]), ([b"ab", None, b""], [2, -1, 0]), ([None, None], [-1, -1])):
        assert np.asarray(length_values(BinaryColumn.from_arrow(pa.array(rows, pa.binary())))).tolist() == wanted


def test_headers() -> None:
    rows = [None, [], [{"key": "a", "value": b"1"}, {"key": "ß", "value": None}], [{"key": "", "value": b""}]]
    column = HeadersColumn.from_arrow(pa.array(rows, HEADERS))
    assert column.counts.tolist() == [0, 0, 2, 1]
    assert rows_of(column.entries) == [b"", b"", b"\x02a\x021\x04\xc3\x9f\x01", b"\x00\x00"]
    taken = column.take(np.array([3, 2])).slice(1, 1)
    assert taken.counts.tolist() == [2]
    assert rows_of(taken.entries) == [b"\x02a\x021\x04\xc3\x9f\x01"]


def test_headers_of_parts_and_large_lists() -> None:
    rows = [[{"key": f"k{row}", "value": None}] * row for row in range(5)]
    kind = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    column = HeadersColumn.from_arrow(pa.array(rows, kind)[2:4])
    assert column.counts.tolist() == [2, 3]
    assert rows_of(column.entries) == [b"\x04k2\x01" * 2, b"\x04k3\x01" * 3]


def test_no_header_at_all() -> None:
    column = HeadersColumn.from_arrow(pa.array([None, []], HEADERS))
    assert column.counts.tolist() == [0, 0]
    assert rows_of(column.entries) == [b"", b""]


def test_entries_below_a_null_list_do_not_count() -> None:
    entries = pa.array([{"key": None, "value": b"x"}, {"key": "b", "value": b"y"}], HEADERS.value_type)
    array = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries, mask=pa.array([True, False]))
    column = HeadersColumn.from_arrow(array)
    assert column.counts.tolist() == [0, 1]
    assert rows_of(column.entries) == [b"", b"\x02b\x02y"]


def test_headers_of_a_part_are_all_that_is_encoded() -> None:
    rows = [[{"key": f"k{row}", "value": b"x"}] * (row % 3) for row in range(6)]
    for start in range(6):
        for stop in range(start, 7):
            column = HeadersColumn.from_arrow(pa.array(rows, HEADERS)[start:stop])
            wanted = [b"\x04k%d\x02x" % row * (row % 3) for row in range(6)][start:stop]
            assert rows_of(column.entries) == wanted
            assert column.entries.lengths.tolist() == [len(entries) for entries in wanted]
            assert column.entries.data.tobytes() == b"".join(wanted)


def test_entries_of_rows_are_not_known_to_be_contiguous() -> None:
    """The entries below a null list lie between those of the rows."""
    entries = pa.array([{"key": "a", "value": b"x"}, {"key": "b", "value": b"y"}], HEADERS.value_type)
    array = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries, mask=pa.array([True, False]))
    column = HeadersColumn.from_arrow(array)
    assert (column.entries.starts.tolist(), column.entries.lengths.tolist()) == ([0, 4], [0, 4])
    assert not column.entries.is_contiguous


def test_headers_outside_a_part_may_be_anything() -> None:
    array = pa.array([[None], [{"key": "a", "value": b"1"}], [{"key": None, "value": b""}]], HEADERS)
    assert HeadersColumn.from_arrow(array[1:2]).counts.tolist() == [1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([{"key": "a", "value": b""}, {"key": None, "value": b""}], r"row 2 has a header \(1\) that has a null key"),
        ([None], r"row 2 has a header \(0\) that is null"),
    ],
)
def test_headers_without_key_name_their_row(row: list[object], message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        HeadersColumn.from_arrow(pa.array([None, [{"key": "b", "value": None}], row], HEADERS))
    with pytest.raises(SerializationError, match=message.replace("row 2", "row 0")):
        HeadersColumn.from_arrow(pa.array([row], HEADERS))


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_keys_of_headers_are_utf8(text: pa.DataType) -> None:
    keys = pa.array([b"a", b"h\xff", "ü".encode(), b"\xc3", None], pa.large_binary()).cast(pa.binary())
    raw = pa.Array.from_buffers(pa.string(), 5, keys.buffers()).cast(text)
    items = pa.StructArray.from_arrays([raw, pa.array([b""] * 5)], ["key", "value"])
    array = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), items)
    with pytest.raises(
        RowSerializationError, match=r"has a header \(0\) that has a key that is not valid UTF-8"
    ) as refused:
        HeadersColumn.from_arrow(array)
    assert list(refused.value.rows) == [1, 2]
    assert HeadersColumn.from_arrow(array[:1]).counts.tolist() == [1]


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.string()), pa.list_(pa.struct([("key", pa.string())]))])
def test_headers_of_another_type(kind: pa.DataType) -> None:
    with pytest.raises(SerializationError, match=r"headers must be list<struct<key: string, value: binary>>, got"):
        HeadersColumn.from_arrow(pa.nulls(1, kind))


def test_chunks_take_and_slice_all_columns() -> None:
    chunk = ColumnChunk(
        value=BinaryColumn.from_arrow(pa.array([b"v0", b"v1", b"v2"])),
        key=BinaryColumn.from_arrow(pa.array([b"k0", b"k1", b"k2"])),
        headers=HeadersColumn.from_arrow(pa.array([None, [{"key": "h", "value": None}], None], HEADERS)),
        timestamps=np.array([10, 11, 12]),
    )
    part = chunk.take(np.array([2, 1, 0])).slice(1, 2)
    assert part.num_rows == 2
    assert rows_of(part.value) == [b"v1", b"v0"]
    assert part.key is not None
    assert rows_of(part.key) == [b"k1", b"k0"]
    assert part.headers is not None
    assert part.headers.counts.tolist() == [1, 0]
    assert part.timestamps is not None
    assert part.timestamps.tolist() == [11, 10]
    bare = ColumnChunk(chunk.value).take(np.array([0])).slice(0, 1)
    assert (bare.key, bare.headers, bare.timestamps) == (None, None, None)
