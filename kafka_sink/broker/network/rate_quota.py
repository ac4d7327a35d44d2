"""A rate over sampled windows, and for how long whoever is over his limit has to rest so that the limit is kept.

Used under the lock of whoever owns it (client quotas, connection quotas), which also tells it the time and the limit in
force. Must never wait itself: it only says for how long.

Source: apache/kafka ``Rate``, ``SampledStat`` and ``QuotaUtils.throttleTime`` (KIP-13, KIP-612).
"""

from __future__ import annotations

from collections import deque


class RateQuota:
    """What was counted in the last *windows* windows of *window_ms*."""

    __slots__ = ("_sums", "_total", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        #: Start and sum of each window, the newest last.
        self._sums: deque[tuple[int, float]] = deque()
        self._total = 0.0

    def record(self, value: float, limit_per_s: float, now_ms: int) -> int:
        """Count *value*; returns the ms of rest that bring the rate back to *limit_per_s*, 0 when it is not above."""
        self._forget_old(now_ms)
        sums = self._sums
        if not sums or now_ms - sums[-1][0] >= self._window_ms:
            sums.append((now_ms, value))
        else:
            started_ms, before = sums[-1]
            sums[-1] = (started_ms, before + value)
        self._total += value
        # (rate - limit) / limit of the time measured, which is what Kafka computes, without the rate's own division.
        return max(round(self._total * 1000 / limit_per_s) - self._measured_ms(now_ms), 0)

    def unrecord(self, value: float) -> None:
        """Take back what was counted last: it did not happen after all."""
        started_ms, before = self._sums[-1]
        self._sums[-1] = (started_ms, before - value)
        self._total -= value

    def is_idle(self, now_ms: int) -> bool:
        """Nothing was counted in any window that still matters."""
        return not self._sums or self._sums[-1][0] <= now_ms - self._windows * self._window_ms

    def _forget_old(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._windows * self._window_ms
        while self._sums and self._sums[0][0] <= oldest_ms:
            self._total -= self._sums.popleft()[1]

    def _measured_ms(self, now_ms: int) -> int:
        """All windows but the newest, even while they are not filled: a burst is let through, a lasting one is not."""
        elapsed_ms = now_ms - self._sums[0][0]
        missing = max(self._windows - 1 - elapsed_ms // self._window_ms, 0)
        return max(elapsed_ms + missing * self._window_ms, self._window_ms)
