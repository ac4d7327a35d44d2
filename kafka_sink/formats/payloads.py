"""Payloads from the fields of each row, the last step of every format; and the items of lists and maps, encoded as rows
of their own, so that those of one row are adjacent. Also the error about all rows that a format cannot write.

Called on the task's thread for each batch of rows, with a constant number of numpy and Arrow passes per field. It never
loops over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import BinaryColumn, Bools, Int64s, is_utf8
from kafka_sink.columns.gather import Piece, constant_fields
from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.errors import shown
from kafka_sink.formats.fields import Absent, either, is_list, joined, nulls_of, only_present


def encode_items(
    array: pa.Array,
    absent: Absent,
    pieces_of: Callable[[pa.Array, Absent], Sequence[Piece]],
    separator_bytes: int = 0,
) -> tuple[BinaryColumn, Int64s]:
    """The bytes of all items of each list or map in *array*, of at least one row, and int64[n]: the number of its
    items; rows that are null or *absent* have none.

    *pieces_of* gets the items of all rows, and the mask of unused ones. Each item begins with *separator_bytes* bytes,
    which are omitted for the first item of a row.

    :raises RowSerializationError: if items cannot be written, about their rows of *array*.
    """
    offsets = array.offsets.to_numpy().astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    first, last = offsets[:-1] - begin, offsets[1:] - begin
    nothing = either(nulls_of(array), absent)
    if nothing is not None:
        last = np.where(nothing, first, last)
    # The ``values`` of a slice are those of the whole array.
    items = array.values.slice(begin, end - begin)
    try:
        data, bounds = joined(pieces_of(items, _unused(len(items), first, last)) if len(items) else [], len(items))
    except RowSerializationError as error:
        # Empty rows begin at the same item as the row after them, so the last row that begins at an item contains it.
        raise error.at((np.searchsorted(first, error.rows, side="right") - 1).tolist()) from None
    starts, counts = bounds[first], last - first
    if separator_bytes:
        starts = starts + separator_bytes * (counts > 0)
    return BinaryColumn.of(data, starts, bounds[last] - starts, None, is_contiguous=False), counts


def _unused(items: int, first: Int64s, last: Int64s) -> Bools | None:
    """The mask of the items that belong to no row: items of null rows are arbitrary."""
    if int((last - first).sum()) == items:
        return None
    depth = np.zeros(items + 1, dtype=np.int64)
    np.add.at(depth, first, 1)
    np.add.at(depth, last, -1)
    unused: Bools = np.cumsum(depth[:-1]) == 0
    return unused


#: Raises RowSerializationError about the rows of an array that a format does not accept, except absent ones.
Check: TypeAlias = Callable[[pa.Array, Absent], None]


def check_of_field(index: int, checks: Sequence[Check]) -> Check:
    """One check that applies all *checks* to the field *index* of structs."""

    def check(array: pa.Array, absent: Absent) -> None:
        for check_rows in checks:
            check_rows(array.field(index), absent)

    return check


def check_of_present(check: Check) -> Check:
    """*check*, applied to the rows that are not null."""
    return lambda array, absent: check(array, either(nulls_of(array), absent))


def check_of_contents(checks: Sequence[Check], part: Callable[[pa.Array], pa.Array]) -> Check:
    """One check that applies all *checks* to the items of lists and maps, converted by *part*."""

    def check_items(items: pa.Array, unused: Absent) -> Sequence[Piece]:
        for check_part in checks:
            check_part(part(items), unused)
        return []

    def check(array: pa.Array, absent: Absent) -> None:
        if len(array):
            encode_items(array, absent, check_items)

    return check


def leaf_checks(kind: pa.DataType, path: str, of_leaf: Callable[[pa.DataType, str], Check | None]) -> list[Check]:
    """The checks that *of_leaf* has for the values of column *path*, of the type *kind*, and for those within them."""
    if pa.types.is_struct(kind):
        fields = [(index, leaf_checks(field.type, f"{path}.{field.name}", of_leaf)) for index, field in enumerate(kind)]
        return [check_of_present(check_of_field(index, checks)) for index, checks in fields if checks]
    if is_list(kind):
        checks = leaf_checks(kind.value_type, f"{path}[]", of_leaf)
        return [check_of_contents(checks, lambda items: items)] if checks else []
    if pa.types.is_map(kind):
        checks = leaf_checks(kind.item_type, f"{path}{{}}", of_leaf)
        return [check_of_contents(checks, lambda entries: entries.field(1))] if checks else []
    check = of_leaf(kind, path)
    return [] if check is None else [check_of_present(check)]


class PieceWriter(Protocol):
    """Writes the rows of one column at one place in the schema."""

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        """The pieces of each row of *array*; rows that are *absent* have no bytes.

        :raises RowSerializationError: about all rows whose values cannot be written for the first reason that was
            found; the text names the column, and the value.
        """


@dataclass(frozen=True, slots=True)
class NothingWriter:
    """A place without bytes: Avro's type null, and columns of Protobuf that only have nulls."""

    def pieces(self, array: pa.Array, absent: Absent) -> Sequence[Piece]:
        return []


