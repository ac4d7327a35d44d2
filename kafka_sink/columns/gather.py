"""Joins pieces of many rows in one buffer; this is the only place where the encoder copies row data.

The vectorised encoder calls it on the task's thread. A 16-byte Arrow binary view describes every piece of every row;
the view either contains up to 12 bytes or refers to a buffer. Arrow's cast from views to plain binary then copies all
pieces, in row order, in one pass of native code. So one pass reorders rows, joins their pieces and copies their bytes.
This module never loops over rows in Python, and never exposes the views, which are filled only as far as the cast reads
them.

Source: https://arrow.apache.org/docs/format/Columnar.html (variable-size binary view layout).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import BinaryColumn, Int64s, bounds
from kafka_sink.columns.varint import encode_unsigned_varint, encode_varint, unsigned_varint_size, varint_size

UInt64s: TypeAlias = NDArray[np.uint64]
# One number for all rows, or one number per row.
Words: TypeAlias = UInt64s | int
#: The maximum number of bytes inside a view; the format requires rows of up to this length to be inside.
INLINE_BYTES: Final = 12
_WORD_BYTES: Final = 8
_VIEW_BYTES: Final = 16
# The length field of a view precedes its bytes.
_LENGTH_BYTES: Final = 4
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
# The offset of a view is a signed 32-bit number. A larger buffer is split into windows of 2 GiB that start every GiB,
# so that each row of at most 1 GiB is inside one of them.
WINDOW_BITS: Final = 30
_KEPT_BYTES: Final = 16 * 1024 * 1024
# _MASKS[n] keeps the first n bytes of a little-endian word.
_MASKS: Final = np.array([_MASK >> (8 * (_WORD_BYTES - count)) for count in range(_WORD_BYTES + 1)], dtype=np.uint64)
# Nearly every length and offset delta is small, so its varint is looked up instead of computed.
_TWO_BYTES_FROM: Final = 1 << 6
_SMALL_VARINTS: Final = np.array(
    [int.from_bytes(encode_varint(value), "little") for value in range(1 << 13)], dtype=np.uint64
)


def zigzag_array(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Zig-zag of each value: small numbers of either sign become small unsigned ones."""
    return ((values << np.int64(1)) ^ (values >> np.int64(63))).view(np.uint64)


def varint_sizes(values: NDArray[np.int64] | int) -> NDArray[np.int64] | int:
    """The encoded size of each value in bytes, int64[n]; one number if all are equal (0 if there are none)."""
    if isinstance(values, int):
        return varint_size(values)
    if len(values) == 0:
        return 0
    low, high = bounds(values)
    if low < 0:
        # With zig-zag, -1 has the size of 0, -2 the size of 1, and so on.
        values = values ^ (values >> np.int64(63))
        low, high = bounds(values)
    smallest, largest = varint_size(low), varint_size(high)
    if smallest == largest:
        return smallest
    sizes = np.full(len(values), smallest, dtype=np.int64)
    for size in range(smallest, largest):
        sizes += values >= 1 << (7 * size - 1)
    return sizes


class WordField(NamedTuple):
    """Up to eight bytes of each row as a little-endian number, and how many of them are used (the others are zero)."""

    word: Words
    size: Words
    min_size: int
    max_size: int


Piece: TypeAlias = WordField | BinaryColumn


def constant_field(data: bytes) -> WordField:
    """The same up to eight bytes for every row."""
    return WordField(int.from_bytes(data, "little"), len(data), len(data), len(data))


def constant_fields(data: bytes) -> list[WordField]:
    """The same bytes, of any number, for every row."""
    return [constant_field(data[at : at + _WORD_BYTES]) for at in range(0, len(data), _WORD_BYTES)]


def varint_fields(values: Int64s | int) -> list[WordField]:
    """Each value as a zig-zag varint: one field, or two where some value takes more than eight bytes."""
    if isinstance(values, int):
        return constant_fields(encode_varint(values))
    low, high = bounds(values)
    if low == high:
        return varint_fields(low)
    sizes = (varint_size(low), varint_size(high))
    max_size = max(sizes)
    # Between a negative and a positive bound there may be a zero.
    min_size = min(sizes) if (low < 0) == (high < 0) else 1
    if low >= 0 and max_size <= 2:
        word = _SMALL_VARINTS.take(values, mode="clip")
        size = max_size if min_size == max_size else (values >= _TWO_BYTES_FROM) + np.uint64(1)
        return [WordField(word, size, min_size, max_size)]
    words, size = _varint_words(zigzag_array(values), min_size, max_size)
    return _split(words, size, min_size, max_size)


