"""Ends the Python process of a task that Spark has given up, so that it sends no more rows.

Spark ends a cancelled task of a stream in the JVM at once and closes the connection to its Python worker, which notices
that when it next reads rows: one batch of Arrow may be seconds of writing. A thread of the process waits for the
connection's end instead, once per process, at no cost. The end comes behind the rows that the JVM has written, so a
worker with a full connection goes on until it has read them. macOS does not report the end before they are read.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Iterator
from typing import Final

from kafka_sink.common.threads import at_fork, start_thread
from kafka_sink.spark.task.worker_process import worker_socket

#: The peer has closed its end. Linux only.
_CLOSED_BY_PEER: Final[int | None] = getattr(select, "POLLRDHUP", None)


def _end_process() -> None:
    # As Spark ends a worker itself: nothing may wait for a broker any more.
    os._exit(1)


class AbandonedWorker:
    """Watches this process's connection to the JVM while a task writes; *end* ends the process."""

    def __init__(self, end: Callable[[], None] = _end_process) -> None:
        self._end = end
        self._is_writing = False
        self._watched: int | None = None
        at_fork(self, AbandonedWorker._forget)

    def _forget(self) -> None:
        self._is_writing, self._watched = False, None

    @contextlib.contextmanager
    def ended_during_task(self) -> Iterator[None]:
        """The process is ended if Spark closes the connection during the block."""
        connection = None if _CLOSED_BY_PEER is None else worker_socket()
        watched = None if connection is None else connection.fileno()
        if watched is not None and watched != self._watched:
            self._watched = watched
            start_thread("kafkalite-task-watch", lambda: self._watch(watched))
        self._is_writing = True
        try:
            yield
        finally:
            self._is_writing = False

    def _watch(self, descriptor: int) -> None:
        assert _CLOSED_BY_PEER is not None
        poller = select.poll()
        # Errors are reported, too.
        poller.register(descriptor, _CLOSED_BY_PEER)
        poller.poll()
        if self._is_writing and descriptor == self._watched:
            self._end()


#: This process.
abandoned_worker: Final = AbandonedWorker()
