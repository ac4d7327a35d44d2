"""Client quotas: the bytes per second of each client, and the throttle time of a client that exceeds its quota.

Handlers record on any thread; quotas may be changed at any time. This module must not delay anything: it only computes
the throttle time. Clients are identified by their client id.

Source: apache/kafka ``ClientQuotaManager`` (KIP-13); KIP-219 (the answer is sent at once, the connection is muted
until the throttling ends).
"""

from __future__ import annotations

import threading
from typing import Final

from kafka_sink.broker.network.rate_quota import RateQuota

#: No quota.
NO_QUOTA: Final = 2**63 - 1

#: The throttle time in an answer is an int32.
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
        # Read without the lock: usually there is no quota, and that case must cost nothing.
        self._unlimited = bytes_per_s >= NO_QUOTA

    def set_limit(self, bytes_per_s: int | None, client_id: str | None = None) -> None:
        """Set the quota of *client_id* (None: of every client without its own quota) to *bytes_per_s*.

        None as *bytes_per_s* removes the client's own quota, or the default quota.

        :raises ValueError: if the quota is not above zero.
        """
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"a quota must be above 0 bytes per second, got {bytes_per_s}")
        with self._lock:
            if client_id is None:
                self._default = NO_QUOTA if bytes_per_s is None else bytes_per_s
            elif bytes_per_s is None:
                self._overrides.pop(client_id, None)
            else:
                self._overrides[client_id] = bytes_per_s
            self._unlimited = self._default >= NO_QUOTA and not self._overrides

    def record(self, client_id: str, size: int, now_ms: int) -> int:
        """Record *size* bytes; returns the throttle time in ms, usually 0."""
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
        """Revoke a record of *size* bytes, which are not sent after all."""
        with self._lock:
            rate = self._rates.get(client_id)
            if rate is not None:
                rate.unrecord(size)

    def most_bytes(self, client_id: str) -> int:
        """The bytes that *client_id* may transfer at once, after idle time, without being throttled."""
        if self._unlimited:
            return NO_QUOTA
        with self._lock:
            limit = self._overrides.get(client_id, self._default)
        return limit if limit >= NO_QUOTA else max(limit * (self._windows - 1) * self._window_ms // 1000, 1)
