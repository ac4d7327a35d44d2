"""Strikes at every line of a call, one line in each run, with an interrupt or a signal handler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_OURS = "/kafka_sink/"


class Points:
    """Counts the lines of ``kafka_sink`` that the calling thread executes; at line number *point* it calls *strike*.

    :param also: the name of a file of Python's standard library whose lines count, too.
    """

    def __init__(self, point: int, strike: Callable[[], None], also: str = _OURS) -> None:
        self._files = (_OURS, also)
        self._left = point
        self._strike = strike
        #: Where it struck; None while it has not.
        self.struck: str | None = None

    def during(self, call: Callable[[], object]) -> object:
        """Return the result of *call*; if it returns without a strike, *point* was beyond its last line."""
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            return call()
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self.struck is None and any(name in frame.f_code.co_filename for name in self._files):
            return self._at
        return None

    def _at(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and self.struck is None:
            self._left -= 1
            if self._left < 0:
                code = frame.f_code
                self.struck = f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} ({code.co_name})"
                self._strike()
        return self._at


def interrupt() -> None:
    raise KeyboardInterrupt
