"""Settings of a partition's log for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kafka_sink.broker.log.partition_log import LogConfig

NEVER: Final = 2**63 - 1
_CONFIG: Final = LogConfig(
    segment_bytes=400,
    segment_ms=604_800_000,
    index_interval_bytes=100,
    flush_interval_messages=NEVER,
    flush_interval_ms=NEVER,
    retention_bytes=-1,
    retention_ms=-1,
    log_append_time=False,
    producer_expiration_ms=86_400_000,
)


def log_config(**changes: Any) -> LogConfig:
    """Small segments that are kept and never flushed, but for *changes*."""
    return replace(_CONFIG, **changes)
