"""Keeps the producer of a task for the next task of this worker process, as Spark's own sink does.

A task that has written all of its rows leaves its producer: connections with their TLS sessions and their
authentication, cluster metadata, producer id and sequences, and the sender thread. The next task with the same
properties continues with it. While a task runs, nobody else uses its producer. Nothing of a task that failed or was
interrupted is kept, and a forked process begins without producers.

Used by the single thread on which Spark runs a worker's tasks, and by a thread that closes producers unused for
:data:`MOST_IDLE_MS`. No secret is stored outside the producers themselves.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.locks import leaves
from kafka_sink.common.threads import at_fork, start_thread
from kafka_sink.producer.task_producer import TaskProducer

#: Spark itself ends a worker after one minute without a task.
MOST_IDLE_MS: Final = 30_000

#: Each has a thread, connections and the memory of its batches.
MOST_PRODUCERS: Final = 10

#: A task requests metadata again that is older. It does not wait for the answer, so its first rows may still be
#: distributed over the partitions that were known before.
MOST_AGE_MS: Final = 30_000

_log = logging.getLogger(__name__)


class KeptProducers:
    """At most one idle producer for each key, a set of properties with the state of the files that they name, and at
    most :data:`MOST_PRODUCERS` in all: the latest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        at_fork(self, KeptProducers._forked)
        self._forked()

    def _forked(self) -> None:
        # The producers belong to the parent process: they are neither used nor closed here.
        self._changed = threading.Condition()
        self._idle: dict[bytes, tuple[TaskProducer, int]] = {}
        self._taken: TaskProducer | None = None
        self._closer: threading.Thread | None = None

    @leaves("_changed")
    def take(self, key: bytes) -> TaskProducer | None:
        """The producer of the last task with this key; None if there is none that can continue."""
        self.give_up()
        with self._changed:
            if key in self._idle:
                # In this order: wherever an interrupt strikes, the producer is known here and can be closed.
                self._taken = self._idle[key][0]
                del self._idle[key]
        if self._taken is not None and not self._taken.can_go_on(MOST_AGE_MS):
            self.give_up()
        return self._taken

    @leaves("_changed")
    def keep(self, key: bytes, producer: TaskProducer) -> None:
        """Keep the producer of a task that has written all of its rows, under the key with which the task began."""
        producer.rest()
        with self._changed:
            before, _ = self._idle.pop(key, (None, 0))
            if len(self._idle) == MOST_PRODUCERS:
                before, _ = self._idle.pop(next(iter(self._idle)))
            self._idle[key] = (producer, self._clock.monotonic_ms())
            self._taken = None
            if self._closer is None:
                self._closer = start_thread("kafkalite-idle-producers", self._close_idle)
        if before is not None:
            _close(before)

    def give_up(self) -> None:
        """Close the producer that was taken and not returned: its task has failed or was interrupted."""
        if self._taken is not None:
            _close(self._taken)
            self._taken = None

    def _close_idle(self) -> None:
        """The closing thread; it ends when no producers are kept any more."""
        while True:
            with self._changed:
                now_ms = self._clock.monotonic_ms()
                idle = [key for key, (_, since_ms) in self._idle.items() if now_ms - since_ms >= MOST_IDLE_MS]
                closed = [self._idle.pop(key)[0] for key in idle]
                if not self._idle and not closed:
                    self._closer = None
                    return
                if not closed:
                    oldest_ms = min(since_ms for _, since_ms in self._idle.values())
                    self._clock.wait(self._changed, oldest_ms + MOST_IDLE_MS - now_ms)
            for producer in closed:
                _close(producer)


def _close(producer: TaskProducer) -> None:
    try:
        producer.close(timeout=0)
    except Exception:
        _log.exception("could not close an unused producer")
