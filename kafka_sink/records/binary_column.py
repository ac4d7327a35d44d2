"""A column of byte strings as numpy sees it: where each row starts in one shared buffer, and how long it is.

Made by the Spark task (or any caller of ``send_columns``) from what Arrow hands over, and read by the hash and the
encoder on the same thread. It must never copy row data: reordering or slicing a column moves starts and lengths only,
and the bytes themselves are moved once, by the encoder.

Source: https://arrow.apache.org/docs/format/Columnar.html (variable-size binary layout).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.common.errors import SerializationError

Bytes: TypeAlias = NDArray[np.uint8]
Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


class BinaryColumn:
    """n rows of bytes, any of which may be null. Immutable.

    ``starts`` int32[n] or int64[n] into ``data``; ``lengths`` int64[n], 0 for null; ``null_mask`` bool[n] with True
    for null, or None when no row is; ``min_length`` and ``max_length`` bound the lengths (a part of a column inherits
    its bounds).
    """

    __slots__ = ("buffer", "data", "lengths", "max_length", "min_length", "null_mask", "starts")

    def __init__(
        self,
        buffer: pa.Buffer,
        data: Bytes,
        starts: NDArray[Any],
        lengths: Int64s,
        null_mask: Bools | None,
        min_length: int,
        max_length: int,
    ) -> None:
        self.buffer = buffer
        self.data = data
        self.starts = starts
        self.lengths = lengths
        self.null_mask = null_mask
        self.min_length = min_length
        self.max_length = max_length

    @classmethod
    def from_arrow(cls, array: pa.Array) -> BinaryColumn:
        """The rows of *array*: any Arrow type that stands for text or bytes (strings are taken as they lie, unchecked).

        Types whose rows do not lie in one buffer (views, dictionaries, fixed-size binary, null) are converted first.

        :raises SerializationError: the type is not text or bytes.
        """
        array = _as_offsets_layout(array)
        width = np.dtype(np.int64 if _has_wide_offsets(array.type) else np.int32)
        rows = len(array)
        validity, offsets_buffer, buffer = array.buffers()
        if rows == 0 or offsets_buffer is None:
            offsets = np.zeros(rows + 1, dtype=width)
        else:
            offsets = np.frombuffer(offsets_buffer, width, count=rows + 1, offset=array.offset * width.itemsize)
        if buffer is None:
            buffer = pa.py_buffer(b"")
        null_mask = None
        if validity is not None and array.null_count:
            null_mask = array.is_null().to_numpy(zero_copy_only=False)
        return cls.of(buffer, offsets[:-1], np.subtract(offsets[1:], offsets[:-1], dtype=np.int64), null_mask)

    @classmethod
    def of(
        cls, buffer: pa.Buffer, starts: NDArray[Any], lengths: Int64s, null_mask: Bools | None = None
    ) -> BinaryColumn:
        """Rows of *buffer*; what *lengths* says of null rows does not count."""
        if null_mask is not None:
            lengths = np.where(null_mask, 0, lengths)
        shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        return cls(buffer, np.frombuffer(buffer, np.uint8), starts, lengths, null_mask, shortest, longest)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def null_count(self) -> int:
        return 0 if self.null_mask is None else int(np.count_nonzero(self.null_mask))

    def take(self, indices: NDArray[Any]) -> BinaryColumn:
        """The rows at *indices*, in that order."""
        fixed = self.min_length == self.max_length
        return BinaryColumn(
            self.buffer,
            self.data,
            self.starts[indices],
            self.lengths[: len(indices)] if fixed and len(indices) <= len(self) else self.lengths[indices],
            None if self.null_mask is None else self.null_mask[indices],
            self.min_length,
            self.max_length,
        )

    def slice(self, start: int, length: int) -> BinaryColumn:
        """*length* rows from row *start* on."""
        rows = slice(start, start + length)
        return BinaryColumn(
            self.buffer,
            self.data,
            self.starts[rows],
            self.lengths[rows],
            None if self.null_mask is None else self.null_mask[rows],
            self.min_length,
            self.max_length,
        )

    def without_first(self, count: int) -> BinaryColumn:
        """Every row without its first *count* bytes.

        :raises ValueError: some row has no byte left.
        """
        lengths = self.lengths - count
        if len(lengths) and int(lengths.min()) <= 0:
            raise ValueError(f"a row is not longer than {count} bytes")
        shortest = max(self.min_length - count, 1)
        return BinaryColumn(
            self.buffer, self.data, self.starts + count, lengths, None, shortest, self.max_length - count
        )

    def value(self, row: int) -> bytes | None:
        """The bytes of one row: for messages and for code that asks for a few rows, not for loops."""
        if self.null_mask is not None and self.null_mask[row]:
            return None
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()

    def windows(self, width: int) -> Bytes:
        """The first *width* bytes from each row's start, uint8[n, width]; what lies past a row's end is arbitrary."""
        data = self.data
        if len(data) < width:
            data = np.concatenate((data, np.zeros(width - len(data), dtype=np.uint8)))
        last = len(data) - width
        every = _sliding(data, width)
        if not len(self) or int(self.starts.max()) <= last:
            found = every[self.starts]
        else:
            # Rows so near the end that a window would pass it: they are read from a padded copy of the last bytes.
            found = every[np.minimum(self.starts, last)]
            padded = np.concatenate((data[last:], np.zeros(width, dtype=np.uint8)))
            near_end = np.flatnonzero(self.starts > last)
            found[near_end] = _sliding(padded, width)[self.starts[near_end] - last]
        return np.ndarray((len(self), width), np.uint8, found)


def _sliding(data: Bytes, width: int) -> NDArray[np.void]:
    """Every run of *width* bytes as one item, overlapping, so that a gather copies whole windows."""
    return np.ndarray((len(data) - width + 1,), np.dtype((np.void, width)), data, strides=(1,))


def _has_wide_offsets(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind) or pa.types.is_large_string(kind))


def _as_offsets_layout(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _as_offsets_layout(array.dictionary_decode())
    if pa.types.is_binary(kind) or pa.types.is_string(kind) or _has_wide_offsets(kind):
        return array
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_null(kind):
        return array.cast(pa.binary())
    raise SerializationError(f"keys and values must be text or bytes, got an Arrow column of type {kind}")
