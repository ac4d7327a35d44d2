"""Requests that wait for something without holding a thread: fetches that want more bytes than there are.

Handlers put operations in; whoever changes a partition checks it (on its own thread), and the timer ends those whose
time is up. An operation is completed once, by whoever gets there first. Must never be called with a log's lock held.

Source: apache/kafka ``DelayedOperationPurgatory``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final

from kafka_sink.broker.timer import Timer
from kafka_sink.common.model import TopicPartition


class DelayedOperation:
    """*finish* runs once: as soon as *satisfied* says so when somebody checks, or when the time is up."""

    __slots__ = ("_completed", "_finish", "_lock", "_satisfied", "keys")

    def __init__(self, satisfied: Callable[[], bool], finish: Callable[[], None]) -> None:
        #: Where the purgatory watches it (its own note).
        self.keys: Collection[TopicPartition] = ()
        self._satisfied = satisfied
        self._finish = finish
        self._lock: Final = threading.Lock()
        self._completed = False

    @property
    def completed(self) -> bool:
        return self._completed

    def try_complete(self) -> bool:
        """Finish if what was waited for is there; says whether the operation is over."""
        if self._completed:
            return True
        return self._satisfied() and self.force_complete()

    def force_complete(self) -> bool:
        """Finish in any case; True, because the operation is over then."""
        with self._lock:
            if self._completed:
                return True
            self._completed = True
            finish = self._finish
            # Its deadline lies ahead, and until then the timer must not keep a request that is answered in memory.
            self._satisfied, self._finish = _over, _nothing
        finish()
        return True


def _over() -> bool:
    return True


def _nothing() -> None:
    """There is nothing left to finish."""


class DelayedOperationPurgatory:
    """Operations by the partitions whose change may complete them."""

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
        # What it waits for may have happened before it was watched.
        if operation.try_complete():
            self._forget((operation,))
            return

        def expire() -> None:
            operation.force_complete()
            self._forget((operation,))

        self._timer.schedule(deadline_ms, expire)

    def check(self, key: TopicPartition) -> None:
        """*key* has changed: complete what is satisfied now."""
        # Producing to a partition nobody waits for is the usual case, and must not take a lock.
        if key not in self._watchers:
            return
        with self._lock:
            operations = tuple(self._watchers.get(key, ()))
        over = [operation for operation in operations if operation.try_complete()]
        if over:
            self._forget(over)

    @property
    def watched(self) -> int:
        """Operations that wait, counted once per partition."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    def _forget(self, operations: Iterable[DelayedOperation]) -> None:
        # On all its partitions: on one that nothing is written to nobody would ever look for what is over.
        with self._lock:
            for operation in operations:
                keys, operation.keys = operation.keys, ()
                for key in keys:
                    watchers = self._watchers.get(key)
                    if watchers is not None:
                        watchers.pop(operation, None)
                        if not watchers:
                            del self._watchers[key]
