"""Whether Spark keeps the rows of an atomic write until they are written.

They are blocks of executors: what a local checkpoint holds cannot be computed again, because a stage that Spark runs
again would be a second writer. Dynamic allocation removes executors that have nothing to do, with their blocks.

Used on the driver. Source: apache/spark ``ExecutorMonitor``, ``spark.dynamicAllocation.cachedExecutorIdleTimeout``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafka_sink.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENABLED: Final = "spark.dynamicAllocation.enabled"
_TIMEOUT: Final = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
#: A block waits for its task while the tasks before it write; Spark's default for executors without blocks.
_SHORTEST_S: Final = 60
_TIME: Final = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
#: Spark's suffixes of times, in seconds.
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def require_kept_blocks(spark: SparkSession) -> None:
    """:raises ConfigError: if Spark may remove executors whose rows are still to be written."""
    if str(spark.conf.get(_ENABLED, "false")).lower() != "true":
        return
    text = str(spark.conf.get(_TIMEOUT, "")).lower()
    found = _TIME.fullmatch(text)
    if found is not None and int(found[1]) * _UNITS.get(found[2], _SHORTEST_S) < _SHORTEST_S:
        raise ConfigError(
            f"{_TIMEOUT}={text} and atomic=True do not go together, because Spark would remove executors with rows "
            f"that are still to be written: remove the setting (the default keeps them) or set it to {_SHORTEST_S}s or "
            "more, or atomic=False, which also writes once, with one transaction per task"
        )
