"""Where a line can be shown that is overwritten again and again: a terminal or a notebook.

Called by the thread of a progress line.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final, Protocol, TextIO

_COLUMNS: Final = 80


class Screen(Protocol):
    """Shows one line."""

    def show(self, text: str) -> None:
        """Replace the line by *text*."""

    def end(self, text: str) -> None:
        """Remove the line from a terminal; in a notebook, whose output stays, replace it by *text*."""


class Terminal:
    """The last line of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def show(self, text: str) -> None:
        # A longer text would begin a second line, which cannot be overwritten.
        shown = text[: self._columns() - 1]
        self._stream.write(f"\r{shown:<{self._width}}")
        self._stream.flush()
        self._width = len(shown)

    def end(self, text: str) -> None:
        if self._width:
            self._stream.write(f"\r{'':<{self._width}}\r")
            self._stream.flush()
            self._width = 0

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            return _COLUMNS


class Notebook:
    """An output of its own below the cell that runs."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, text: str) -> None:
        if text == self._shown:
            # Some front ends append each update to the output.
            return
        self._shown = text
        if self._handle is None:
            # It belongs to the notebook: kafkalite does not require it.
            self._handle = importlib.import_module("IPython.display").display(
                {"text/plain": text}, raw=True, display_id=True
            )
        else:
            self._handle.update({"text/plain": text}, raw=True)

    def end(self, text: str) -> None:
        if self._handle is not None:
            self.show(text)


def find_screen() -> Screen | None:
    """The notebook or the terminal of this process; None if there is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # IPython on a terminal has a shell without a kernel.
    if hasattr(shell, "kernel"):
        return Notebook()
    is_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Terminal(sys.stderr) if is_terminal else None
