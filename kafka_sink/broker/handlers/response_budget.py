"""Bounds the bytes of fetch responses that wait to be sent, whatever clients ask for and never read.

Handlers reserve on any thread, network threads release when a response has left or its connection is gone. Must never
refuse anything: a reader always gets its next batch, only not more than that while others hold the memory.
"""

from __future__ import annotations

import threading


class ResponseBudget:
    """Counts bytes against *limit_bytes*."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._reserved = 0

    @property
    def available_bytes(self) -> int:
        """How much more there should be; 0 when the limit is reached."""
        return max(self._limit_bytes - self._reserved, 0)

    def reserve(self, size: int) -> None:
        """Count *size* bytes, whatever the limit says."""
        with self._lock:
            self._reserved += size

    def release(self, size: int) -> None:
        """Give back what was reserved. :raises ValueError: it never was."""
        with self._lock:
            if size > self._reserved:
                raise ValueError(f"{size} bytes released, {self._reserved} are reserved")
            self._reserved -= size
