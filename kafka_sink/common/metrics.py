"""Metrics under Kafka's names: totals, and rates, averages and maxima over sampled windows.

The threads that do the work record values once per batch, request or poll; any thread may read them. This module never
reads a clock: every call receives the time.

Source: apache/kafka ``SampledStat`` and ``Rate``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka_sink.common.locks import Lock

_IDLE_WINDOW_NS: Final = 30 * 10**9


class Family(NamedTuple):
    """A metric, with Kafka's names of it and of its group."""

    group: str
    name: str
    #: The meaning of a value, with its unit, and the reaction to a change: one line, for an operator on call.
    meaning: str

    @property
    def is_total(self) -> bool:
        """Whether the value never decreases."""
        return self.name.endswith("-total")

    def at(self, value: float, *tags: tuple[str, str]) -> Metric:
        """The metric with *value* and *tags*."""
        return Metric(self, tags, value)


class Metric(NamedTuple):
    """The current value of one metric. Sizes are in bytes, times in the unit of the name (ms if it has none)."""

    family: Family
    tags: tuple[tuple[str, str], ...]
    value: float

    @property
    def name(self) -> str:
        return self.family.name

    @property
    def group(self) -> str:
        return self.family.group


def families(group: str, meanings: Mapping[str, str]) -> dict[str, Family]:
    return {name: Family(group, name, meaning) for name, meaning in meanings.items()}


class _Window:
    __slots__ = ("count", "maximum", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.total = 0.0
        self.count = 0
        self.maximum = float("-inf")


class Sampled:
    """A quantity: its total and count since the start; its rates, averages and maxima over the last *samples* windows
    of *window_ms*."""

    __slots__ = ("_lock", "_samples", "_window_ms", "_windows", "count", "total")

    def __init__(self, samples: int = 2, window_ms: int = 30_000) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._windows: deque[_Window] = deque(maxlen=samples)
        self._lock = threading.RLock()
        self.total = 0.0
        self.count = 0

    @property
    def lock(self) -> Lock:
        """The lock that :meth:`record` acquires."""
        return self._lock

    def record(self, value: float, now_ms: int) -> None:
        self._add(value, 1, value, now_ms)

    def record_all(self, values: Sequence[float], now_ms: int) -> None:
        self._add(sum(values), len(values), max(values), now_ms)

    def _add(self, total: float, count: int, maximum: float, now_ms: int) -> None:
        with self._lock:
            window = self._windows[-1] if self._windows else None
            if window is None or now_ms - window.start_ms >= self._window_ms:
                window = _Window(now_ms)
                self._windows.append(window)
            window.total += total
            window.count += count
            window.maximum = max(window.maximum, maximum)
            self.total += total
            self.count += count

    def average(self, now_ms: int) -> float:
        """Mean of the recorded values; NaN if there are none."""
        windows = self._recent(now_ms)
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else float("nan")

    def maximum(self, now_ms: int) -> float:
        """Largest recorded value; NaN if there is none."""
        return max((window.maximum for window in self._recent(now_ms)), default=float("nan"))

    def rate(self, now_ms: int) -> float:
        """Sum of the recorded values per second."""
        windows = self._recent(now_ms)
        return sum(window.total for window in windows) / self._span_seconds(windows, now_ms)

    def frequency(self, now_ms: int) -> float:
        """Number of recorded values per second."""
        windows = self._recent(now_ms)
        return sum(window.count for window in windows) / self._span_seconds(windows, now_ms)

    def _recent(self, now_ms: int) -> list[_Window]:
        with self._lock:
            return [window for window in self._windows if now_ms - window.start_ms < self._samples * self._window_ms]

    def _span_seconds(self, windows: list[_Window], now_ms: int) -> float:
        """The time span of *windows*. At first, missing windows count as empty ones, so that rates start low."""
        elapsed_ms = now_ms - windows[0].start_ms if windows else 0
        missing = max(self._samples - 1 - elapsed_ms // self._window_ms, 0)
        return max(elapsed_ms + missing * self._window_ms, self._window_ms) / 1000


class IdleMeter:
    """The fraction of time that one thread waits for work, over the last 30 to 60 seconds.

    The thread reports when it begins and ends a wait; any thread may read. Instants are ns of the stopwatch.
    """

    __slots__ = ("_before", "_idle_ns", "_started_ns", "_waiting_since_ns")

    def __init__(self, now_ns: int) -> None:
        self._started_ns = now_ns
        self._idle_ns = 0
        #: Idle time and length of the previous window, ns.
        self._before = (0, 0)
        #: Start of the current wait; 0 while the thread works.
        self._waiting_since_ns = 0

    def begin_wait(self, now_ns: int) -> None:
        self._waiting_since_ns = now_ns

    def end_wait(self, now_ns: int) -> None:
        self._idle_ns += now_ns - self._waiting_since_ns
        self._waiting_since_ns = 0
        if now_ns - self._started_ns > _IDLE_WINDOW_NS:
            self._before = (self._idle_ns, now_ns - self._started_ns)
            self._started_ns, self._idle_ns = now_ns, 0

    def share(self, now_ns: int) -> float:
        """The fraction, from 0 to 1; 1 if no time has passed."""
        before_ns, before_length_ns = self._before
        waiting_since_ns = self._waiting_since_ns
        idle_ns = before_ns + self._idle_ns + (now_ns - waiting_since_ns if waiting_since_ns else 0)
        length_ns = before_length_ns + now_ns - self._started_ns
        return min(idle_ns / length_ns, 1.0) if length_ns else 1.0
