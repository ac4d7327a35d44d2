"""How many bytes per second one client may move, and for how long it is throttled when it moved more.

Called by handlers on any thread. Must never delay anybody itself: it only says for how long.

Source: KIP-13, KIP-219 (the answer is sent at once, the connection is not read until the throttling ends).
"""

from __future__ import annotations

import threading
from typing import Final

#: Longest throttling, as in Kafka: the span over which rates are measured.
_MAX_THROTTLE_MS: Final = 11_000
_CLIENTS_TRACKED: Final = 10_000


class ClientQuota:
    """A rate for every client id: what was moved is worked off at *bytes_per_s*, one second's worth may be ahead."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        # Client id → instant (monotonic ms) at which everything it moved is worked off. Guarded by the lock.
        self._worked_off_ms: dict[str, float] = {}

    def record(self, client_id: str, size: int, now_ms: int) -> int:
        """Count *size* bytes; returns the ms to throttle, 0 mostly."""
        cost_ms = size * 1000 / self._bytes_per_s
        if cost_ms < 1e-6:
            # No quota worth the name is set.
            return 0
        with self._lock:
            if len(self._worked_off_ms) >= _CLIENTS_TRACKED:
                self._worked_off_ms = {name: at for name, at in self._worked_off_ms.items() if at > now_ms}
            done_ms = max(self._worked_off_ms.get(client_id, 0.0), now_ms) + cost_ms
            self._worked_off_ms[client_id] = done_ms
        return min(max(int(done_ms - now_ms) - 1000, 0), _MAX_THROTTLE_MS)
