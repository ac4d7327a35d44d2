"""What the writes of a stream come to, as metrics: totals since the first line, and the values of the last batch.

Owned by one reader of a report, on its thread.

Source: https://prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafka_sink.common.metrics import Metric
from kafka_sink.reports.writes import SourceLag, Write

_GROUP: Final = "sink"


class StreamFigures:
    """The families ``kafka_sink_…`` of one stream; *tags* are the labels of all their samples."""

    def __init__(self, *tags: tuple[str, str]) -> None:
        self._tags = tags
        self._totals = dict.fromkeys(
            ("batches", "skipped-batches", "failed-batches", "torn-batches", "missing-batches", "rows", "bad-rows"), 0
        )
        self._totals |= {"bytes": 0, "wire-bytes": 0}
        self._offsets: dict[str, int] = {}
        self._last: Write | None = None
        self._lag: int | None = None

    def add(self, line: Write | SourceLag) -> None:
        """The next line of the report is *line*."""
        if isinstance(line, SourceLag):
            self._lag = line.lag
            return
        if line.is_failed:
            self._totals["failed-batches"] += 1
            return
        self._totals["batches"] += 1
        self._totals["skipped-batches"] += line.decision in ("skipped", "older")
        self._totals["torn-batches"] += line.is_torn
        self._totals["missing-batches"] += line.missing_since(self._last)
        self._totals["rows"] += line.rows
        self._totals["bad-rows"] += line.bad_rows
        self._totals["bytes"] += line.record_bytes
        self._totals["wire-bytes"] += line.wire_bytes
        self._offsets.update((name, part.last_offset) for name, part in line.partitions.items())
        self._last = line

    def metrics(self) -> Iterator[Metric]:
        """The current values; only totals before the first batch."""
        for name, value in self._totals.items():
            yield self._metric(f"{name}-total", value)
        if self._lag is not None:
            yield self._metric("source-lag-rows", self._lag)
        if (last := self._last) is None:
            return
        yield self._metric("last-batch", last.batch)
        yield self._metric("last-batch-rows", last.rows)
        if last.timestamp_ms is not None:
            yield self._metric("last-commit-timestamp-seconds", last.timestamp_ms / 1000)
        yield self._metric("write-seconds", last.elapsed_ms / 1000)
        yield self._metric("commit-seconds", last.commit_ms / 1000)
        for share, ms in (("0.5", last.ack_p50_ms), ("0.99", last.ack_p99_ms)):
            if ms is not None:
                yield self._metric("ack-seconds", ms / 1000, ("quantile", share))
        for name, offset in sorted(self._offsets.items()):
            yield self._metric("last-offset", offset, ("partition", name))

    def _metric(self, name: str, value: float, *tags: tuple[str, str]) -> Metric:
        return Metric(name, _GROUP, (*self._tags, *tags), value)
