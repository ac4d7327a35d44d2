"""The pieces of rows and their views, compared with one row at a time in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.columns import gather
from kafka_sink.columns.binary_column import BinaryColumn
from kafka_sink.columns.gather import (
    Piece,
    WordField,
    column_pieces,
    constant_field,
    constant_fields,
    join_rows,
    unsigned_varint_fields,
    varint_fields,
)
from tests.support.cases import with_each

NOISE = np.random.default_rng(11).integers(0, 256, 4096, dtype=np.uint8).tobytes()
#: The edges of a varint's size: the first number with one more byte, and the number before it.
UNSIGNED = sorted(
    {0, 1, (1 << 64) - 1, *(edge - less for size in range(1, 10) for edge in [1 << 7 * size] for less in (0, 1))}
)
SIGNED = sorted({(number >> 1) ^ -(number & 1) for number in UNSIGNED for number in (number, number ^ 1)})


def varint(number: int) -> bytes:
    """The varint of *number* without a sign, seven bits per byte."""
    groups = [number >> shift & 0x7F for shift in range(0, 70, 7)]
    while len(groups) > 1 and groups[-1] == 0:
        groups.pop()
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def cells(piece: Piece, rows: int) -> list[bytes]:
    """The bytes that *piece* adds to each row; its bounds must hold."""
    if isinstance(piece, BinaryColumn):
        return [piece.value(row) or b"" for row in range(rows)]
    words, sizes = (np.broadcast_to(np.asarray(each, np.uint64), rows).tolist() for each in (piece.word, piece.size))
    assert piece.min_size <= min(sizes) and max(sizes) <= piece.max_size
    assert all(word >> 8 * size == 0 for word, size in zip(words, sizes, strict=True))
    return [word.to_bytes(8, "little")[:size] for word, size in zip(words, sizes, strict=True)]


def joined(pieces: Sequence[Piece], rows: int) -> list[bytes]:
    return [b"".join(row) for row in zip(*(cells(piece, rows) for piece in pieces), strict=True)]


def require_tight(fields: Sequence[WordField], rows: int) -> None:
    """Require that the bounds of the sizes are reached, and that a size shared by all rows is one number."""
    for field in fields:
        sizes = [len(cell) for cell in cells(field, rows)]
        assert (field.min_size, field.max_size) == (min(sizes), max(sizes))
        assert isinstance(field.size, int) == (min(sizes) == max(sizes))


def ranges(edges: Sequence[int]) -> Iterator[list[int]]:
    """Values between any two of *edges*."""
    for at, low in enumerate(edges):
        for high in edges[at + 1 :]:
            yield [high, low, (low + high) // 2, high]


def test_varints_of_any_range() -> None:
    for values in ranges(SIGNED):
        is_mixed = min(values) < 0 <= max(values)
        # For mixed signs the smallest size is taken to be that of zero, so a zero is added to reach it.
        values += [0] * is_mixed
        fields = varint_fields(np.array(values, np.int64))
        assert joined(fields, len(values)) == [varint(zigzag(value)) for value in values]
        require_tight(fields, len(values))


def test_varints_of_both_signs_without_a_small_one() -> None:
    values = [-70, 70, 9000, -1 << 40]
    assert joined(varint_fields(np.array(values, np.int64)), 4) == [varint(zigzag(value)) for value in values]


def test_unsigned_varints_of_any_range() -> None:
    for values in ranges(UNSIGNED):
        fields = unsigned_varint_fields(np.array(values, np.uint64))
        assert joined(fields, len(values)) == [varint(value) for value in values]
        require_tight(fields, len(values))


def test_one_number_for_all_rows_is_a_constant() -> None:
    for value in SIGNED:
        wanted = constant_fields(varint(zigzag(value)))
        assert varint_fields(value) == wanted
        assert varint_fields(np.array([value] * 3, np.int64)) == wanted
    for number in UNSIGNED:
        wanted = constant_fields(varint(number))
        assert unsigned_varint_fields(number) == wanted
        assert unsigned_varint_fields(np.array([number] * 3, np.uint64)) == wanted


@with_each("longest", range(15))
@with_each("shortest", range(15))
def test_columns_are_fields_up_to_twelve_bytes(shortest: int, longest: int) -> None:
    if shortest > longest:
        return
    lengths = np.array([longest, shortest, (shortest + longest) // 2, longest], np.int64)
    # With other bytes before, between and after the rows.
    starts = np.array([3, 40, 80, 120])
    column = BinaryColumn.of(pa.py_buffer(NOISE), starts, lengths, None, is_contiguous=False)
    pieces = column_pieces(column)
    if longest > 12:
        assert pieces == [column]
        return
    fields = [piece for piece in pieces if isinstance(piece, WordField)]
    assert len(fields) == len(pieces) == (longest + 7) // 8
    require_tight(fields, 4)
    assert joined(pieces, 4) == ([column.value(row) for row in range(4)] if longest else [])


class Views:
    """The views and their buffers that :func:`join_rows` passes to Arrow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory = b""
        self.buffers: list[pa.Buffer] = []
        array = SimpleNamespace(from_buffers=self._from_buffers)
        monkeypatch.setattr(gather, "pa", SimpleNamespace(**{**vars(pa), "Array": array}))

    def _from_buffers(self, kind: pa.DataType, count: int, buffers: Sequence[Any], **others: Any) -> pa.Array:
        _, memory, *self.buffers = buffers
        self.memory = memory.to_pybytes()
        assert len(self.memory) == 16 * count
        return pa.Array.from_buffers(kind, count, buffers, **others)

    def cells(self) -> list[bytes]:
        """The bytes of each view, read by Arrow's format: none is outside its buffer."""
        found = []
        for at in range(0, len(self.memory), 16):
            view = self.memory[at : at + 16]
            length, number, offset = (
                int.from_bytes(view[start : start + 4], "little", signed=True) for start in (0, 8, 12)
            )
            if length <= 12:
                found.append(view[4 : 4 + length])
            else:
                assert 0 <= offset <= offset + length <= self.buffers[number].size
                found.append(self.buffers[number][offset : offset + length].to_pybytes())
        return found