def unsigned_varint_fields(values: Words) -> list[WordField]:
    """Each number as a varint without zig-zag, in fields as those of :func:`varint_fields`."""
    if isinstance(values, int):
        return constant_fields(encode_unsigned_varint(values))
    low, high = bounds(values)
    if low == high:
        return unsigned_varint_fields(low)
    min_size, max_size = unsigned_varint_size(low), unsigned_varint_size(high)
    words, size = _varint_words(values, min_size, max_size)
    return _split(words, size, min_size, max_size)


def _varint_words(raw: UInt64s, min_size: int, max_size: int) -> tuple[list[UInt64s], Words]:
    """The varint of each unsigned number as words of eight bytes, and the number of bytes."""
    words = [raw & np.uint64(0x7F)]
    size: Words = min_size
    for index in range(1, max_size):
        rest = raw >> np.uint64(7 * index)
        last_bit = np.uint64(8 * ((index - 1) % _WORD_BYTES) + 7)
        if index < min_size:
            words[-1] |= np.uint64(1) << last_bit
        else:
            goes_on: UInt64s = (rest != 0).astype(np.uint64)
            words[-1] |= goes_on << last_bit
            size = _add(goes_on, size)
        at = np.uint64(8 * (index % _WORD_BYTES))
        if at == 0:
            words.append(np.zeros_like(raw))
        words[-1] |= (rest & np.uint64(0x7F)) << at
    return words, size


def _split(words: Sequence[UInt64s], size: Words, min_size: int, max_size: int) -> list[WordField]:
    """The fields of *words*, eight bytes each, *size* bytes in total."""
    if len(words) == 1:
        return [WordField(words[0], size, min_size, max_size)]
    fields = []
    for index, word in enumerate(words):
        least, most = (min(max(bound - index * _WORD_BYTES, 0), _WORD_BYTES) for bound in (min_size, max_size))
        if least == most:
            part: Words = most
        else:
            part = np.clip(np.asarray(size, dtype=np.int64) - index * _WORD_BYTES, 0, _WORD_BYTES).astype(np.uint64)
        fields.append(WordField(word, part, least, most))
    return fields


