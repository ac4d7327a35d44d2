"""Dynamic allocation must keep the executors that have the rows of an atomic write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.spark.driver.atomic_jobs import require_kept_blocks
from tests.support.cases import with_each


@pytest.mark.behaviour(
    "Exactly once: atomic", "Dynamic allocation that would remove rows to be written is refused before the first one"
)
@with_each(
    ("enabled", "timeout", "is_refused"),
    [
        ("true", "1s", True),
        ("TRUE", "5", True),
        ("true", "59999 ms", True),
        ("true", "60s", False),
        ("true", "1min", False),
        ("true", "1h", False),
        ("true", "infinity", False),
        ("true", None, False),
        ("false", "1s", False),
    ],
)
def test_executors_with_rows_must_be_kept(enabled: str, timeout: str | None, is_refused: bool) -> None:
    given = {"spark.dynamicAllocation.enabled": enabled}
    if timeout is not None:
        given["spark.dynamicAllocation.cachedExecutorIdleTimeout"] = timeout
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=given.get))
    if not is_refused:
        require_kept_blocks(spark)
        return
    with pytest.raises(ConfigError, match=r"remove the setting .* or set it to 60s or more, or atomic=False"):
        require_kept_blocks(spark)
