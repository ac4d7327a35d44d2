"""A clock that advances only when a test advances it or a thread waits; a test may script the waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from kafka_sink.common.clock import FOREVER_MS

#: Real seconds after which a wait without end fails the test, which would hang otherwise.
_PATIENCE_S = 60.0


def on_another_thread(action: Callable[[], object]) -> None:
    """Run *action* to its end on a thread of its own, and raise its exception, if any."""
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


class FakeClock:
    """Both times start at *start_ms*.

    A wait runs the next of ``actions`` with the condition's lock released, on another thread, and ends as notified.
    Without an action the clock advances by the time-out of the wait; a wait without time-out needs a notification from
    another thread. If several threads wait for each other, the clock is *shared*: a wait ends by a notification, or
    when :meth:`advance` reaches its time-out.
    """

    def __init__(self, start_ms: int = 1_000_000, *, shared: bool = False) -> None:
        self.now_ms = start_ms
        self.actions: deque[Callable[[], object]] = deque()
        self.waits: list[int] = []
        self._is_shared = shared
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
        """Block until another thread has reached its next wait."""
        assert self._somebody_waits.wait(_PATIENCE_S), "nobody waits"

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        self.waits.append(timeout_ms)
        if self.actions:
            condition.release()
            try:
                on_another_thread(self.actions.popleft())
            finally:
                condition.acquire()
            return True
        deadline_ms = self.now_ms + timeout_ms
        if self._is_shared or timeout_ms >= FOREVER_MS:
            self._wait_for_others(condition)
        else:
            self.now_ms = deadline_ms
        return self.now_ms < deadline_ms

    def _wait_for_others(self, condition: threading.Condition) -> None:
        self._waiting.add(condition)
        self._somebody_waits.set()
        try:
            assert condition.wait(_PATIENCE_S), "waited for something that never came"
        finally:
            self._waiting.discard(condition)
            self._somebody_waits.clear()
