"""Fields of rows of which some are absent: the operations on pieces before they are joined; and the kinds of columns
for which Arrow has several types.

Called on the task's thread. ``absent`` is bool[n], True where a row has no value at this place (it, or a value that
contains it, is null), or None if every row has a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import BinaryColumn, Bools, Int64s
from kafka_sink.columns.gather import Piece, UInt64s, WordField, Words, join_rows
from kafka_sink.common.errors import SerializationError

Absent: TypeAlias = Bools | None
#: Arrow's units of time per second.
PER_SECOND: Final[Mapping[str, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_WORD_BYTES = 8
_DECIMAL_BYTES = 16


def is_text(kind: pa.DataType) -> bool:
    """Whether the rows are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether the rows are bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether the rows are lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def cell_of(cell: Any, kind: pa.DataType) -> Any:
    """*cell* of ``to_pylist`` of a column of *kind*, with maps as objects; pyarrow before 20 has them as pairs only.

    :raises SerializationError: if a map has a key twice.
    """
    if cell is None:
        return None
    if pa.types.is_map(kind):
        if len({key for key, _ in cell}) < len(cell):
            raise SerializationError("a map in it has a key twice")
        return {key: cell_of(item, kind.item_type) for key, item in cell}
    if pa.types.is_struct(kind):
        return {field.name: cell_of(cell[field.name], field.type) for field in kind}
    return [cell_of(item, kind.value_type) for item in cell] if is_list(kind) else cell


def nulls_of(array: pa.Array) -> Absent:
    """The mask of the rows of *array* that are null."""
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def either(left: Absent, right: Absent) -> Absent:
    """The mask of the rows that are absent in one of the two."""
    if left is None or right is None:
        return right if left is None else left
    return left | right


def numbers(array: pa.Array, width: type[np.generic]) -> NDArray[Any]:
    """The values of *array*, an array of numbers of *width*, without a copy if no row is null.

    A null row gets the value of another row: numbers of one size are encoded faster.
    """
    data = array.buffers()[1]
    dtype = np.dtype(width)
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    values = np.frombuffer(data, dtype, count=len(array), offset=array.offset * dtype.itemsize)
    nulls = nulls_of(array)
    return values if nulls is None else np.where(nulls, values[int(nulls.argmin())], values)


def sizes_of(pieces: Sequence[Piece]) -> Words:
    """The number of bytes of all *pieces* of each row."""
    of_all: int = 0
    varying: UInt64s | None = None
    for piece in pieces:
        if isinstance(piece, BinaryColumn):
            least, most, size = piece.min_length, piece.max_length, piece.lengths.view(np.uint64)
        else:
            least, most, size = piece.min_size, piece.max_size, np.asarray(piece.size, np.uint64)
        if least == most:
            of_all += most
        else:
            varying = size if varying is None else varying + size
    return of_all if varying is None else varying + np.uint64(of_all)


def optional_field(data: bytes, where: Bools) -> WordField:
    """*data*, up to eight bytes, in the rows of *where*."""
    there = where.astype(np.uint64)
    return WordField(there * np.uint64(int.from_bytes(data, "little")), there * np.uint64(len(data)), 0, len(data))


def after(first: Piece, pieces: Sequence[Piece]) -> list[Piece]:
    """*first*, then *pieces*; the first two become one field if they fit into one.

    A *first* that is not the same number of bytes in every row must be missing where the next piece is.
    """
    follower = pieces[0] if pieces else None
    if not isinstance(first, WordField) or not isinstance(follower, WordField):
        return [first, *pieces]
    if first.max_size + follower.max_size > _WORD_BYTES:
        return [first, *pieces]
    word = np.asarray(follower.word, np.uint64) << np.uint64(8 * first.max_size) | np.asarray(first.word, np.uint64)
    size = np.asarray(follower.size, np.uint64) + np.asarray(first.size, np.uint64)
    least, most = first.min_size + follower.min_size, first.max_size + follower.max_size
    both = WordField(_plain(word), _plain(size), least, most)
    return [both, *pieces[1:]]


def _plain(words: Any) -> Words:
    """One number for all rows as an int of Python, which has no cost per row."""
    return words if np.ndim(words) else int(words)


def only_present(pieces: Sequence[Piece], absent: Absent) -> list[Piece]:
    """*pieces* without the bytes of absent rows."""
    if absent is None:
        return list(pieces)
    # All bits set for a row that is present, none for an absent one.
    keep = absent.astype(np.uint64) - np.uint64(1)
    return [
        BinaryColumn.of(piece.buffer, piece.starts, np.where(absent, 0, piece.lengths), None, is_contiguous=False)
        if isinstance(piece, BinaryColumn)
        else _kept(piece, keep)
        for piece in pieces
    ]


def _kept(field: WordField, keep: UInt64s) -> WordField:
    word = 0 if isinstance(field.word, int) and field.word == 0 else keep & np.asarray(field.word, dtype=np.uint64)
    return WordField(word, keep & np.asarray(field.size, dtype=np.uint64), 0, field.max_size)


def decimal_halves(array: pa.Array) -> tuple[UInt64s, UInt64s]:
    """The low and the high 64 bits of each decimal, a two's complement number of 128 bits; 0 for null."""
    data = array.buffers()[1]
    rows = len(array)
    if data is None or rows == 0:
        return np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    pairs = np.frombuffer(data, np.uint64, count=2 * rows, offset=array.offset * _DECIMAL_BYTES).reshape(rows, 2)
    low, high = pairs[:, 0], pairs[:, 1]
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False).astype(np.uint64)
        return low * valid, high * valid
    return low, high


def joined(pieces: Sequence[Piece], rows: int) -> tuple[pa.Buffer, Int64s]:
    """All pieces of each row in one buffer, and int64[rows + 1]: the begin of each row, and the end."""
    if rows == 0 or not pieces:
        return pa.py_buffer(b""), np.zeros(rows + 1, dtype=np.int64)
    return join_rows(pieces, rows)
