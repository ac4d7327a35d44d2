"""The writes of a stream as metrics: totals since the first line, and the values of the last batch.

Owned by one reader of a report, on its thread.

Source: https://prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafka_sink.common.metrics import Metric, families
from kafka_sink.reports.writes import SinkProgress, SourceLag

FAMILIES: Final = families(
    "sink",
    {
        "batches-total": "Batches whose rows are all acknowledged, and committed if exactly once. If it does not grow "
        "while the source has rows, the query has ended or waits: see query.exception() and query.status.",
        "skipped-batches-total": "Batches that Spark ran again and that were committed before: nothing was written. "
        "One after a restart is normal; more mean that an older checkpoint was restored.",
        "failed-batches-total": "Failed writes; the report's last line has the error. Spark runs the batch again; if "
        "it fails again, the query ends.",
        "torn-batches-total": "Batches whose partitions have another number of rows than the batch. It must stay 0: "
        "compare the topic with kafkalite verify before you use it.",
        "missing-batches-total": "Batch numbers that are missing in the report. Check whether the file was replaced or "
        "its disk was full; the rows may be in Kafka: kafkalite groups describe shows the last batch.",
        "rows-total": "Rows that the brokers have acknowledged, in batches that have ended well.",
        "bad-rows-total": "Rows that could not be written and were dropped or are dead letters (option onBadRow). If "
        "it grows, read the reason: of a dead letter in its headers, of a dropped row in the executor's log.",
        "bytes-total": "Bytes of these rows before compression.",
        "wire-bytes-total": "Bytes of these rows as they were sent. If it grows against the bytes before compression, "
        "the rows compress worse or the batches are smaller.",
        "source-lag-rows": "Rows that the source had and the last batch did not read. If it grows, the stream is "
        "slower than its source: more cores or partitions, or a higher maxOffsetsPerTrigger.",
        "last-batch": "Number of the last batch; -1 for a write without a number.",
        "last-batch-rows": "Rows of the last batch.",
        "last-commit-timestamp-seconds": "When the last batch ended, seconds since 1970. time() minus it is the age of "
        "the newest batch: if it grows, the source is empty or the query is stalled.",
        "write-seconds": "Time of the last batch's tasks. If it grows with the rows, that is the load; with the same "
        "rows, look at the acknowledgements, then at the query before the sink.",
        "commit-seconds": "Time of the last batch's commit; 0 at least once. If it grows, the coordinators are slow: "
        "look at the brokers of __transaction_state and __consumer_offsets.",
        "ack-seconds": "Time from the hand-over of a row to its acknowledgement in the last batch. If it grows, the "
        "brokers are slow, throttle the client, or replicas lag.",
        "last-offset": "Last offset that the sink wrote in the partition.",
    },
)
_TOTALS: Final = tuple(name for name, family in FAMILIES.items() if family.is_total)


class StreamFigures:
    """The families ``kafka_sink_…`` of one stream; *tags* are the labels of all their samples."""

    def __init__(self, *tags: tuple[str, str]) -> None:
        self._tags = tags
        self._totals = dict.fromkeys(_TOTALS, 0)
        self._offsets: dict[str, int] = {}
        self._last: SinkProgress | None = None
        self._lag: int | None = None

    def add(self, line: SinkProgress | SourceLag) -> None:
        """The next line of the report is *line*."""
        if isinstance(line, SourceLag):
            self._lag = line.lag
            return
        if line.is_failed:
            self._totals["failed-batches-total"] += 1
            return
        self._totals["batches-total"] += 1
        self._totals["skipped-batches-total"] += line.decision in ("skipped", "older")
        self._totals["torn-batches-total"] += line.is_torn
        self._totals["missing-batches-total"] += line.missing_since(self._last)
        self._totals["rows-total"] += line.rows
        self._totals["bad-rows-total"] += line.bad_rows
        self._totals["bytes-total"] += line.record_bytes
        self._totals["wire-bytes-total"] += line.wire_bytes
        self._offsets.update((name, part.last_offset) for name, part in line.partitions.items())
        self._last = line

    def metrics(self) -> Iterator[Metric]:
        """The current values; only totals before the first batch."""
        for name, value in self._totals.items():
            yield self._metric(name, value)
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
        return FAMILIES[name].at(value, *self._tags, *tags)