def column_pieces(column: BinaryColumn) -> list[Piece]:
    """The bytes of the rows: as fields if all rows are so short that views must contain them, else as the column
    itself."""
    longest = column.max_length
    if longest > INLINE_BYTES:
        return [column]
    if longest == 0:
        return []
    is_fixed = column.min_length == longest
    width = _WORD_BYTES if longest <= _WORD_BYTES else 2 * _WORD_BYTES
    words = column.windows(width).view("<u8")
    masked = []
    for index in range(width // _WORD_BYTES):
        word = words[:, index]
        start = index * _WORD_BYTES
        if is_fixed:
            masked.append(word & _MASKS[min(longest - start, _WORD_BYTES)])
        else:
            counted = column.lengths - start if start else column.lengths
            masked.append(word & _MASKS.take(counted, mode="clip"))
    size = longest if is_fixed else column.lengths.view(np.uint64)
    return list(_split(masked, size, column.min_length, longest))


def join_rows(pieces: Sequence[Piece], rows: int, *, closing: bytes = b"") -> tuple[pa.Buffer, Int64s]:
    """Join all pieces of row 0, then all pieces of row 1, and so on, in one new buffer; *closing*, up to eight bytes,
    follows.

    :param rows: at least one.
    :returns: the buffer, and int64[rows + 1]: the start of each row, and the end of the last one.
    """
    views = _group(pieces)
    count = rows * len(views) + 1
    # From Arrow's pool, which keeps its pages: faulting in new pages would cost as much as filling them.
    memory = pa.allocate_buffer(count * _VIEW_BYTES)
    flat = np.frombuffer(memory, np.uint64).reshape(count, 2)
    table = flat[:-1].reshape(rows, len(views), 2)
    last = int.from_bytes(closing, "little") << 8 * _LENGTH_BYTES | len(closing)
    flat[-1] = last & _MASK, last >> 8 * _WORD_BYTES
    buffers: list[pa.Buffer] = []
    for index, view in enumerate(views):
        if isinstance(view, BinaryColumn):
            _point_into(view, len(buffers), table[:, index])
            buffers += _buffer_windows(view.buffer)
        else:
            _carry(view, table[:, index])
    array = pa.Array.from_buffers(pa.binary_view(), count, [None, memory, *buffers], null_count=0)
    joined = array.cast(pa.large_binary())
    _, offsets, data = joined.buffers()
    return data, np.frombuffer(offsets, np.int64, count=count)[:: len(views)]


def _group(pieces: Sequence[Piece]) -> list[list[WordField] | BinaryColumn]:
    """Group adjacent fields that fit into one view: fewer views are less work per row.

    Groups are filled from the last piece backwards, because fields after a field of variable size cost more to place.
    So the short first view usually ends with the offset delta.
    """
    views: list[list[WordField] | BinaryColumn] = []
    room = 0
    for piece in reversed(pieces):
        if isinstance(piece, BinaryColumn):
            views.append(piece)
            room = 0
        elif views and isinstance(views[-1], list) and piece.max_size <= room:
            views[-1].append(piece)
            room -= piece.max_size
        else:
            views.append([piece])
            room = INLINE_BYTES - piece.max_size
    return [view if isinstance(view, BinaryColumn) else view[::-1] for view in reversed(views)]


def _carry(fields: Sequence[WordField], views: UInt64s) -> None:
    """Fill *views*, uint64[n, 2], with views that contain *fields*.

    A view is treated as one 128-bit number: the total length in its first four bytes, then the fields, each at the end
    of the previous one.
    """
    low: Words = 0
    high: Words = 0
    length: Words = 0
    nearest = farthest = _LENGTH_BYTES
    for field in fields:
        farthest += field.max_size
        # Zero bytes need not be written.
        if not (isinstance(field.word, int) and field.word == 0):
            position = _add(length, _LENGTH_BYTES)
            if nearest < _WORD_BYTES:
                low = _or(low, _shift_left(field.word, position))
            if farthest > _WORD_BYTES:
                high = _or(high, _shift_into_high(field.word, position))
        length = _add(length, field.size)
        nearest += field.min_size
    views[:, 0] = _or(low, length)
    views[:, 1] = high


def _or(left: Words, right: Words) -> Words:
    if isinstance(left, int) and isinstance(right, int):
        return left | right
    if isinstance(left, int) and left == 0:
        return right
    both: UInt64s = np.bitwise_or(_wide(left), _wide(right))
    return both


def _add(left: Words, right: Words) -> Words:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return _wide(left) + _wide(right)


def _wide(word: Words) -> UInt64s:
    return np.asarray(word, dtype=np.uint64)


def _shift_left(word: Words, position: Words) -> Words:
    """The low 64 bits of *word* shifted left by *position* bytes; numpy yields zero for shifts by 64 or more."""
    if isinstance(position, int):
        return (word << 8 * position) & _MASK if isinstance(word, int) else word << np.uint64(8 * position)
    return _wide(word) << (position << np.uint64(3))


def _shift_into_high(word: Words, position: Words) -> Words:
    """The high 64 bits of *word* shifted left by *position* bytes, 4 to 16, in a 128-bit number."""
    if isinstance(position, int):
        if isinstance(word, int):
            return (word << 8 * position) >> 64
        up = 8 * position - 64
        return word << np.uint64(up) if up >= 0 else word >> np.uint64(-up)
    bits = position << np.uint64(3)
    wide = _wide(word)
    # One of the two shifts is by less than 64 bits; the count of the other one has wrapped round, so it yields zero.
    return _or(wide >> (np.uint64(64) - bits), wide << (bits - np.uint64(64)))


def _point_into(column: BinaryColumn, first_buffer: int, views: UInt64s) -> None:
    """Fill *views*, uint64[n, 2], with views of the rows of *column*, whose buffers are numbered from *first_buffer*
    on."""
    lengths = column.lengths.view(np.uint64)
    starts = column.starts.astype(np.uint64)
    views[:, 0] = lengths
    if column.buffer.size < 2 << WINDOW_BITS:
        views[:, 1] = (starts << np.uint64(32)) | np.uint64(first_buffer)
    else:
        window = np.uint64((1 << WINDOW_BITS) - 1)
        numbers = (starts >> np.uint64(WINDOW_BITS)) + np.uint64(first_buffer)
        views[:, 1] = ((starts & window) << np.uint64(32)) | numbers
    if column.min_length <= INLINE_BYTES:
        short = np.flatnonzero(column.lengths <= INLINE_BYTES)
        words = column.take(short).windows(INLINE_BYTES).view("<u4").astype(np.uint64)
        views[short, 0] = lengths[short] | (words[:, 0] << np.uint64(32))
        views[short, 1] = words[:, 1] | (words[:, 2] << np.uint64(32))


def _buffer_windows(buffer: pa.Buffer) -> list[pa.Buffer]:
    limit = 2 << WINDOW_BITS
    if buffer.size < limit:
        return [buffer]
    starts = range(0, buffer.size, 1 << WINDOW_BITS)
    return [buffer.slice(start, min(limit - 1, buffer.size - start)) for start in starts]


# Make the C library keep the pages of freed arrays: glibc returns the top of its heap to the system whenever 128 KiB
# are free there. The encoder's arrays are about that large and live for microseconds; faulting their pages in again
# takes up to half of the encoding's time. When a block with its own mapping is freed, as this one is at once, glibc
# raises that limit to twice the block's size. With other C libraries this has no effect.
np.empty(_KEPT_BYTES, dtype=np.uint8)
