"""A clock that only goes on when a test says so, for one thread or for several."""

from __future__ import annotations

import threading

#: Real seconds after which a wait that nobody ends is a failed test instead of one that hangs.
_PATIENCE_S = 10.0


class FakeClock:
    """Both times start at *start_ms*. Waits end by a notification, or when :meth:`advance` reaches their time-out."""

    def __init__(self, start_ms: int = 1_000_000) -> None:
        self.now_ms = start_ms
        self._waiting: set[threading.Condition] = set()
        self._somebody_waits = threading.Event()

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        for condition in list(self._waiting):
            with condition:
                condition.notify_all()

    def until_somebody_waits(self) -> None:
        """Let another thread get as far as its next wait."""
        assert self._somebody_waits.wait(_PATIENCE_S), "nobody waits"

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        deadline_ms = self.now_ms + timeout_ms
        self._waiting.add(condition)
        self._somebody_waits.set()
        try:
            assert condition.wait(_PATIENCE_S), "waited for something that never came"
        finally:
            self._waiting.discard(condition)
            self._somebody_waits.clear()
        return self.now_ms < deadline_ms
