"""The command line sets up logging for a process of its own; here it shares one with all other tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

LOGGERS = ("", "kafka_sink", "kafka_sink.client", "kafka_sink.network", "kafka_sink.producer")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    handlers = list(root.handlers)
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    root.handlers[:] = handlers
