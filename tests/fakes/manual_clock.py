"""A clock that goes on only when a test says so, or when somebody waits for a time-out."""

from __future__ import annotations

import threading

from kafka_sink.common.clock import FOREVER_MS


class ManualClock:
    """Both times start at *start_ms*. A wait with a time-out passes that time at once instead of waiting."""

    def __init__(self, start_ms: int = 1_000_000) -> None:
        self.now_ms = start_ms
        self.waits: list[int] = []

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        self.waits.append(timeout_ms)
        if timeout_ms >= FOREVER_MS:
            # Only another thread can end this one; a test that gets here without one would hang.
            return condition.wait(10)
        self.now_ms += timeout_ms
        return False
