"""Bounds the bytes of frames that were received and not yet worked off.

The owner of a selector reserves before it allocates a frame's buffer; whoever has worked the frame off (any thread)
releases. A pool only counts: it never hands out memory itself and never blocks, a refused reservation is asked for
again later.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol


class MemoryPool(Protocol):
    """What a selector asks before it makes room for a frame."""

    def try_reserve(self, size_bytes: int) -> bool:
        """Count *size_bytes* as used; False when there is no room now."""
        ...

    def release(self, size_bytes: int) -> None:
        """Give back what :meth:`try_reserve` granted."""
        ...

    @property
    def available_bytes(self) -> int:
        """Room that is left; below zero when the last grant overshot."""
        ...

    @property
    def is_out_of_memory(self) -> bool:
        """Nothing can be reserved until something is released."""
        ...

    @property
    def low_memory_threshold_bytes(self) -> int:
        """With less than this available, connections are served in random order so that none starves."""
        ...


class SimpleMemoryPool:
    """A budget of *size_bytes*, as Kafka's SimpleMemoryPool in its non-strict form.

    A reservation is granted when any byte is free, so the budget may be overshot by one frame: a frame larger than the
    whole budget would otherwise never be read. Safe to use from any thread.
    """

    def __init__(self, size_bytes: int) -> None:
        if size_bytes <= 0:
            raise ValueError(f"a memory pool needs a size above zero, not {size_bytes}")
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._available_bytes = size_bytes

    def try_reserve(self, size_bytes: int) -> bool:
        with self._lock:
            if self._available_bytes <= 0:
                return False
            self._available_bytes -= size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        with self._lock:
            if self._available_bytes + size_bytes > self._size_bytes:
                raise RuntimeError(f"{size_bytes} bytes released to a memory pool that did not grant them")
            self._available_bytes += size_bytes

    @property
    def available_bytes(self) -> int:
        return self._available_bytes

    @property
    def is_out_of_memory(self) -> bool:
        return self._available_bytes <= 0

    @property
    def low_memory_threshold_bytes(self) -> int:
        return self._size_bytes // 10


class _UnlimitedMemoryPool:
    """No budget: every reservation is granted and nothing is counted."""

    available_bytes = 2**62
    is_out_of_memory = False
    low_memory_threshold_bytes = 0

    def try_reserve(self, size_bytes: int) -> bool:
        return True

    def release(self, size_bytes: int) -> None:
        return None


UNLIMITED_MEMORY_POOL: Final[MemoryPool] = _UnlimitedMemoryPool()
