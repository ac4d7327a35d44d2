"""A timer: one thread for all deadlines of a cluster.

Any thread may schedule actions; :meth:`Timer.run_due` is one iteration of the timer's own thread. Actions must be
short; errors of an action are logged and ignored. While nothing is scheduled the thread sleeps without waking up.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.threads import start_thread


class Timer:
    """Scheduled actions, by due time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = ContextLogger(__name__, "")
        self._changed = threading.Condition()
        # Guarded by the condition's lock.
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = itertools.count()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def schedule(self, at_ms: int, action: Callable[[], None]) -> None:
        """Run *action* at *at_ms* (monotonic) or soon after."""
        with self._changed:
            heapq.heappush(self._due, (at_ms, next(self._sequence), action))
            if self._due[0][0] == at_ms:
                self._changed.notify()

    def run_due(self, now_ms: int) -> int:
        """Run the actions that are due; returns the due time of the next action."""
        while True:
            with self._changed:
                if not self._due or self._due[0][0] > now_ms:
                    return self._due[0][0] if self._due else FOREVER_MS
                _, _, action = heapq.heappop(self._due)
            try:
                action()
            except Exception:
                self._log.exception("a delayed action failed")

    def start(self, name: str) -> None:
        """Start the thread."""
        self._thread = start_thread(name, self._run)

    def _run(self) -> None:
        while not self._stopping:
            self.run_due(self._clock.monotonic_ms())
            with self._changed:
                next_ms = self._due[0][0] if self._due else FOREVER_MS
                now_ms = self._clock.monotonic_ms()
                if not self._stopping and next_ms > now_ms:
                    self._clock.wait(self._changed, next_ms - now_ms)

    def stop(self) -> None:
        """End the thread; actions that are not due yet never run."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
