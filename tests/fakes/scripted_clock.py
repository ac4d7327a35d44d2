"""A clock whose waits are plays: each runs the next action of a script instead of blocking."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class ScriptedClock:
    """Both times start at *start_ms*. A wait runs the next scripted action with the condition's lock released, as if
    another thread did it, and ends as notified; without one it passes its whole time-out.
    """

    def __init__(self, start_ms: int = 1_000_000) -> None:
        self.now_ms = start_ms
        self.actions: deque[Callable[[], object]] = deque()
        self.waits: list[int] = []

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        self.waits.append(timeout_ms)
        if not self.actions:
            self.now_ms += timeout_ms
            return False
        condition.release()
        try:
            self.actions.popleft()()
        finally:
            condition.acquire()
        return True
