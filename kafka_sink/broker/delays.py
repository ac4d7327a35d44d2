"""Delayed work: a timer with one thread for all deadlines of a cluster, and operations that wait without a thread.

Any thread may schedule actions; :meth:`Timer.run_due` is one iteration of the timer's own thread. Actions must be
short; errors of an action are logged and ignored. While nothing is scheduled the thread sleeps without waking up.

Handlers add operations, such as fetches that need more bytes than there are; the thread that changes a partition checks
its operations, and the timer completes those that have timed out. An operation is completed exactly once. The purgatory
must not be called while a log's lock is held.

Source: apache/kafka ``DelayedOperationPurgatory``.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final

from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition
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


class DelayedOperation:
    """*finish* runs once: when a check finds *satisfied* true, or on timeout."""

    __slots__ = ("_lock", "_work", "keys")

    def __init__(self, satisfied: Callable[[], bool], finish: Callable[[], None]) -> None:
        #: The keys under which the purgatory watches it; set by the purgatory.
        self.keys: Collection[TopicPartition] = ()
        self._lock: Final = threading.Lock()
        # None once it is complete: the timer keeps the operation until its deadline, and must not keep an answered
        # request in memory.
        self._work: tuple[Callable[[], bool], Callable[[], None]] | None = (satisfied, finish)

    def try_complete(self) -> bool:
        """Finish if the condition is satisfied; returns whether the operation is complete."""
        work = self._work
        return work is None or (work[0]() and self.force_complete())

    def force_complete(self) -> bool:
        """Finish in any case; returns True, because the operation is complete."""
        with self._lock:
            work, self._work = self._work, None
        if work is not None:
            work[1]()
        return True


class DelayedOperationPurgatory:
    """Operations by the partitions whose changes may complete them."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._watchers: dict[TopicPartition, dict[DelayedOperation, None]] = {}

    def watch(self, operation: DelayedOperation, keys: Collection[TopicPartition], deadline_ms: int) -> None:
        """Complete *operation* when a check of one of *keys* finds it satisfied, at the latest at *deadline_ms*."""
        with self._lock:
            operation.keys = keys
            for key in keys:
                self._watchers.setdefault(key, {})[operation] = None
        # The condition may have become true before the operation was watched.
        if operation.try_complete():
            self._forget((operation,))
            return

        def expire() -> None:
            operation.force_complete()
            self._forget((operation,))

        self._timer.schedule(deadline_ms, expire)

    def check(self, key: TopicPartition) -> None:
        """Complete the satisfied operations of *key*, which has changed."""
        # Usually no operation waits for the partition; that case must not take a lock.
        if key not in self._watchers:
            return
        with self._lock:
            operations = tuple(self._watchers.get(key, ()))
        over = [operation for operation in operations if operation.try_complete()]
        if over:
            self._forget(over)

    @property
    def watched(self) -> int:
        """The number of waiting operations, counted once per partition."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    def _forget(self, operations: Iterable[DelayedOperation]) -> None:
        # Removed from all its partitions, because no check would remove it from a partition without writes.
        with self._lock:
            for operation in operations:
                keys, operation.keys = operation.keys, ()
                for key in keys:
                    watchers = self._watchers.get(key)
                    if watchers is not None:
                        watchers.pop(operation, None)
                        if not watchers:
                            del self._watchers[key]
