"""Something that happens at every line of a call, one line in each run: an interrupt, or a signal handler."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

_OURS = "/kafka_sink/"


class Points:
    """Lines of ``kafka_sink`` that the calling thread executes in a call; at line number *point* it does *strike*.

    :param opcodes: names of files of which every opcode is a point, instead of every line; also of Python's own.
    """

    def __init__(self, point: int, strike: Callable[[], None], opcodes: Collection[str] = ()) -> None:
        self._left = point
        self._strike = strike
        self._opcodes = opcodes
        #: Where it struck; None while it has not.
        self.struck: str | None = None

    def during(self, call: Callable[[], object]) -> object:
        """What *call* returns; the call has no more points than there were once it does so without a strike."""
        before = sys.gettrace()
        # Python 3.12 makes events of bytecodes only if a frame has asked for them before.
        own = inspect.currentframe()
        assert own is not None
        own.f_trace_opcodes = bool(self._opcodes)
        sys.settrace(self._entered)
        try:
            return call()
        finally:
            sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if self.struck is not None:
            return None
        if name.rpartition("/")[2] in self._opcodes:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._at
        return self._at if _OURS in name else None

    def _at(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event in ("line", "opcode") and self.struck is None:
            self._left -= 1
            if self._left < 0:
                code = frame.f_code
                self.struck = f"{code.co_filename.rpartition('/')[2]}:{frame.f_lineno} ({code.co_name})"
                self._strike()
        return self._at


def interrupt() -> None:
    raise KeyboardInterrupt
