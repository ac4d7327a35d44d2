"""The lines that Spark's Python processes write to their standard error.

Nobody configures logging in these processes: Python would print warnings without time, level and logger. Where Spark
collects the lines itself (``spark.sql.pyspark.worker.logging.enabled``, from Spark 4.1 on), or somebody else has
configured logging, they go only there.

Source: PySpark's ``pyspark/logger/worker_io.py``, which adds its handler to the root logger for the time of a task.
"""

from __future__ import annotations

import logging
import os
from typing import Final

#: The least level of the lines, by the name that Python's logging has for it.
LEVEL_VARIABLE: Final = "KAFKALITE_LOG_LEVEL"

#: As the lines of Spark's own log.
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"

_package: Final = logging.getLogger("kafka_sink")


class _StandardErrorHandler(logging.Handler):
    """Writes as Python's handler of last resort does, with time, level and logger."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT, _TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers and logging.lastResort is not None:
            # Found anew for each line: Spark replaces sys.stderr for the time of a task.
            stream = getattr(logging.lastResort, "stream", None)
            if stream is not None:
                stream.write(f"{self.format(record)}\n")
                stream.flush()


def configure() -> None:
    """Give the lines of this process time, level and logger; the environment says the least level. Never raises."""
    if any(isinstance(each, _StandardErrorHandler) for each in _package.handlers):
        return
    _package.addHandler(_StandardErrorHandler())
    level = os.environ.get(LEVEL_VARIABLE, "").strip().upper()
    known = logging.getLevelNamesMapping()
    if level in known:
        _package.setLevel(known[level])
    elif level:
        _package.warning("%s=%s is not a level of logging; expected one of %s", LEVEL_VARIABLE, level, ", ".join(known))
