"""For every unit test: pytest captures the log as text, also in a process that has run tests of Spark before.

PySpark logs a failed query to loggers that do not propagate and that set a JSON formatter on each handler that is added
to them. pytest adds its own handlers to all loggers that do not propagate.
"""

from __future__ import annotations

import logging

import pytest

#: The loggers of PySpark's ``PySparkException``, which sets ``propagate`` to false whenever it logs.
_LOGGERS_OF_QUERIES = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


@pytest.fixture(autouse=True)
def _log_is_captured_as_text() -> None:
    for name in _LOGGERS_OF_QUERIES:
        if name in logging.root.manager.loggerDict:
            logging.getLogger(name).propagate = True
    for handler in logging.root.handlers:
        if type(handler.formatter).__module__.startswith("pyspark."):
            handler.setFormatter(None)
