"""Column chunks for tests, from plain rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk, HeadersColumn
from kafka_sink.common.model import Header

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Row(NamedTuple):
    """A record before it has a place; *timestamp* counts only where the chunk has timestamps."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int = 0
    partition: int = 0


def make_chunk(rows: Sequence[Row], *, has_timestamps: bool = False) -> ColumnChunk:
    """A chunk of *rows*; columns that no row uses are left out, as Spark's are."""
    headers = None
    if any(row.headers for row in rows):
        entries = [[{"key": name, "value": value} for name, value in row.headers] for row in rows]
        headers = HeadersColumn.from_arrow(pa.array(entries, _HEADERS))
    return ColumnChunk(
        BinaryColumn.from_arrow(pa.array([row.value for row in rows], pa.binary())),
        BinaryColumn.from_arrow(pa.array([row.key for row in rows], pa.binary()))
        if any(row.key is not None for row in rows)
        else None,
        headers,
        np.array([row.timestamp for row in rows], dtype=np.int64) if has_timestamps else None,
    )
