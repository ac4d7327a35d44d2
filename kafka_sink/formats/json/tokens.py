"""What a writer of JSON returns for each row: pieces with data, and texts that are the same in all rows.

Called on the task's thread. Texts of neighbouring places are joined before they become pieces, because each piece
costs something per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import BinaryColumn
from kafka_sink.columns.gather import INLINE_BYTES, Piece, constant_fields
from kafka_sink.formats.fields import Absent, only_present


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """The same text in every row that is not *absent*."""

    text: bytes
    absent: Absent


Token: TypeAlias = Piece | Literal


class Writer(Protocol):
    """Writes the rows of one column at one place."""

    def tokens(self, array: pa.Array, absent: Absent) -> Sequence[Token]:
        """The tokens of each row of *array*; rows that are *absent*, among them all null ones, have no bytes.

        :raises RowSerializationError: about all rows whose values cannot be written for the first reason that was
            found; the text names the column.
        """


def pieces_of(tokens: Sequence[Token], rows: int) -> list[Piece]:
    """The pieces that *tokens* are, for *rows* rows."""
    pieces: list[Piece] = []
    text, absent = b"", None
    for token in tokens:
        if isinstance(token, Literal) and token.absent is absent:
            text += token.text
            continue
        pieces += _pieces_of_text(text, absent, rows)
        text, absent = (token.text, token.absent) if isinstance(token, Literal) else (b"", None)
        if not isinstance(token, Literal):
            pieces.append(token)
    return pieces + _pieces_of_text(text, absent, rows)


def _pieces_of_text(text: bytes, absent: Absent, rows: int) -> list[Piece]:
    if len(text) <= INLINE_BYTES:
        return only_present(constant_fields(text), absent)
    lengths = np.full(rows, len(text), np.int64) if absent is None else np.where(absent, 0, len(text))
    return [BinaryColumn.of(pa.py_buffer(text), np.zeros(rows, np.int64), lengths, None, is_contiguous=False)]
