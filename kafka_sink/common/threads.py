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
from typing import Any, TypeVar

from kafka_sink.common.clock import SYSTEM_CLOCK

T = TypeVar("T")

#: How long the interpreter's exit may wait for all threads together, ms.
_EXIT_LIMIT_MS = 5_000

_log = logging.getLogger(__name__)

# Running threads with a callback for the interpreter's exit.
_told_of_exit: dict[threading.Thread, Callable[[], None]] = {}

_told_of_forks: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def at_fork(owner: T, tell: Callable[[T], None]) -> None:
    """Call *tell* with *owner* in every process that is forked from this one, because its threads do not exist there.

    This is cheaper for *owner* than reading the process id repeatedly.
    """
    _told_of_forks[owner] = tell


def _tell_all() -> None:
    _told_of_exit.clear()
    for owner, tell in list(_told_of_forks.items()):
        try:
            tell(owner)
        except Exception:
            # The other owners have to release what belongs to the parent nevertheless.
            _log.exception("%s could not be told of the fork", type(owner).__name__)


@atexit.register
def _end_threads() -> None:
    # The interpreter stops daemon threads at an arbitrary point, but only after this function.
    threads = list(_told_of_exit.items())
    for thread, tell in threads:
        try:
            tell()
        except Exception:
            _log.exception("thread %s could not be told of the program's end", thread.name)
    # One limit for all threads: with a limit for each, a hundred blocked threads would delay the exit for minutes.
    deadline_ms = SYSTEM_CLOCK.monotonic_ms() + _EXIT_LIMIT_MS
    for thread, _ in threads:
        if not thread.is_alive():
            continue
        thread.join(max(deadline_ms - SYSTEM_CLOCK.monotonic_ms(), 0) / 1000)
        if thread.is_alive():
            _log.warning("thread %s did not end within %d ms; the program ends without it", thread.name, _EXIT_LIMIT_MS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_all)


def start_thread(
    name: str, run: Callable[[], None], *, daemon: bool = True, at_exit: Callable[[], None] | None = None
) -> threading.Thread:
    """Start and return a thread; an exception that escapes *run* is logged with the thread's name.

    :param at_exit: called when the interpreter exits while the thread is running, to make *run* return: a daemon thread
        is stopped soon afterwards, at an arbitrary point.
    """

    def shell() -> None:
        try:
            run()
        except Exception:
            _log.exception("uncaught exception in thread %s", name)
        finally:
            _told_of_exit.pop(threading.current_thread(), None)

    thread = threading.Thread(target=shell, name=name, daemon=daemon)
    if at_exit is not None:
        _told_of_exit[thread] = at_exit
    try:
        thread.start()
    except BaseException:
        _told_of_exit.pop(thread, None)
        raise
    return thread
