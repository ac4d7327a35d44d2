"""Determines the connection that has been idle for longest.

Owned by a selector and its thread. The owner reports every activity and its time; this class never reads a clock and
never closes anything itself.
"""

from __future__ import annotations

from collections import OrderedDict


class IdleExpiryManager:
    """Connections by last activity, least recently active first."""

    def __init__(self, max_idle_ms: int) -> None:
        self._max_idle_ms = max_idle_ms
        self._last_active_ms: OrderedDict[str, int] = OrderedDict()
        self._next_check_ms = 0

    def update(self, connection_id: str, now_ms: int) -> None:
        """Record that *connection_id* was active at *now_ms*."""
        self._last_active_ms[connection_id] = now_ms
        self._last_active_ms.move_to_end(connection_id)

    def remove(self, connection_id: str) -> None:
        """Remove a connection that is closed."""
        self._last_active_ms.pop(connection_id, None)

    def poll_expired(self, now_ms: int) -> str | None:
        """A connection that has been idle for longer than the limit, at most one per call."""
        if now_ms <= self._next_check_ms:
            return None
        if not self._last_active_ms:
            self._next_check_ms = now_ms + self._max_idle_ms
            return None
        oldest, active_ms = next(iter(self._last_active_ms.items()))
        self._next_check_ms = active_ms + self._max_idle_ms
        return oldest if now_ms > self._next_check_ms else None

    @property
    def least_recently_active(self) -> str | None:
        """The connection to close first if there are too many."""
        return next(iter(self._last_active_ms), None)
