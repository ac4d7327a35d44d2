"""The only maker of threads.

A thread is a shell round a step that takes ``now`` and does bounded work; whatever it does is testable without it.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


_told_of_forks: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def at_fork(owner: T, tell: Callable[[T], None]) -> None:
    """Call *tell* with *owner* in every process that is forked from this one: its threads are not there.

    Cheaper for *owner* than asking the system for the process id over and over.
    """
    _told_of_forks[owner] = tell


def _tell_all() -> None:
    for owner, tell in list(_told_of_forks.items()):
        tell(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_all)


def start_thread(name: str, run: Callable[[], None], *, daemon: bool = True) -> threading.Thread:
    """Start and return a thread; an exception that escapes *run* is logged with the thread's name."""

    def shell() -> None:
        try:
            run()
        except Exception:
            _log.exception("uncaught exception in thread %s", name)

    thread = threading.Thread(target=shell, name=name, daemon=daemon)
    thread.start()
    return thread
