"""Loggers that prefix every line with their context, like Kafka's LogContext."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class ContextLogger(logging.LoggerAdapter[logging.Logger]):
    """Prefixes each message with ``[context] ``."""

    def __init__(self, name: str, context: str) -> None:
        super().__init__(logging.getLogger(name))
        self._prefix = f"[{context}] " if context else ""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return f"{self._prefix}{msg}", kwargs
