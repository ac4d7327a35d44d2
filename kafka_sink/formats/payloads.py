"""Payloads from the pieces of each row: the last step of every format. Called on the task's thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kafka_sink.formats.fields import Absent, joined
from kafka_sink.records.gather import Piece


def payloads_of(pieces: Sequence[Piece], rows: int, nulls: Absent) -> pa.LargeBinaryArray:
    """One payload per row; *nulls* have none."""
    if not rows:
        return pa.array([], pa.large_binary())
    data, bounds = joined(pieces, rows)
    validity = None if nulls is None else pa.array(~nulls).buffers()[1]
    offsets = pa.py_buffer(np.ascontiguousarray(bounds))
    return pa.Array.from_buffers(pa.large_binary(), rows, [validity, offsets, data])
