"""The only maker of threads.

A thread is a shell round a step that takes ``now`` and does bounded work; whatever it does is testable without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


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