class FieldsEncoder:
    """Encodes a column by the fields of *writer*; see :class:`~kafka_sink.formats.column_format.ColumnEncoder`."""

    def __init__(self, writer: PieceWriter, checks: Sequence[Check] = ()) -> None:
        self._writer = writer
        self._checks = checks

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> pa.LargeBinaryArray:
        nulls = nulls_of(rows)
        for check in self._checks:
            check(rows, nulls)
        pieces = [*only_present(constant_fields(prefix), nulls), *self._writer.pieces(rows, nulls)] if len(rows) else []
        return payloads_of(pieces, len(rows), nulls)


def payloads_of(pieces: Sequence[Piece], rows: int, nulls: Absent) -> pa.LargeBinaryArray:
    """One payload per row; *nulls* have none."""
    if not rows:
        return pa.array([], pa.large_binary())
    data, bounds = joined(pieces, rows)
    validity = None if nulls is None else pa.array(~nulls).buffers()[1]
    offsets = pa.py_buffer(np.ascontiguousarray(bounds))
    return pa.Array.from_buffers(pa.large_binary(), rows, [validity, offsets, data])


def _refuse(wrong: Bools, absent: Absent, path: str, problem_of: Callable[[int], str]) -> None:
    rows = np.flatnonzero(wrong if absent is None else wrong & ~absent).tolist()
    if rows:
        raise RowSerializationError.about(rows, problem_of, path)


def refuse_rows(wrong: Bools, absent: Absent, array: pa.Array, path: str, problem: str) -> None:
    """:raises RowSerializationError: about the rows that are *wrong* and not *absent*."""
    _refuse(wrong, absent, path, lambda row: f"has {_shown(array[row : row + 1])} in column '{path}', {problem}")


def _shown(row: pa.Array) -> str:
    # Python does not support all texts, dates and time zones of Arrow.
    with suppress(ValueError, OverflowError, LookupError):
        return shown(row[0].as_py())
    return shown(row.to_string(skip_new_lines=True))


def refuse_moments(wrong: Bools, absent: Absent, array: pa.Array, path: str, problem: str) -> None:
    """:raises RowSerializationError: about the dates or times that are *wrong* and not *absent*, of any year."""
    if wrong.any():
        array = array.cast(pa.timestamp(array.type.unit)) if pa.types.is_timestamp(array.type) else array
        refuse_rows(wrong, absent, array.cast(pa.string()), path, problem)


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
    if nulls is not None:
        _refuse(nulls, absent, path, lambda _: f"is null in column '{path}', {problem}")


def refuse_other_than_utf8(array: pa.Array, absent: Absent, path: str, remedy: str) -> None:
    """:raises RowSerializationError: about the rows of a column of text that are no UTF-8 and not *absent*."""
    problem = f"has bytes in column '{path}' that are not valid UTF-8; {remedy}"
    _refuse(~is_utf8(array), absent, path, lambda _: problem)