def require_joined(views: Views, pieces: Sequence[Piece], rows: int, closing: bytes = b"") -> int:
    """Check the joined rows, and return the number of views per row."""
    data, bounds = join_rows(pieces, rows, closing=closing)
    wanted = joined(pieces, rows)
    assert data.to_pybytes() == b"".join(views.cells()) == b"".join([*wanted, closing])
    assert bounds.tolist() == [0, *np.cumsum([len(row) for row in wanted]).tolist()]
    return len(views.memory) // 16 // rows


def words(sizes: Sequence[int], seed: int) -> WordField:
    """A field whose rows have *sizes*."""
    numbers = [int.from_bytes(NOISE[seed + row * 8 :][:size], "little") for row, size in enumerate(sizes)]
    size = sizes[0] if len(set(sizes)) == 1 else np.array(sizes, np.uint64)
    return WordField(np.array(numbers, np.uint64), size, min(sizes), max(sizes))


@with_each("closing", [NOISE[:size] for size in range(9)])
@with_each("rows", [1, 3])
def test_what_closes_follows_the_last_row(closing: bytes, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        require_joined(Views(patch), [constant_field(b"ab"), words([3] * rows, 0)], rows, closing)


def test_fields_of_any_sizes_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    views = Views(monkeypatch)
    random = np.random.default_rng(3)
    for seed in range(400):
        pieces: list[Piece] = []
        for _ in range(random.integers(1, 7)):
            least, most = sorted(random.integers(0, 9, 2).tolist())
            kind = random.integers(4)
            if kind == 0:
                pieces.append(constant_field(NOISE[seed : seed + most]))
            elif kind == 1:
                pieces.append(constant_field(bytes(most)))
            elif kind == 2:
                pieces.append(words([most] * 4, seed))
            else:
                pieces.append(words([least, most, *random.integers(least, most + 1, 2).tolist()], seed))
        require_joined(views, pieces, 4)


# The first four bytes of a view are its length, so the fifth of these bytes is the lowest in the view's upper half.
@with_each("data", [b"\0\0\0\0\1", b"\0\0\0\0\0\0\0\1", b"\1"])
def test_a_single_bit_beside_other_fields_stays(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        views = Views(patch)
        for field in (words([4, 4], 0), words([2, 4], 0), constant_field(b"\2\4")):
            require_joined(views, [constant_field(data), field], 2)
            require_joined(views, [field, constant_field(data)], 2)


# The largest sizes of the fields, and the number of views; 13 stands for a column, which has its own view.
@with_each(
    ("sizes", "count"),
    [
        ([8, 4], 1),
        ([8, 5], 2),
        ([1] * 12, 1),
        ([1] * 13, 2),
        ([4, 8, 4], 2),
        ([5, 8, 4, 8], 3),
        ([4, 13, 8], 3),
        ([13, 4, 8], 2),
        ([13, 13], 2),
        ([0, 13, 0], 3),
    ],
)
def test_a_view_holds_up_to_twelve_bytes_of_fields(
    sizes: list[int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, lengths = np.arange(5) * 50, np.full(5, 30)
    column = BinaryColumn.of(pa.py_buffer(NOISE), starts, lengths, None, is_contiguous=False)
    pieces = [column if size > 12 else words([size] * 5, size) for size in sizes]
    with monkeypatch.context() as patch:
        assert require_joined(Views(patch), pieces, 5) == count


def test_short_rows_of_a_column_are_in_their_views(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([*range(15), 40, 12])
    column = BinaryColumn.of(pa.py_buffer(NOISE), np.arange(17) * 41, lengths, None, is_contiguous=False)
    assert require_joined(Views(monkeypatch), [column], 17) == 1
    assert require_joined(Views(monkeypatch), [column.take(np.array([15, 14, 13]))], 3) == 1


# A window has 64 bytes instead of a GiB: one byte less than two or three windows, as many, and one more.
@with_each("size", [63, 64, 65, 127, 128, 129, 191, 192, 193, 500])
def test_buffers_are_windows_from_two_of_them_on(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gather, "WINDOW_BITS", 6)
        views = Views(patch)
        starts = np.array([start for start in range(size - 12) for _ in range(2)])
        lengths = np.minimum(np.where(np.arange(len(starts)) % 2, 64, 13), size - starts)
        column = BinaryColumn.of(pa.py_buffer(NOISE[:size]), starts, lengths, None, is_contiguous=False)
        other = BinaryColumn.of(pa.py_buffer(NOISE[1000 : 1000 + size]), starts, lengths, None, is_contiguous=False)
        require_joined(views, [column, other], len(starts))
        assert [buffer.size < 2 * 64 for buffer in views.buffers] == [True] * len(views.buffers)
        assert len(views.buffers) == (2 if size < 2 * 64 else 2 * -(-size // 64))


def test_rows_round_two_gibibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows lie in a buffer of which only their pages are touched."""
    memory = np.zeros((1 << 31) + 5000, np.uint8)
    starts = np.array([0, (1 << 30) - 50, 1 << 30, (1 << 31) - 101, (1 << 31) - 50, 1 << 31, len(memory) - 100])
    for row, start in enumerate(starts):
        memory[start : start + 100] = row + 1
    column = BinaryColumn.of(pa.py_buffer(memory), starts, np.full(len(starts), 100), None, is_contiguous=False)
    views = Views(monkeypatch)
    require_joined(views, [column], len(starts))
    assert max(buffer.size for buffer in views.buffers) == (1 << 31) - 1
