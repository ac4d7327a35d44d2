"""Time, random numbers and scheduled events: the parts of a simulated run that are not the code under test.

There is one thread and no real waiting. Events are scheduled on the agenda; the simulated network runs due events while
the sender waits in its poll. This module is independent of producers and brokers.
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
    """The code under test broke a guarantee. No subclass of Exception, so that this code does not catch it."""


class World:
    """The clock, agenda, random numbers and trace of one run. Implements :class:`kafka_sink.common.clock.Clock`."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        #: Counts events, which orders those within the same millisecond, too.
        self.moment = 0
        #: Called while a thread of the application waits until the given time: it runs the sender's thread.
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
        """Schedule *action* for *time_ms*; it runs in the first :meth:`run_due` at that time or later."""
        heapq.heappush(self._agenda, (time_ms, next(self._numbers), action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, action)

    @property
    def next_event_ms(self) -> int:
        return self._agenda[0][0] if self._agenda else FOREVER_MS

    def run_due(self) -> None:
        """Run all due actions, in order."""
        while self._agenda and self._agenda[0][0] <= self.now_ms:
            _, _, action = heapq.heappop(self._agenda)
            self.moment += 1
            action()

    # --- trace -------------------------------------------------------------------------------------------------------

    def note(self, text: str, *values: object) -> None:
        """Add a line to the trace of a run; without tracing, the text is not formatted."""
        if self._tracing:
            self.trace.append(f"{self.now_ms - 1_000_000:>8} ms  {text.format(*values)}")

    # --- dice --------------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share
