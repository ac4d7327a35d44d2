"""A clock that goes on only when a test says so, or when somebody waits; waits may be plays. For one thread: where
several wait for each other, see ``fakes/clock.py``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from kafka_sink.common.clock import FOREVER_MS

#: Real seconds after which another thread waits for something that this one keeps.
_PATIENCE_S = 10.0


def on_another_thread(action: Callable[[], object]) -> None:
    """Run *action* to its end on a thread of its own, and raise what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    assert not thread.is_alive(), "another thread waits for what this one keeps"
    if raised:
        raise raised[0]


class ManualClock:
    """Both times start at *start_ms*.

    A wait runs the next of ``actions`` with the condition's lock released, by another thread, and ends as
    notified; without one it passes its whole time-out at once, and one that has no end has to be ended by somebody.
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
        if self.actions:
            condition.release()
            try:
                on_another_thread(self.actions.popleft())
            finally:
                condition.acquire()
            return True
        if timeout_ms >= FOREVER_MS:
            # Only another thread can end this one; a test that gets here without one would hang.
            if not condition.wait(10):
                raise AssertionError("nobody ended a wait that has no end")
            return True
        self.now_ms += timeout_ms
        return False
