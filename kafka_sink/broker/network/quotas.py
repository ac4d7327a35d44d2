"""Rates over sampled windows, and the throttle time of a client that exceeds its quota of bytes per second; and the
bytes of fetch responses that wait to be sent.

Handlers record on any thread; quotas may be changed at any time. This module must not delay anything: it only computes
the throttle time. Clients are identified by user and client id.

Source: apache/kafka ``Rate``, ``SampledStat`` and ``QuotaUtils.throttleTime`` (KIP-13, KIP-612), ``ClientQuotaManager``
(KIP-13, KIP-55: which quota a client has); KIP-219 (the answer is sent at once, the connection is muted until the
throttling ends).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from kafka_sink.common.model import QuotaEntity

K = TypeVar("K", bound=Hashable)
#: With fewer rates, idle ones are not removed.
_LEAST: Final = 1_000


class RateQuotas(Generic[K]):
    """A :class:`RateQuota` for each key. Clients choose the keys and may change them with each request, so idle ones
    are removed whenever the number of keys has doubled, which takes amortized constant time per key."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows, self._window_ms = windows, window_ms
        self._rates: dict[K, RateQuota] = {}
        self._most = _LEAST

    def of(self, key: K, now_ms: int) -> RateQuota:
        """The rate of *key*, which is new if it was removed."""
        rate = self._rates.get(key)
        if rate is None:
            if len(self._rates) >= self._most:
                self._rates = {client: rate for client, rate in self._rates.items() if not rate.is_idle(now_ms)}
                self._most = max(2 * len(self._rates), _LEAST)
            rate = self._rates[key] = RateQuota(self._windows, self._window_ms)
        return rate

    def existing(self, key: K) -> RateQuota | None:
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
        sums = self._sums
        while sums and sums[0][0] <= now_ms - self._windows * self._window_ms:
            self._total -= sums.popleft()[1]
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

    def _measured_ms(self, now_ms: int) -> int:
        """All windows except the newest, even if they are not full: short bursts pass, sustained load is throttled."""
        elapsed_ms = now_ms - self._sums[0][0]
        missing = max(self._windows - 1 - elapsed_ms // self._window_ms, 0)
        return max(elapsed_ms + missing * self._window_ms, self._window_ms)


#: Kafka's names of the quotas that are enforced.
PRODUCER_RATE: Final = "producer_byte_rate"
CONSUMER_RATE: Final = "consumer_byte_rate"

USER: Final = "user"
CLIENT: Final = "client-id"
#: No quota.
NO_QUOTA: Final = 2**63 - 1

#: The throttle time in an answer is an int32.
_LONGEST_THROTTLE_MS: Final = 2**31 - 1


class ClientQuota:
    """A rate for every client that has a quota, measured over *windows* windows of *window_ms*."""

    def __init__(self, windows: int = 11, window_ms: int = 1000) -> None:
        self._windows, self._window_ms = windows, window_ms
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._limits: Mapping[QuotaEntity, float] = {}
        self._rates = RateQuotas[tuple[str | None, str | None]](windows, window_ms)
        # Read without the lock: usually there is no quota, and that case must cost nothing.
        self._unlimited = True

    def follow(self, limits: Mapping[QuotaEntity, float]) -> None:
        """Set the quotas of users and clients to *limits*, bytes per second; these replace all previous quotas."""
        with self._lock:
            self._limits = limits
            self._unlimited = not limits

    def record(self, client_id: str, size: int, now_ms: int, user: str = "") -> int:
        """Record *size* bytes; returns the throttle time in ms, usually 0."""
        if self._unlimited:
            return 0
        with self._lock:
            limit, key = self._limit(user, client_id)
            if limit >= NO_QUOTA:
                return 0
            return min(self._rates.of(key, now_ms).record(size, limit, now_ms), _LONGEST_THROTTLE_MS)

    def unrecord(self, client_id: str, size: int, user: str = "") -> None:
        """Revoke a record of *size* bytes, which are not sent after all."""
        with self._lock:
            rate = self._rates.existing(self._limit(user, client_id)[1])
            if rate is not None:
                rate.unrecord(size)

    def most_bytes(self, client_id: str, user: str = "") -> int:
        """The bytes that the client may transfer at once, after idle time, without being throttled."""
        if self._unlimited:
            return NO_QUOTA
        with self._lock:
            limit, _ = self._limit(user, client_id)
        return limit if limit >= NO_QUOTA else max(limit * (self._windows - 1) * self._window_ms // 1000, 1)

    def _limit(self, user: str, client_id: str) -> tuple[int, tuple[str | None, str | None]]:
        """The quota of a client, and the key under which its bytes are counted."""
        for entity in _entities(user, client_id):
            if entity in self._limits:
                kinds = {kind for kind, _ in entity}
                return int(self._limits[entity]), (
                    user if USER in kinds else None,
                    client_id if CLIENT in kinds else None,
                )
        return NO_QUOTA, (None, client_id)


def _entities(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """The entities whose quotas can apply to a client, in order of precedence."""
    for name in (user, None):
        yield frozenset({(USER, name), (CLIENT, client_id)})
        yield frozenset({(USER, name), (CLIENT, None)})
        yield frozenset({(USER, name)})
    yield frozenset({(CLIENT, client_id)})
    yield frozenset({(CLIENT, None)})


class ResponseBudget:
    """Limits the bytes of fetch responses that wait to be sent to *limit_bytes*, even if clients request data and never
    read it.

    Handlers reserve on any thread; network threads release when a response was sent or its connection is closed. A
    reservation must never fail: a consumer always gets its next batch, but nothing more while the limit is reached.
    """

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
