"""Writes a broker's metrics to a file periodically, for a collector of such files.

Runs on a separate thread until the end of the ``with`` block. The file is replaced atomically, so it is never read
incompletely. A write error is logged and has no other effect.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.files import replace_text
from kafka_sink.common.threads import start_thread

INTERVAL_MS: Final = 10_000

_log = logging.getLogger(__name__)


class MetricsFile:
    """Writes the result of *render* to *path* every :data:`INTERVAL_MS`, and once more at the end; without *path*
    nothing is written."""

    def __init__(self, path: Path | None, render: Callable[[], str], clock: Clock) -> None:
        self._path = path
        self._render = render
        self._clock = clock
        self._changed = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> MetricsFile:
        if self._path is not None:
            self._thread = start_thread("metrics-file", self._run)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        ending = False
        while not ending:
            with self._changed:
                if not self._ending:
                    self._clock.wait(self._changed, INTERVAL_MS)
                ending = self._ending
            self._write()

    def _write(self) -> None:
        assert self._path is not None
        text = self._render()
        try:
            replace_text(self._path, text)
        except OSError as error:
            _log.warning("cannot write metrics to %s: %s", self._path, error)
