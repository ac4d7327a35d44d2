"""The lines of the report of option reportPath: one JSON object for each write of a sink that was committed or has
failed, and for each source lag that Spark reported; the result of a write; and the writes of a stream as metrics.
Notebooks show a write and a result as tables.

Pure values and the reading of one file, on the calling thread. It never writes.

Source: https://prometheus.io/docs/practices/naming.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from kafka_sink.common.bounded import json_number, parsed_json
from kafka_sink.common.metrics import Metric, families
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.text import html_table, without_controls

#: The key of a line about the source; the others are writes.
SOURCE: Final = "source"
_SOURCE_BEGINS: Final = f'{{"{SOURCE}"'
#: The end of the year 9999: later times have no four digits.
_LATEST_MS: Final = 253_402_300_799_999
#: A year, in ms.
_LONGEST_MS: Final = 366 * 86_400_000
#: The maximum number of characters of an error, and of a line.
_MOST_ERROR: Final = 2_000
_MOST_LINE: Final = 1 << 24
#: The period of the stream's rate, ms.
_RATE_MS: Final = 60_000
#: The maximum number of rows of a table; a topic may have 100,000 partitions.
_MOST_ROWS: Final = 50


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The rows of one write in one topic-partition; offsets are −1 if the brokers do not return them (acks=0)."""

    rows: int
    first_offset: int
    last_offset: int

    def merge(self, other: PartitionRange) -> PartitionRange:
        return PartitionRange(
            self.rows + other.rows, min(self.first_offset, other.first_offset), max(self.last_offset, other.last_offset)
        )


@dataclass(frozen=True)
class SinkProgress:
    """One write of a stream, from its report. Times in ms; sizes in bytes before compression and as sent.

    *batch* is the number of the micro-batch or version, −1 for a batch write without one. *bad_rows* could not be
    written, and were dropped or are dead letters (option onBadRow); *rows* does not count them. Of a failed write
    *rows* are those of the tasks that had ended.

    *ack_p50_ms* and *ack_p99_ms* are percentiles of the time from the hand-over of a row to the producer to its
    acknowledgement, None if there were no rows. *commit_ms* is 0 if there is nothing to commit (at-least-once).
    *partitions* have names like ``topic-0``. *timestamp_ms* is the end of the write (UTC, ms since 1970), and *lag* the
    number of rows that the source had and that were not yet read after this batch; both are None if not known.
    """

    batch: int
    decision: Literal["written", "skipped", "older", "failed"]
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
    timestamp_ms: int | None = None
    lag: int | None = None
    error: str = ""

    @classmethod
    def of_report(cls, report: Mapping[str, Any]) -> Self:
        """The write in *report*, a parsed line of the file of option reportPath.

        :raises KeyError, TypeError, ValueError: if *report* is not a write.
        """
        decision, timestamp_ms = report.get("decision"), report.get("timestamp_ms")
        return cls(
            batch=json_number(report.get("batch", report.get("version", -1))),
            decision=decision if decision in ("skipped", "older", "failed") else "written",
            rows=json_number(report["rows"]),
            record_bytes=json_number(report["bytes"]),
            wire_bytes=json_number(report["wire_bytes"]),
            tasks=json_number(report["tasks"]),
            elapsed_ms=_duration(report["elapsed_ms"]),
            commit_ms=_duration(report.get("commit_ms", 0)),
            ack_p50_ms=None if report["ack_p50_ms"] is None else _duration(report["ack_p50_ms"]),
            ack_p99_ms=None if report["ack_p99_ms"] is None else _duration(report["ack_p99_ms"]),
            partitions={
                name: PartitionRange(json_number(part["rows"]), json_number(part["first"]), json_number(part["last"]))
                for name, part in report["partitions"].items()
            },
            # Lines of earlier releases have neither.
            bad_rows=json_number(report.get("bad_rows", 0)),
            timestamp_ms=None if timestamp_ms is None else json_number(timestamp_ms, 0, _LATEST_MS),
            error=without_controls(str(report.get("error", ""))[:_MOST_ERROR]),
        )

    @property
    def rows_per_s(self) -> int:
        """The rate of the write alone: its rows by the time of its tasks and its commit."""
        return self.rows * 1000 // max(self.elapsed_ms + self.commit_ms, 1)

    @property
    def is_failed(self) -> bool:
        """Whether it ended with an error."""
        return self.decision == "failed"

    @property
    def is_torn(self) -> bool:
        """Whether the partitions have another number of rows than the write; False if theirs is not known (acks=0)."""
        in_partitions = sum(part.rows for part in self.partitions.values())
        return not self.is_failed and in_partitions not in (0, self.rows, self.rows + self.bad_rows)

    def _repr_html_(self) -> str:
        """Two tables in a notebook: the figures, and the offsets of each partition."""
        return _tables(self, self.partitions)


