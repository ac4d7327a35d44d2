"""Loggers that prefix every line with their context, like Kafka's LogContext; and warnings about values that are read
repeatedly, such as the options of a stream: within :func:`once` each is logged once, and outside of it always.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from kafka_sink.common.bounded import Latest


class ContextLogger(logging.LoggerAdapter[logging.Logger]):
    """Prefixes each message with ``[context] ``."""

    def __init__(self, name: str, context: str) -> None:
        super().__init__(logging.getLogger(name))
        self._prefix = f"[{context}] " if context else ""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{self._prefix}{msg}", kwargs


#: After more texts than this the first ones are logged again: texts may have changing parts, such as topics.
_MOST: Final = 1000


class Said:
    """Messages that were logged before. *all_of_it*: another process logs all of them, so none is new here."""

    def __init__(self, *, all_of_it: bool = False) -> None:
        self._texts: Latest[str, bool] = Latest(_MOST)
        self._all_of_it = all_of_it

    def is_new(self, text: str) -> bool:
        """Whether *text* has to be logged now."""
        if self._all_of_it or self._texts.get(text):
            return False
        return self._texts.put(text, True)


_said: Final[ContextVar[Said | None]] = ContextVar("said", default=None)


@contextmanager
def once(said: Said) -> Iterator[None]:
    """Within it, warnings that *said* contains are not logged again."""
    token = _said.set(said)
    try:
        yield
    finally:
        _said.reset(token)


def warn(log: logging.Logger, text: str, *values: object) -> None:
    """Log a warning, unless it was logged before; *text* has a placeholder for each of *values*, as in logging."""
    said = _said.get()
    if said is None or said.is_new(text % values):
        log.warning(text, *values)
