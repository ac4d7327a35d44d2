"""The only maker of threads.

A thread is a shell round a step that takes ``now`` and does bounded work; whatever it does is testable without it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def fork_count() -> int:
    """How many forks lie between this process and the first: what has changed since a thread was started is not in the
    process that runs it. Cheaper than asking the system for the process id.
    """
    return _forks


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
