"""Zig-zag variable-length integers as numpy arrays.

The column encoders call it on the task's thread. It is separate from :mod:`kafka_sink.columns.varint`, so that a
broker, which has no columns, starts without numpy. Both must always agree.

Source: https://kafka.apache.org/documentation/#recordbatch, KIP-98 (Protocol Buffers' ``sint32`` and ``sint64``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kafka_sink.columns.varint import varint_size


def zigzag_array(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Zig-zag of each value: small numbers of either sign become small unsigned ones."""
    return ((values << np.int64(1)) ^ (values >> np.int64(63))).view(np.uint64)


def varint_sizes(values: NDArray[np.int64] | int) -> NDArray[np.int64] | int:
    """The encoded size of each value in bytes, int64[n]; one number if all are equal (0 if there are none)."""
    if isinstance(values, int):
        return varint_size(values)
    if len(values) == 0:
        return 0
    low, high = int(values.min()), int(values.max())
    if low < 0:
        # With zig-zag, -1 has the size of 0, -2 the size of 1, and so on.
        values = values ^ (values >> np.int64(63))
        low, high = int(values.min()), int(values.max())
    smallest, largest = varint_size(low), varint_size(high)
    if smallest == largest:
        return smallest
    sizes = np.full(len(values), smallest, dtype=np.int64)
    for size in range(smallest, largest):
        sizes += values >= 1 << (7 * size - 1)
    return sizes