class InStream(NamedTuple):
    """A *write* of a stream, and the one *before* it that has not failed, None if that is not known."""

    write: SinkProgress
    before: SinkProgress | None

    @property
    def missing(self) -> int:
        """The number of micro-batches between the two that the file does not have."""
        write, before = self
        return 0 if before is None or min(write.batch, before.batch) < 0 else max(write.batch - before.batch - 1, 0)

    @property
    def is_marked(self) -> bool:
        """Whether it has failed, is torn, or micro-batches before it are missing."""
        return self.write.is_failed or self.write.is_torn or self.missing > 0

    @property
    def rows_per_s(self) -> float | None:
        """The rate of the stream: rows by the time since the end of the write before; None if that is not known."""
        write, before = self
        if before is None or before.timestamp_ms is None or write.timestamp_ms is None:
            return None
        passed_ms = write.timestamp_ms - before.timestamp_ms
        return None if passed_ms <= 0 or write.is_failed else write.rows * 1000 / passed_ms

    @property
    def remark(self) -> str:
        """A remark on an unusual write; empty otherwise."""
        write, before = self
        if write.is_failed:
            return f"failed: {write.error}" if write.error else "failed"
        if write.decision == "skipped":
            return "skipped: committed before"
        if write.decision == "older":
            return "not written: a later version is committed"
        if write.is_torn:
            return f"torn: its partitions have {sum(part.rows for part in write.partitions.values()):,} rows"
        if before is not None and 0 <= write.batch <= before.batch:
            return "written again" if write.batch == before.batch else "begins anew"
        return f"{self.missing} before it missing from the file" if self.missing else ""


@dataclass(frozen=True)
class WriteReport:
    """The result of a write. *decision* is ``written``; ``skipped`` if the version was already committed; or ``older``
    if a later one was, and it is unknown whether this one ever was: its rows may not be in Kafka.

    *bad_rows* could not be written, and were dropped or are dead letters (option onBadRow); *rows* does not count them.
    *attempts* counts the attempts of the whole batch. Times in ms: *elapsed_ms* is the total time, *commit_ms* the time
    from the end of the last task to the commit.
    """

    decision: Literal["written", "skipped", "older"]
    rows: int
    record_bytes: int
    wire_bytes: int
    tasks: int
    attempts: int
    elapsed_ms: int
    commit_ms: int
    partitions: Mapping[TopicPartition, PartitionRange] = field(default_factory=dict)
    bad_rows: int = 0

    def _repr_html_(self) -> str:
        """Two tables in a notebook: the figures, and the offsets of each partition."""
        return _tables(self, {str(partition): part for partition, part in self.partitions.items()})


