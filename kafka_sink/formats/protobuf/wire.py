"""Tags and lengths: what stands before a value, a whole column at once. Called on the task's thread.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from kafka_sink.columns.gather import Piece, constant_field, unsigned_varint_fields
from kafka_sink.columns.varint import encode_unsigned_varint
from kafka_sink.formats.fields import Absent, after, only_present, sizes_of

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5


def tag_of(number: int, wire_type: int) -> bytes:
    """The tag of a field, of up to five bytes."""
    return encode_unsigned_varint(number << 3 | wire_type)


def tagged(tag: bytes, pieces: Sequence[Piece], absent: Absent) -> list[Piece]:
    """*tag*, which is empty for an item of a packed list, then *pieces*; nothing in *absent* rows."""
    return only_present(after(constant_field(tag), pieces) if tag else pieces, absent)


def framed(tag: bytes, inside: Sequence[Piece], absent: Absent) -> list[Piece]:
    """*tag*, the length of *inside*, and *inside*, which has no bytes in *absent* rows."""
    sizes = sizes_of(inside)
    if isinstance(sizes, np.ndarray) and absent is not None:
        # Bounds of sizes that are written, so that no shorter varint is provided for.
        sizes = np.where(absent, sizes.max(), sizes)
    return [*tagged(tag, unsigned_varint_fields(sizes), absent), *inside]
