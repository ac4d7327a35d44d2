"""A rate over sampled windows, and the throttle time that brings it back to its limit.

Used under the lock of its owner (client quotas, connection quotas), which passes the time and the present limit. This
module must not wait: it only computes the throttle time.

Source: apache/kafka ``Rate``, ``SampledStat`` and ``QuotaUtils.throttleTime`` (KIP-13, KIP-612).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
#: With fewer, none are forgotten.
_LEAST: Final = 1_000


class RateQuotas(Generic[K]):
    """A :class:`RateQuota` for each key. Keys come from clients, which may change them with each request, so that those
    that are idle are forgotten: whenever their number has doubled, and thus in constant time for each."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows, self._window_ms = windows, window_ms
        self._rates: dict[K, RateQuota] = {}
        self._most = _LEAST

    def of(self, key: K, now_ms: int) -> RateQuota:
        """The rate of *key*, which is new if it was forgotten."""
        rate = self._rates.get(key)
        if rate is None:
            if len(self._rates) >= self._most:
                self._rates = {each: known for each, known in self._rates.items() if not known.is_idle(now_ms)}
                self._most = max(2 * len(self._rates), _LEAST)
            rate = self._rates[key] = RateQuota(self._windows, self._window_ms)
        return rate

    def known(self, key: K) -> RateQuota | None:
        """The rate of *key*, if it has one."""
        return self._rates.get(key)


class RateQuota:
    """The sum of the values recorded in the last *windows* windows of *window_ms*."""

    __slots__ = ("_sums", "_total", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        #: Start and sum of each window, the newest last.
        self._sums: deque[tuple[int, float]] = deque()
        self._total = 0.0

    def record(self, value: float, limit_per_s: float, now_ms: int) -> int:
        """Record *value*; returns the throttle time in ms that brings the rate down to *limit_per_s*, 0 if none."""
        self._forget_old(now_ms)
        sums = self._sums
        if not sums or now_ms - sums[-1][0] >= self._window_ms:
            sums.append((now_ms, value))
        else:
            started_ms, before = sums[-1]
            sums[-1] = (started_ms, before + value)
        self._total += value
        # (rate - limit) / limit * measured time, as Kafka computes it, without a division for the rate.
        return max(round(self._total * 1000 / limit_per_s) - self._measured_ms(now_ms), 0)

    def unrecord(self, value: float) -> None:
        """Revoke the last record."""
        started_ms, before = self._sums[-1]
        self._sums[-1] = (started_ms, before - value)
        self._total -= value

    def is_idle(self, now_ms: int) -> bool:
        """Whether no window that still counts has a record."""
        return not self._sums or self._sums[-1][0] <= now_ms - self._windows * self._window_ms

    def _forget_old(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._windows * self._window_ms
        while self._sums and self._sums[0][0] <= oldest_ms:
            self._total -= self._sums.popleft()[1]

    def _measured_ms(self, now_ms: int) -> int:
        """All windows except the newest, even if they are not full: short bursts pass, sustained load is throttled."""
        elapsed_ms = now_ms - self._sums[0][0]
        missing = max(self._windows - 1 - elapsed_ms // self._window_ms, 0)
        return max(elapsed_ms + missing * self._window_ms, self._window_ms)
