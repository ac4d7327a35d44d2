"""Interrupts that are dropped, or become another error, before they reach a write.

Python drops an exception that a signal handler raises within a finalizer, and Py4J has a finalizer for each Java object
that the driver has seen. Within a call, Py4J closes the connection, which may fail: its error then hides the interrupt.
Used on the driver; in any thread but the main one there is nothing to do, because signal handlers run in that.

Source: https://docs.python.org/3/reference/datamodel.html#object.__del__ and ``py4j.java_gateway.JavaObject``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self


class Interrupts:
    """Remembers what the handler of SIGINT raises within the body, so that :meth:`check` raises what was dropped."""

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], object] | None = None
        self._raised: BaseException | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        assert self._handler is not None
        try:
            self._handler(number, frame)
        except BaseException as error:
            self._raised = error
            raise

    def check(self) -> None:
        """Raise again what the handler has raised, if it was dropped."""
        if self._raised is not None:
            raise self._raised

    def behind(self, error: BaseException) -> BaseException:
        """What the handler has raised if *error* was raised in response to it, else *error*."""
        context: BaseException | None = error
        while context is not None:
            if context is self._raised:
                return context
            context = context.__context__
        return error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        if kind is None and self._raised is not None:
            self._raised.args = self._raised.args or ("the interrupt came too late: everything was done",)
            raise self._raised
