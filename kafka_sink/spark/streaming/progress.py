"""The progress of a stream per batch, for the metrics of the user's own program.

Batches are committed in another process than the user's, so the metrics are read from the file of the option reportPath
at each progress event of Spark, on the thread of the event. Errors are logged and never affect the query.
"""

from __future__ import annotations

import json
import logging
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.files import replace_text
from kafka_sink.common.metrics import Metric, render_prometheus
from kafka_sink.common.threads import start_thread
from kafka_sink.spark.result_tables import figures_table, partitions_table
from kafka_sink.spark.streaming.continuous import refuse_continuous
from kafka_sink.spark.task.commit_message import PartitionRange

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SinkProgress:
    """One committed batch. Times in ms; sizes in bytes before compression and as sent.

    *bad_rows* could not be written, and were dropped or are dead letters (option onBadRow); *rows* does not count them.

    *ack_p50_ms* and *ack_p99_ms* are percentiles of the time from the hand-over of a row to the producer to its
    acknowledgement, None if there were no rows. *commit_ms* is 0 if there is nothing to commit (at-least-once).
    *partitions* have names like ``topic-0``.
    """

    batch: int
    decision: Literal["written", "skipped"]
    rows: int
    record_bytes: int
    wire_bytes: int
    tasks: int
    elapsed_ms: int
    commit_ms: int
    ack_p50_ms: int | None
    ack_p99_ms: int | None
    partitions: Mapping[str, PartitionRange] = field(default_factory=dict)
    bad_rows: int = 0

    def _repr_html_(self) -> str:
        """Two tables in a notebook: the figures, and the offsets of each partition."""
        return figures_table(self) + partitions_table(self.partitions)

    @staticmethod
    def of_report(report: Mapping[str, Any]) -> SinkProgress:
        """The progress from one line of a report."""
        return SinkProgress(
            batch=int(report.get("batch", report.get("version", -1))),
            decision="skipped" if report.get("decision") == "skipped" else "written",
            rows=int(report["rows"]),
            record_bytes=int(report["bytes"]),
            wire_bytes=int(report["wire_bytes"]),
            tasks=int(report["tasks"]),
            elapsed_ms=int(report["elapsed_ms"]),
            commit_ms=int(report.get("commit_ms", 0)),
            ack_p50_ms=report["ack_p50_ms"],
            ack_p99_ms=report["ack_p99_ms"],
            partitions={
                name: PartitionRange(part["rows"], part["first"], part["last"])
                for name, part in report["partitions"].items()
            },
            # Lines of earlier releases have none.
            bad_rows=int(report.get("bad_rows", 0)),
        )


