"""Starts threads; the only module that does.

A thread is a loop around a step that takes ``now`` and does bounded work, so the step is testable without a thread.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock

T = TypeVar("T")

#: How long the interpreter's exit may wait for all threads together, ms.
EXIT_LIMIT_MS: Final = 5_000

_log = logging.getLogger(__name__)


class Thread(Protocol):
    """The part of :class:`threading.Thread` that the owner of a thread uses."""

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


class Loop(Protocol):
    """The work of a thread that runs until its owner ends it."""

    def run(self) -> None:
        """Run until the owner ends it."""

    def end_with_program(self) -> None:
        """Make :meth:`run` return, because the program ends."""


#: Starts a loop on a thread of a name, as :func:`start_loop`.
StartThread = Callable[[str, Loop], Thread]


class ProcessThreads:
    """The threads of one process, and the callbacks for its forks and its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Running threads with a callback for the interpreter's exit.
        self._told_of_exit: dict[threading.Thread, Callable[[], None]] = {}
        self._told_of_forks: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
        # Re-entrant: a signal handler may fork while its thread is in such a block.
        self._forks = threading.RLock()

    def start(
        self, name: str, run: Callable[[], object], *, at_exit: Callable[[], None] | None = None
    ) -> threading.Thread:
        """Start and return a thread; an exception that escapes *run* is logged with the thread's name.

        :param at_exit: called when the interpreter exits while the thread is running, to make *run* return: a daemon
            thread is stopped soon afterwards, at an arbitrary point.
        """

        def shell() -> None:
            try:
                run()
            except Exception:
                _log.exception("uncaught exception in thread %s", name)
            finally:
                self._told_of_exit.pop(threading.current_thread(), None)

        thread = threading.Thread(target=shell, name=name, daemon=True)
        if at_exit is not None:
            self._told_of_exit[thread] = at_exit
        try:
            thread.start()
        except BaseException:
            self._told_of_exit.pop(thread, None)
            raise
        return thread

    def at_fork(self, owner: T, tell: Callable[[T], None]) -> None:
        """Call *tell* with *owner* in every process that is forked from this one, because its threads do not exist
        there.

        This is cheaper for *owner* than reading the process id repeatedly.
        """
        self._told_of_forks[owner] = tell

    def no_forks(self) -> AbstractContextManager[object]:
        """A block during which no other thread forks, for opening a file or socket and passing it to :meth:`at_fork`.

        A child forked between the two steps would keep its copy until it ends. Forks wait for the block, so it must
        not wait for anything itself.
        """
        return self._forks

    def before_fork(self) -> None:
        """Called by a thread that is about to fork."""
        self._forks.acquire()

    def forked_in_parent(self) -> None:
        """Called by the thread that has forked, or could not."""
        self._forks.release()

    def forked(self) -> None:
        """Called in a forked child, where no thread but the current one exists."""
        self._forks = threading.RLock()
        self._told_of_exit.clear()
        for owner, tell in list(self._told_of_forks.items()):
            try:
                tell(owner)
            except Exception:
                # The other owners have to release what belongs to the parent nevertheless.
                _log.exception("the fork hook of %s failed", type(owner).__name__)

    def end(self) -> None:
        """Called at the interpreter's exit, which stops daemon threads at an arbitrary point afterwards."""
        threads = list(self._told_of_exit.items())
        for thread, tell in threads:
            try:
                tell()
            except Exception:
                _log.exception("the exit hook of thread %s failed", thread.name)
        # One limit for all threads: with a limit for each, a hundred blocked threads would delay the exit for minutes.
        deadline_ms = self._clock.monotonic_ms() + EXIT_LIMIT_MS
        for thread, _ in threads:
            if not thread.is_alive():
                continue
            thread.join(max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000)
            if thread.is_alive():
                _log.warning(
                    "thread %s did not end within %d ms; the program exits without it", thread.name, EXIT_LIMIT_MS
                )


_THREADS: Final = ProcessThreads(SYSTEM_CLOCK)
atexit.register(_THREADS.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_THREADS.before_fork, after_in_parent=_THREADS.forked_in_parent, after_in_child=_THREADS.forked
    )


start_thread: Final = _THREADS.start
at_fork: Final = _THREADS.at_fork
no_forks: Final = _THREADS.no_forks


def start_loop(name: str, loop: Loop) -> Thread:
    """Start a thread for *loop*, which is ended when the interpreter exits; see :func:`start_thread`."""
    return start_thread(name, loop.run, at_exit=loop.end_with_program)