def _tables(result: SinkProgress | WriteReport, partitions: Mapping[str, PartitionRange]) -> str:
    """The fields of *result* without its partitions; and rows and offsets of *partitions*, of the first ones if there
    are many."""
    names = [item.name for item in fields(result) if item.name != "partitions"]
    figures = html_table((), [(name, _shown(getattr(result, name))) for name in names], caption=type(result).__name__)
    if not partitions:
        return figures
    rows: list[tuple[object, ...]] = [
        (name, _shown(part.rows), part.first_offset, part.last_offset)
        for name, part in sorted(partitions.items())[:_MOST_ROWS]
    ]
    if len(rows) < len(partitions):
        rows.append((f"and {len(partitions) - len(rows)} more", "", "", ""))
    return figures + html_table(("partition", "rows", "first offset", "last offset"), rows)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def _duration(number: Any) -> int:
    """:raises ValueError: if *number* is not a possible duration of a write."""
    return json_number(number, 0, _LONGEST_MS)


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The rows that the source had and that were not yet read after the micro-batch *batch*."""

    batch: int
    lag: int

    def as_report(self) -> dict[str, Any]:
        """The line of the file."""
        return {SOURCE: {"batch": self.batch, "lag": self.lag}}


def with_before(writes: Sequence[SinkProgress]) -> list[InStream]:
    """*writes* of one stream, each with the one before it."""
    pairs: list[InStream] = []
    before: SinkProgress | None = None
    for write in writes:
        pairs.append(InStream(write, before))
        before = before if write.is_failed else write
    return pairs


def recent_rows_per_s(writes: Sequence[SinkProgress]) -> float | None:
    """The rate of the stream in the minute before the end of the last of *writes*; None if that is not known."""
    timed = [(write.timestamp_ms, write.rows) for write in writes if write.timestamp_ms and not write.is_failed]
    if len(timed) < 2:
        return None
    end_ms = timed[-1][0]
    # The end of the first one begins the measured period.
    first = next((index for index, (ended_ms, _) in enumerate(timed) if ended_ms >= end_ms - _RATE_MS), 0)
    recent = timed[min(first, len(timed) - 2) :]
    passed_ms = end_ms - recent[0][0]
    return sum(rows for _, rows in recent[1:]) * 1000 / passed_ms if passed_ms > 0 else None


def read_writes(file: Path, last: int) -> tuple[int, Sequence[SinkProgress]]:
    """The number of writes, and the *last* ones. An incomplete last line is left out.

    :raises OSError: if the file cannot be read.
    :raises ValueError: if no line is a report; the text names the file and a line.
    """
    lines: deque[tuple[int, str]] = deque(maxlen=last)
    lags: deque[tuple[int, str]] = deque(maxlen=last)
    count = 0
    with file.open(encoding="utf-8", errors="replace") as all_lines:
        for number, line in enumerate(all_lines, 1):
            if line.endswith("\n"):
                is_source = line.startswith(_SOURCE_BEGINS)
                count += not is_source
                (lags if is_source else lines).append((number, line))
    parsed: list[SinkProgress | SourceLag] = []
    refusal: ValueError | None = None
    for number, line in (*lags, *lines):
        try:
            parsed.append(_parsed(file, number, line))
        except ValueError as error:
            # For example, a full disk has truncated a line, and the next one continues it.
            refusal = error
    if refusal is not None and not parsed:
        raise refusal
    lag_of = {line.batch: line.lag for line in parsed if isinstance(line, SourceLag)}
    writes = [line for line in parsed if isinstance(line, SinkProgress)]
    return count, [replace(write, lag=lag_of.get(write.batch)) for write in writes]


def _parsed(file: Path, number: int, line: str) -> SinkProgress | SourceLag:
    """The line *number* of *file*. :raises ValueError: if it is not a report; the text names both."""
    try:
        if len(line) > _MOST_LINE:
            raise ValueError("it is too long")
        report = parsed_json(line)
        if SOURCE in report:
            return SourceLag(json_number(report[SOURCE]["batch"]), json_number(report[SOURCE]["lag"]))
        return SinkProgress.of_report(report)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{file} line {number} is not a report of a write: {line.strip()[:60]!r}; give the file that the option "
            "reportPath names."
        ) from None


class Tail:
    """Reads the lines that are appended to *file*. With *skips_existing* the lines that it already has are not
    read."""

    def __init__(self, file: Path, *, skips_existing: bool = False) -> None:
        self._file = file
        self._offset = file.stat().st_size if skips_existing and file.exists() else 0
        self._number = 0

    def read(self) -> Iterator[SinkProgress | SourceLag]:
        """The values of the new complete lines, one after another; all lines if the file has become shorter.

        :raises OSError: if the file cannot be read.
        :raises ValueError: if a line is not a report; the next call continues after it.
        """
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            if self._file.stat().st_size < self._offset:
                self._offset = self._number = 0
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                self._number += 1
                yield _parsed(self._file, self._number, line.decode(errors="replace"))


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
        """Add *line*, the next one of the report."""
        if isinstance(line, SourceLag):
            self._lag = line.lag
            return
        if line.is_failed:
            self._totals["failed-batches-total"] += 1
            return
        self._totals["batches-total"] += 1
        self._totals["skipped-batches-total"] += line.decision in ("skipped", "older")
        self._totals["torn-batches-total"] += line.is_torn
        self._totals["missing-batches-total"] += InStream(line, self._last).missing
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
