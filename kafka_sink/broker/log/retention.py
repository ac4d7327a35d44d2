"""Determines the segments of a log that exceed the retention time or size.

The log calls it under its lock. Pure. The active segment must never be included, because the log continues there.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.broker.log.segment import Segment
from kafka_sink.common.model import NO_TIMESTAMP


def expired_segments(segments: Sequence[Segment], retention_bytes: int, retention_ms: int, wall_ms: int) -> int:
    """The number of oldest *segments* to delete; limits are ``retention.bytes`` and ``retention.ms``, −1 for none."""
    total = sum(segment.size for segment in segments)
    for count, segment in enumerate(segments[:-1]):
        too_large = retention_bytes >= 0 and total - segment.size >= retention_bytes
        dated = segment.max_timestamp != NO_TIMESTAMP
        too_old = retention_ms >= 0 and dated and wall_ms - segment.max_timestamp > retention_ms
        if not (too_large or too_old):
            return count
        total -= segment.size
    return len(segments) - 1
