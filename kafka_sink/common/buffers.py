"""Bytes-like objects that can be gathered into a socket without a copy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


def total_size(buffers: Iterable[Buffer]) -> int:
    return sum([memoryview(buffer).nbytes for buffer in buffers])
