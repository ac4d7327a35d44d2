"""Rows that a format cannot write: the error that is about all of them. Called on the task's thread."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import BinaryColumn, Bools
from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.fields import Absent, nulls_of

_SHOWN: Final = 60


def refuse_rows(wrong: Bools, absent: Absent, array: pa.Array, path: str, problem: str) -> None:
    """:raises RowSerializationError: about the rows that are *wrong* and not *absent*."""
    rows = np.flatnonzero(wrong if absent is None else wrong & ~absent).tolist()
    if rows:

        def problem_of(row: int) -> str:
            shown = repr(array[row].as_py())
            shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
            return f"has {shown} in column '{path}', {problem}"

        raise RowSerializationError.about(rows, problem_of, path)


def bytes_of(array: pa.Array, path: str) -> BinaryColumn:
    """:raises RowSerializationError: if a row is larger than a record may be."""
    try:
        return BinaryColumn.from_arrow(array)
    except RowSerializationError as error:
        problem_of = error.problem_of
        raise RowSerializationError.about(
            error.rows, lambda row: f"in column '{path}' {problem_of(row)}", path
        ) from None


def refuse_nulls(array: pa.Array, absent: Absent, path: str, problem: str) -> None:
    """:raises RowSerializationError: about the rows that are null and not *absent*."""
    nulls = nulls_of(array)
    if nulls is None:
        return
    missing = np.flatnonzero(nulls if absent is None else nulls & ~absent).tolist()
    if missing:
        raise RowSerializationError.about(missing, lambda _: f"is null in column '{path}', {problem}", path)


def refuse_other_than_utf8(array: pa.Array, absent: Absent, path: str, remedy: str) -> None:
    """:raises RowSerializationError: about the rows of a column of text that are no UTF-8 and not *absent*."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        wrong = [row for row in range(len(array)) if (absent is None or not absent[row]) and not _is_utf8(array[row])]
        if wrong:
            problem = f"has bytes in column '{path}' that are not valid UTF-8; {remedy}"
            raise RowSerializationError.about(wrong, lambda _: problem, path) from None


def _is_utf8(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True
