"""Texts as JSON has them between quotes, a whole column at once. Called on the task's thread.

Source: https://www.rfc-editor.org/rfc/rfc8259#section-7, com.fasterxml.jackson.core.io ``CharTypes``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.columns.binary_column import BinaryColumn, Bytes
from kafka_sink.formats.fields import Absent
from kafka_sink.formats.refusals import bytes_of, refuse_other_than_utf8

_SHORT: Final = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_FIRST_PLAIN: Final = 0x20
_ASCII: Final = 0x80


def escaped(array: pa.Array, absent: Absent, path: str) -> BinaryColumn:
    """The rows of *array*, a column of text, with backslashes where JSON needs them.

    :raises RowSerializationError: about the rows that are no UTF-8 and not *absent*.
    """
    column = bytes_of(array, path)
    used = _used(column)
    if not len(used):
        return column
    if int(used.max()) >= _ASCII:
        refuse_other_than_utf8(array, absent, path, "cast the column to binary, which becomes base64")
    found = [code for code in (92, 34) if (used == code).any()]
    if int(used.min()) < _FIRST_PLAIN:
        found += np.unique(used[used < _FIRST_PLAIN]).tolist()
    if not found:
        return column
    binary = array.view(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    for code in found:
        # The backslash comes first, since all others bring one.
        binary = pc.replace_substring(binary, pattern=bytes([code]), replacement=escape(code))
    return BinaryColumn.from_arrow(binary)


def escape(code: int) -> bytes:
    """How the character of this *code* is written."""
    return _SHORT.get(code) or b"\\u%04X" % code


def _used(column: BinaryColumn) -> Bytes:
    """The bytes from the first row to the last."""
    if not len(column):
        return column.data[:0]
    return column.data[int(column.starts.min()) : int((column.starts + column.lengths).max())]
