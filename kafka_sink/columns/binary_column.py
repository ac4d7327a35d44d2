"""A column of byte strings for numpy: the start of each row in one shared buffer, and its length.

The Spark task (or any caller of ``send_columns``) creates it from Arrow data; the hash and the encoder read it on the
same thread. It never copies row data: reordering or slicing a column only moves starts and lengths, and the encoder
copies the bytes once.

Source: https://arrow.apache.org/docs/format/Columnar.html (variable-size binary layout).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.common.errors import RowSerializationError, SerializationError
from kafka_sink.common.requirements import require

# Every module that reads or writes columns imports this one.
require("numpy", np.__version__)
require("pyarrow", pa.__version__)

#: A record must be smaller than 2 GiB, and only rows of at most 1 GiB can be addressed in buffers of any size.
MAX_ROW_BYTES: Final = 1 << 30

#: Less data is copied with padding after it, so that no window ends beyond it.
_FEW_BYTES: Final = 1 << 14

#: The types whose rows are in one buffer: their offsets, by the id of the type.
_OFFSETS: Final[Mapping[int, np.dtype[Any]]] = {
    **{kind.id: np.dtype(np.int32) for kind in (pa.binary(), pa.string())},
    **{kind.id: np.dtype(np.int64) for kind in (pa.large_binary(), pa.large_string())},
}

Bytes: TypeAlias = NDArray[np.uint8]
Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


class BinaryColumn:
    """n rows of bytes, any of which may be null. Immutable.

    ``starts`` is int32[n] or int64[n], the positions in ``data``; ``lengths`` is int64[n], 0 for null. ``null_mask`` is
    bool[n] with True for null, or None if no row is null. ``min_length`` and ``max_length`` are bounds of the lengths
    (a slice inherits them). ``is_contiguous`` is True if each row is known to begin at the end of the previous one.
    """

    __slots__ = ("buffer", "data", "is_contiguous", "lengths", "max_length", "min_length", "null_mask", "starts")

    def __init__(
        self,
        buffer: pa.Buffer,
        data: Bytes,
        starts: NDArray[Any],
        lengths: Int64s,
        null_mask: Bools | None,
        min_length: int,
        max_length: int,
        is_contiguous: bool,
    ) -> None:
        self.buffer = buffer
        self.data = data
        self.starts = starts
        self.lengths = lengths
        self.null_mask = null_mask
        self.min_length = min_length
        self.max_length = max_length
        self.is_contiguous = is_contiguous

    @classmethod
    def from_arrow(cls, array: pa.Array) -> BinaryColumn:
        """The rows of *array*, of any Arrow type for text or bytes (strings are not validated).

        Types whose rows are not in one buffer (views, dictionaries, fixed-size binary, null) are converted first.

        :raises SerializationError: if the type is not text or bytes.
        :raises RowSerializationError: if a row has more than 1 GiB.
        """
        width = _OFFSETS.get(array.type.id)
        if width is None:
            return cls.from_arrow(_with_offsets(array))
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
        # In the width of the offsets, because these passes are faster with narrower numbers.
        lengths = offsets[1:] - offsets[:-1]
        if null_mask is not None:
            # In Arrow a null row may have bytes; they are ignored.
            lengths = np.where(null_mask, width.type(0), lengths)
        return cls.of(buffer, offsets[:-1], lengths, null_mask, is_contiguous=null_mask is None)

    @classmethod
    def of(
        cls,
        buffer: pa.Buffer,
        starts: NDArray[Any],
        lengths: NDArray[Any],
        null_mask: Bools | None,
        *,
        is_contiguous: bool,
    ) -> BinaryColumn:
        """Rows of *buffer*; null rows must have length 0.

        :raises RowSerializationError: if a row has more than 1 GiB.
        """
        shortest, longest = bounds(lengths) if len(lengths) else (0, 0)
        if longest > MAX_ROW_BYTES:
            raise RowSerializationError.about(
                np.flatnonzero(lengths > MAX_ROW_BYTES).tolist(),
                lambda row: f"has {lengths[row]} bytes, but a key or value may have at most {MAX_ROW_BYTES}",
            )
        return cls(
            buffer,
            np.frombuffer(buffer, np.uint8),
            starts,
            lengths.astype(np.int64, copy=False),
            null_mask,
            shortest,
            longest,
            is_contiguous,
        )

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
            is_contiguous=False,
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
            self.is_contiguous,
        )

    def value(self, row: int) -> bytes | None:
        """The bytes of one row, for messages and for code that reads a few rows; do not use it in loops over rows."""
        if self.null_mask is not None and self.null_mask[row]:
            return None
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()

    def windows(self, width: int, at: int = 0) -> Bytes:
        """*width* bytes of each row from its byte *at* on, uint8[n, width]; bytes past the end of a row are arbitrary.

        No row may be shorter than *at*.
        """
        data, rows = self.data, len(self)
        if rows and self.is_contiguous and self.min_length == self.max_length:
            first, step = int(self.starts[0]) + at, self.max_length
            if first + (rows - 1) * step + width <= len(data):
                return np.ndarray((rows, width), np.uint8, data, offset=first, strides=(step, 1))
        if len(data) < _FEW_BYTES:
            data = np.concatenate((data, np.zeros(width, dtype=np.uint8)))
        starts = self.starts + at if at else self.starts
        last = len(data) - width
        every = _sliding(data, width)
        if not rows or int(starts.max()) <= last:
            windows = every[starts]
        else:
            # The windows of rows near the end would exceed the buffer; they are read from a padded copy of its last
            # bytes.
            windows = every[np.minimum(starts, last)]
            padded = np.concatenate((data[last:], np.zeros(width, dtype=np.uint8)))
            near_end = np.flatnonzero(starts > last)
            windows[near_end] = _sliding(padded, width)[starts[near_end] - last]
        return np.ndarray((rows, width), np.uint8, windows)


def _sliding(data: Bytes, width: int) -> NDArray[np.void]:
    """Every run of *width* bytes as one item, overlapping, so that one gather copies whole windows."""
    return np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))


def bounds(values: NDArray[Any]) -> tuple[int, int]:
    """The least and the largest of *values*, of which there is at least one."""
    # The methods of arrays call these from Python code, which takes longer than a few rows do.
    return int(np.minimum.reduce(values)), int(np.maximum.reduce(values))


def _with_offsets(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return array.dictionary_decode()
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_null(kind):
        return array.cast(pa.binary())
    raise SerializationError(f"keys and values must be text or bytes, got an Arrow column of type {kind}")


def is_utf8(array: pa.Array) -> Bools:
    """The mask of the rows of *array*, bytes or unchecked text, that are UTF-8; True for null."""
    data = array.cast(pa.large_binary())
    try:
        data.cast(pa.large_string())
    except pa.ArrowInvalid:
        # Rows are only checked one by one if one of them is invalid.
        return np.array([_decodes(value.as_buffer()) for value in data], np.bool_)
    return np.ones(len(array), np.bool_)


def _decodes(data: pa.Buffer | None) -> bool:
    try:
        str(data or b"", "utf-8")
    except UnicodeDecodeError:
        return False
    return True
