"""How many bytes per second one client may move, and for how long it is throttled when it moved more.

Handlers record on any thread; limits may be changed at any time. Must never delay anybody itself: it only says for how
long. Clients are told apart by their client id.

Source: apache/kafka ``ClientQuotaManager`` (KIP-13); KIP-219 (the answer is sent at once, the connection is not read
until the throttling ends).
"""

from __future__ import annotations

import threading
from typing import Final

from kafka_sink.broker.network.rate_quota import RateQuota

#: No quota.
NO_QUOTA: Final = 2**63 - 1

#: The answer's field for it is an int32.
_LONGEST_THROTTLE_MS: Final = 2**31 - 1
_CLIENTS_TRACKED: Final = 10_000


class ClientQuota:
    """A rate for every client id, measured over *windows* windows of *window_ms*."""

    def __init__(self, bytes_per_s: int, windows: int = 11, window_ms: int = 1000) -> None:
        self._windows, self._window_ms = windows, window_ms
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._default = bytes_per_s
        self._overrides: dict[str, int] = {}
        self._rates: dict[str, RateQuota] = {}
        # Read without it: nobody has a quota, which is the usual case and must cost nothing.
        self._unlimited = bytes_per_s >= NO_QUOTA

    def set_limit(self, bytes_per_s: int | None, client_id: str | None = None) -> None:
        """From now on *client_id* (None: everybody without a limit of his own) may move *bytes_per_s*.

        None takes the client's own limit away, or lets everybody move what he likes.

        :raises ValueError: the limit is not above zero.
        """
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"a quota is above 0 bytes per second, not {bytes_per_s}")
        with self._lock:
            if client_id is None:
                self._default = NO_QUOTA if bytes_per_s is None else bytes_per_s
            elif bytes_per_s is None:
                self._overrides.pop(client_id, None)
            else:
                self._overrides[client_id] = bytes_per_s
            self._unlimited = self._default >= NO_QUOTA and not self._overrides

    def record(self, client_id: str, size: int, now_ms: int) -> int:
        """Count *size* bytes; returns the ms to throttle, 0 mostly."""
        if self._unlimited:
            return 0
        with self._lock:
            limit = self._overrides.get(client_id, self._default)
            if limit >= NO_QUOTA:
                return 0
            rate = self._rates.get(client_id)
            if rate is None:
                if len(self._rates) >= _CLIENTS_TRACKED:
                    self._rates = {name: known for name, known in self._rates.items() if not known.is_idle(now_ms)}
                rate = self._rates[client_id] = RateQuota(self._windows, self._window_ms)
            return min(rate.record(size, limit, now_ms), _LONGEST_THROTTLE_MS)

    def unrecord(self, client_id: str, size: int) -> None:
        """The *size* bytes that were just recorded are not sent after all."""
        with self._lock:
            rate = self._rates.get(client_id)
            if rate is not None:
                rate.unrecord(size)

    def most_bytes(self, client_id: str) -> int:
        """What *client_id* may move at one go, having moved nothing before, without being throttled."""
        if self._unlimited:
            return NO_QUOTA
        with self._lock:
            limit = self._overrides.get(client_id, self._default)
        return limit if limit >= NO_QUOTA else max(limit * (self._windows - 1) * self._window_ms // 1000, 1)
