"""The items of lists and maps, encoded as rows of their own: those of one row then lie next to each other.

Called on the task's thread, by the writers of arrays and maps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import Bools, Int64s
from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.fields import Absent, either, nulls_of


class EncodedItems(NamedTuple):
    """The items of row i are the bytes from ``starts[i]`` to ``ends[i]`` of *data*, and ``counts[i]`` items."""

    data: pa.Buffer
    starts: Int64s
    ends: Int64s
    counts: Int64s


def encode_items(
    array: pa.Array, absent: Absent, encode: Callable[[pa.Array, Absent], tuple[pa.Buffer, Int64s]]
) -> EncodedItems:
    """The items of the lists or maps in *array*, of at least one row; rows that are null or *absent* have none.

    *encode* gets all items, and where one is not used; it returns their bytes, and where each begins, and the end.

    :raises RowSerializationError: if items cannot be written, about their rows of *array*.
    """
    offsets = array.offsets.to_numpy().astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    first, last = offsets[:-1] - begin, offsets[1:] - begin
    nothing = either(nulls_of(array), absent)
    if nothing is not None:
        last = np.where(nothing, first, last)
    # The values of a slice are those of the whole array.
    items = array.values.slice(begin, end - begin)
    try:
        data, bounds = encode(items, _unused(len(items), first, last))
    except RowSerializationError as error:
        # No item of an empty row is refused: of the rows that begin at an item, the last one has it.
        raise error.at((np.searchsorted(first, error.rows, side="right") - 1).tolist()) from None
    return EncodedItems(data, bounds[first], bounds[last], last - first)


def _unused(items: int, first: Int64s, last: Int64s) -> Bools | None:
    """Where an item is in no row: items of rows that are null may be anything."""
    if int((last - first).sum()) == items:
        return None
    depth = np.zeros(items + 1, dtype=np.int64)
    np.add.at(depth, first, 1)
    np.add.at(depth, last, -1)
    unused: Bools = np.cumsum(depth[:-1]) == 0
    return unused
