"""Limits the bytes of frames that were received and are not processed yet.

The owner of a selector reserves memory before it allocates a frame's buffer; the thread that has processed the frame
(any thread) releases it. A pool only counts: it never allocates memory itself and never blocks; a failed reservation is
retried later.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol


class MemoryPool(Protocol):
    """Reserves memory for a selector's incoming frames."""

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve *size_bytes*; False if there is no memory available now."""

    def release(self, size_bytes: int) -> None:
        """Release *size_bytes*, which :meth:`try_reserve` has reserved."""

    @property
    def available_bytes(self) -> int:
        """Bytes that are available; negative if the last reservation exceeded the limit."""

    @property
    def is_out_of_memory(self) -> bool:
        """Whether nothing can be reserved until something is released."""

    @property
    def low_memory_threshold_bytes(self) -> int:
        """Below this, connections are processed in random order so that none starves."""


class SimpleMemoryPool:
    """A limit of *size_bytes*, as Kafka's SimpleMemoryPool in non-strict mode.

    A reservation succeeds if any byte is available, so one frame may exceed the limit; otherwise a frame larger than
    the limit could never be read. Thread-safe.
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


class LoginMemoryPool(SimpleMemoryPool):
    """A limit of *size_bytes* on what peers announce before they are known. Frames of up to *free_bytes* are always
    granted, so that others can log in while somebody holds all of it."""

    def __init__(self, size_bytes: int, free_bytes: int) -> None:
        super().__init__(size_bytes)
        self._free_bytes = free_bytes

    def try_reserve(self, size_bytes: int) -> bool:
        return size_bytes <= self._free_bytes or super().try_reserve(size_bytes)

    def release(self, size_bytes: int) -> None:
        if size_bytes > self._free_bytes:
            super().release(size_bytes)


class _UnlimitedMemoryPool:
    """No limit: every reservation succeeds and nothing is counted."""

    available_bytes = 2**62
    is_out_of_memory = False
    low_memory_threshold_bytes = 0

    def try_reserve(self, size_bytes: int) -> bool:
        return True

    def release(self, size_bytes: int) -> None:
        return None


UNLIMITED_MEMORY_POOL: Final[MemoryPool] = _UnlimitedMemoryPool()