class ProgressListener(StreamingQueryListener):
    """See :func:`progress_listener`."""

    def __init__(
        self,
        report_path: str | Path,
        callback: Callable[[SinkProgress], None] | None,
        prometheus_file: str | Path | None,
        tags: Mapping[str, str],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._report = Path(report_path)
        self._callback = callback
        self._figures = None if prometheus_file is None else _Figures(Path(prometheus_file), tags, clock)
        self._lock = threading.Lock()
        # Existing lines were already reported to an earlier program.
        self._offset = self._report.stat().st_size if self._report.exists() else 0

    def __getstate__(self) -> NoReturn:
        # Spark Connect of Spark 3.5 sends a listener to the server, where it would report to nobody.
        raise pickle.PicklingError(
            "a progress_listener cannot be added over Spark Connect before Spark 4.0, which runs listeners in the "
            "program that adds them; call the listener's read_new() from time to time instead"
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Called by Spark within ``start()``. A query cannot be stopped before this method returns, so another thread
        does it."""
        start_thread("look-at-trigger", lambda: self._stop_if_continuous(str(event.id)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Called by Spark after each batch."""
        self.read_new()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Called by Spark from time to time while there is no data."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Called by Spark at the end of a query."""
        self.read_new()

    def read_new(self) -> list[SinkProgress]:
        """Process and return the new lines of the report; can also be called without Spark's events."""
        with self._lock:
            try:
                found = [SinkProgress.of_report(json.loads(line)) for line in self._new_lines()]
                for progress in found:
                    if self._figures is not None:
                        self._figures.add(progress)
                    if self._callback is not None:
                        self._callback(progress)
            except Exception:
                _log.exception("could not pass on the progress in %s", self._report)
                return []
            return found

    def _new_lines(self) -> Iterator[bytes]:
        """The new complete lines; the last line may still be incomplete."""
        if not self._report.exists():
            return
        with self._report.open("rb") as file:
            if self._report.stat().st_size < self._offset:
                self._offset = 0
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        yield from whole.splitlines()

    def _stop_if_continuous(self, query_id: str) -> None:
        query = SparkSession.active().streams.get(query_id)
        if query is not None:
            try:
                refuse_continuous(query)
            except KafkaError as error:
                _log.error("ROWS WERE BEING LOST: %s", error)


class _Figures:
    """A file in Prometheus' text format with the totals since the start and the values of the last batch."""

    def __init__(self, path: Path, tags: Mapping[str, str], clock: Clock) -> None:
        self._path = path
        self._tags = tuple(tags.items())
        self._clock = clock
        self._totals = {"batches-total": 0, "skipped-batches-total": 0, "rows-total": 0, "bytes-total": 0}
        self._totals |= {"wire-bytes-total": 0, "bad-rows-total": 0}
        self._offsets: dict[str, int] = {}

    def add(self, progress: SinkProgress) -> None:
        """:raises OSError: if the file cannot be written."""
        self._totals["batches-total"] += 1
        self._totals["skipped-batches-total"] += progress.decision == "skipped"
        self._totals["rows-total"] += progress.rows
        self._totals["bad-rows-total"] += progress.bad_rows
        self._totals["bytes-total"] += progress.record_bytes
        self._totals["wire-bytes-total"] += progress.wire_bytes
        self._offsets.update((name, part.last_offset) for name, part in progress.partitions.items())
        replace_text(self._path, render_prometheus(self._metrics(progress)))

    def _metrics(self, progress: SinkProgress) -> Iterator[Metric]:
        for name, value in self._totals.items():
            yield self._metric(name, value)
        yield self._metric("last-batch", progress.batch)
        yield self._metric("last-batch-rows", progress.rows)
        yield self._metric("last-commit-timestamp-seconds", self._clock.wall_ms() / 1000)
        yield self._metric("write-seconds", progress.elapsed_ms / 1000)
        yield self._metric("commit-seconds", progress.commit_ms / 1000)
        for share, ms in (("0.5", progress.ack_p50_ms), ("0.99", progress.ack_p99_ms)):
            if ms is not None:
                yield self._metric("ack-seconds", ms / 1000, ("quantile", share))
        for name, offset in sorted(self._offsets.items()):
            yield self._metric("last-offset", offset, ("partition", name))

    def _metric(self, name: str, value: float, *tags: tuple[str, str]) -> Metric:
        return Metric(name, "sink", (*self._tags, *tags), value)


def progress_listener(
    report_path: str | Path,
    *,
    callback: Callable[[SinkProgress], None] | None = None,
    prometheus_file: str | Path | None = None,
    tags: Mapping[str, str] | None = None,
) -> ProgressListener:
    """A listener for ``spark.streams.addListener`` that reports every batch committed by the sink of one query.

    :param report_path: the file of the query's option ``reportPath``; each query needs its own file. The query's driver
        and this program must be on the same machine.
    :param callback: called with each batch, in order, soon after its commit.
    :param prometheus_file: replaced after each batch, for node_exporter's textfile collector, with
        ``kafka_sink_rows_total``, ``kafka_sink_ack_seconds{quantile="0.99"}`` and so on.
    :param tags: labels of all these metrics, for example ``{"query": "orders"}``.
    """
    return ProgressListener(report_path, callback, prometheus_file, tags or {})
