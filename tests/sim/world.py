"""Time, chance and what happens when: everything in a simulated run that is not the code under test.

One thread, no real waiting. Whoever wants something to happen puts it on the agenda; the simulated network works the
agenda off while the sender waits in its poll. Nothing in here knows a producer or a broker.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable

from kafka_sink.common.clock import FOREVER_MS
from tests.fakes.clock import on_another_thread


class ViolationError(BaseException):
    """The code under test broke a promise. Not an Exception: nothing in that code may catch it."""


class World:
    """One run: its clock, its agenda, its dice and its trace. Implements :class:`kafka_sink.common.clock.Clock`."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        #: Counts events, so that "before" and "after" are known within one millisecond too.
        self.moment = 0
        #: Run while a thread of the application waits until the given time: this is when the sender's thread works.
        self.on_wait: Callable[[int], None] | None = None
        self.trace: list[str] = []
        self._tracing = tracing
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    # --- Clock -------------------------------------------------------------------------------------------------------

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        deadline_ms = min(self.now_ms + timeout_ms, FOREVER_MS)
        if self.on_wait is None:
            raise ViolationError("somebody waits although there is nobody to wait for")
        condition.release()
        try:
            on_wait = self.on_wait
            on_another_thread(lambda: on_wait(deadline_ms))
        finally:
            condition.acquire()
        return self.now_ms < deadline_ms

    # --- agenda ------------------------------------------------------------------------------------------------------

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        """Do *action* at *time_ms*, or as soon as somebody looks after that."""
        heapq.heappush(self._agenda, (time_ms, next(self._numbers), action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, action)

    @property
    def next_event_ms(self) -> int:
        return self._agenda[0][0] if self._agenda else FOREVER_MS

    def run_due(self) -> None:
        """Everything whose time has come, in order."""
        while self._agenda and self._agenda[0][0] <= self.now_ms:
            _, _, action = heapq.heappop(self._agenda)
            self.moment += 1
            action()

    # --- trace -------------------------------------------------------------------------------------------------------

    def note(self, text: str, *values: object) -> None:
        """A line for the reader of a failed run; costs nothing when nobody reads."""
        if self._tracing:
            self.trace.append(f"{self.now_ms - 1_000_000:>8} ms  {text.format(*values)}")

    # --- dice --------------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share
