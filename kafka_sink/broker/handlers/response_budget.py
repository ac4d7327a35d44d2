"""Limits the bytes of fetch responses that wait to be sent, even if clients request data and never read it.

Handlers reserve on any thread; network threads release when a response was sent or its connection is closed. A
reservation must never fail: a consumer always gets its next batch, but nothing beyond it while the limit is reached.
"""

from __future__ import annotations

import threading


class ResponseBudget:
    """Counts reserved bytes, with a limit of *limit_bytes*."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._reserved = 0

    @property
    def available_bytes(self) -> int:
        """The bytes left below the limit; 0 when the limit is reached."""
        return max(self._limit_bytes - self._reserved, 0)

    def reserve(self, size: int) -> None:
        """Reserve *size* bytes, even beyond the limit."""
        with self._lock:
            self._reserved += size

    def release(self, size: int) -> None:
        """Release reserved bytes. :raises ValueError: if more bytes are released than were reserved."""
        with self._lock:
            if size > self._reserved:
                raise ValueError(f"{size} bytes released, {self._reserved} are reserved")
            self._reserved -= size
