"""Waiting for the signal that ends a command which runs until then.

Used on the main thread only, which has the handlers of signals.
"""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """The first stop signal ends :meth:`wait`; the second one ends the process.

    The first signal also counts while the cluster is still starting. It is transferred through a pipe: a signal handler
    may run while the main thread holds any lock, so it must not acquire one.
    """

    def __enter__(self) -> StopSignals:
        self._received = 0
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self._writer = writer
        self._previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._previous_fd)
        os.close(self._writer)
        os.close(self._reader)

    def wait(self) -> None:
        """Return once a stop signal has arrived."""
        os.read(self._reader, 1)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._received += 1
        if self._received > 1:
            os._exit(128 + number)
