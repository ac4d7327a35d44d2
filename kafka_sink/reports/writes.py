"""The lines of the option reportPath: one JSON object for each write of a sink that was committed or has failed, and
for what Spark told of the source; and what a write returns of itself. A notebook shows both as tables.

Pure values and the reading of one file, on the calling thread. It never writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from kafka_sink.common.bounded import json_number, parsed_json
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.text import html_table, without_controls

#: The key of a line about the source; the others are writes.
SOURCE: Final = "source"
_SOURCE_BEGINS: Final = f'{{"{SOURCE}"'
#: The end of the year 9999.
_LATEST_MS: Final = 253_402_300_800_000
#: Numbers are those of offsets.
_MOST: Final = 2**63 - 1
#: A year, in ms.
_LONGEST_MS: Final = 366 * 86_400_000
#: Characters of an error, and of a line.
_MOST_ERROR: Final = 2_000
_MOST_LINE: Final = 1 << 24
#: Of the stream's rate, ms.
_RATE_MS: Final = 60_000
#: A topic may have 100,000 partitions, and a table has so many rows.
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
class _Write:
    """The fields of :class:`SinkProgress`, and what the command line and the pages ask of them."""

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
        """:raises KeyError, TypeError, ValueError: if *report* is no write."""
        decision = report.get("decision")
        return cls(
            batch=_whole(report.get("batch", report.get("version", -1))),
            decision=decision if decision in ("skipped", "older", "failed") else "written",
            rows=_whole(report["rows"]),
            record_bytes=_whole(report["bytes"]),
            wire_bytes=_whole(report["wire_bytes"]),
            tasks=_whole(report["tasks"]),
            elapsed_ms=_duration(report["elapsed_ms"]),
            commit_ms=_duration(report.get("commit_ms", 0)),
            ack_p50_ms=None if report["ack_p50_ms"] is None else _duration(report["ack_p50_ms"]),
            ack_p99_ms=None if report["ack_p99_ms"] is None else _duration(report["ack_p99_ms"]),
            partitions={
                name: PartitionRange(_whole(part["rows"]), _whole(part["first"]), _whole(part["last"]))
                for name, part in report["partitions"].items()
            },
            # Lines of earlier releases have neither.
            bad_rows=_whole(report.get("bad_rows", 0)),
            timestamp_ms=_moment(report.get("timestamp_ms")),
            error=without_controls(str(report.get("error", ""))[:_MOST_ERROR]),
        )

    @property
    def rows_per_s(self) -> int:
        """Of the write alone: rows by the time of its tasks and its commit."""
        return self.rows * 1000 // max(self.elapsed_ms + self.commit_ms, 1)

    @property
    def is_failed(self) -> bool:
        return self.decision == "failed"

    @property
    def is_torn(self) -> bool:
        """Whether the partitions have another number of rows than the write. With acks=0 theirs are not known."""
        in_partitions = sum(part.rows for part in self.partitions.values())
        return not self.is_failed and in_partitions not in (0, self.rows, self.rows + self.bad_rows)

    def missing_since(self, before: _Write | None) -> int:
        """The number of micro-batches between *before* and this one that the file does not have."""
        return 0 if before is None or min(self.batch, before.batch) < 0 else max(self.batch - before.batch - 1, 0)

    def is_marked(self, before: _Write | None) -> bool:
        """Whether it has failed, is torn, or the file does not have all micro-batches between *before* and it."""
        return self.is_failed or self.is_torn or self.missing_since(before) > 0

    def stream_rows_per_s(self, before: _Write | None) -> float | None:
        """Of the stream: rows by the time since the end of *before*; None if that is not known."""
        if before is None or before.timestamp_ms is None or self.timestamp_ms is None:
            return None
        passed_ms = self.timestamp_ms - before.timestamp_ms
        return None if passed_ms <= 0 or self.is_failed else self.rows * 1000 / passed_ms

    def remark(self, before: _Write | None) -> str:
        """A remark on an unusual write, which follows *before*; empty otherwise."""
        if self.is_failed:
            return f"failed: {self.error}" if self.error else "failed"
        if self.decision == "skipped":
            return "skipped: committed before"
        if self.decision == "older":
            return "not written: a later version is committed"
        if self.is_torn:
            return f"torn: its partitions have {sum(part.rows for part in self.partitions.values()):,} rows"
        if before is not None and 0 <= self.batch <= before.batch:
            return "written again" if self.batch == before.batch else "begins anew"
        missing = self.missing_since(before)
        return f"{missing} before it missing from the file" if missing else ""


class SinkProgress(_Write):
    """One write of a stream, as its report says it. Times in ms; sizes in bytes before compression and as sent.

    *batch* is the number of the micro-batch or version, −1 for a batch write without one. *bad_rows* could not be
    written, and were dropped or are dead letters (option onBadRow); *rows* does not count them. Of a failed write
    *rows* are those of the tasks that had ended.

    *ack_p50_ms* and *ack_p99_ms* are percentiles of the time from the hand-over of a row to the producer to its
    acknowledgement, None if there were no rows. *commit_ms* is 0 if there is nothing to commit (at-least-once).
    *partitions* have names like ``topic-0``. *timestamp_ms* is the end of the write (UTC, ms since 1970), and *lag* the
    number of rows that the source had and that were not yet read after this batch; both are None if not known.
    """

    def _repr_html_(self) -> str:
        """Two tables in a notebook: the figures, and the offsets of each partition."""
        return _figures_table(self) + _partitions_table(self.partitions)


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
        return _figures_table(self) + _partitions_table({str(each): part for each, part in self.partitions.items()})


def _figures_table(result: Any) -> str:
    """The fields of the dataclass *result*, without its partitions."""
    names = [item.name for item in fields(result) if item.name != "partitions"]
    return html_table((), [(name, _shown(getattr(result, name))) for name in names], caption=type(result).__name__)


def _partitions_table(partitions: Mapping[str, PartitionRange]) -> str:
    """Rows and offsets of each partition, of the first ones if there are many; empty if there are none."""
    if not partitions:
        return ""
    shown = sorted(partitions.items())[:_MOST_ROWS]
    rows: list[tuple[object, ...]] = [
        (name, _shown(part.rows), part.first_offset, part.last_offset) for name, part in shown
    ]
    if len(shown) < len(partitions):
        rows.append((f"and {len(partitions) - len(shown)} more", "", "", ""))
    return html_table(("partition", "rows", "first offset", "last offset"), rows)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def _duration(number: Any) -> int:
    """:raises ValueError: if *number* is no time that a write can have taken."""
    return _whole(number, 0, _LONGEST_MS)


def _whole(number: Any, least: int = -_MOST, most: int = _MOST) -> int:
    """:raises ValueError: if *number* is none, or none that a report can have."""
    return json_number(number, least, most)


def _moment(timestamp_ms: Any) -> int | None:
    """:raises ValueError: if it is no time of a year with four digits."""
    if timestamp_ms is not None and not 0 <= _whole(timestamp_ms) < _LATEST_MS:
        raise ValueError(f"{timestamp_ms} is not a valid time")
    return None if timestamp_ms is None else _whole(timestamp_ms)


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The rows that the source had and that were not yet read after the micro-batch *batch*."""

    batch: int
    lag: int

    def as_report(self) -> dict[str, Any]:
        """The line of the file."""
        return {SOURCE: {"batch": self.batch, "lag": self.lag}}


def with_before(writes: Sequence[SinkProgress]) -> list[tuple[SinkProgress, SinkProgress | None]]:
    """Each of *writes* with the one before it that has not failed."""
    pairs: list[tuple[SinkProgress, SinkProgress | None]] = []
    before: SinkProgress | None = None
    for write in writes:
        pairs.append((write, before))
        before = before if write.is_failed else write
    return pairs


def recent_rows_per_s(writes: Sequence[SinkProgress]) -> float | None:
    """The rate of the stream in the minute before the end of the last of *writes*; None if that is not known."""
    timed = [(write.timestamp_ms, write.rows) for write in writes if write.timestamp_ms and not write.is_failed]
    if len(timed) < 2:
        return None
    end_ms = timed[-1][0]
    # The first of them begins the time that is measured.
    first = next((at for at, each in enumerate(timed) if each[0] >= end_ms - _RATE_MS), 0)
    recent = timed[min(first, len(timed) - 2) :]
    passed_ms = end_ms - recent[0][0]
    return sum(rows for _, rows in recent[1:]) * 1000 / passed_ms if passed_ms > 0 else None


def read_writes(file: Path, last: int) -> tuple[int, Sequence[SinkProgress]]:
    """The number of writes, and the *last* ones. A line that its sink is still writing is left out.

    :raises OSError: if the file cannot be read.
    :raises ValueError: if a line is no report; the text names the file and the line.
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
    parsed = [_parsed(file, *each) for each in (*lags, *lines)]
    known = {line.batch: line.lag for line in parsed if isinstance(line, SourceLag)}
    writes = [line for line in parsed if isinstance(line, SinkProgress)]
    return count, [replace(write, lag=known.get(write.batch)) for write in writes]


def _parsed(file: Path, number: int, line: str) -> SinkProgress | SourceLag:
    """The line *number* of *file*. :raises ValueError: if it is no report; the text names the file and the line."""
    try:
        if len(line) > _MOST_LINE:
            raise ValueError("it is too long")
        report = parsed_json(line)
        if SOURCE in report:
            return SourceLag(_whole(report[SOURCE]["batch"]), _whole(report[SOURCE]["lag"]))
        return SinkProgress.of_report(report)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{file} line {number} is not a report of a write: {line.strip()[:60]!r}; give the file that the option "
            "reportPath names."
        ) from None


class Tail:
    """Reads the lines that come to be at the end of *file*. With *skips_existing* those that it has already are not
    read."""

    def __init__(self, file: Path, *, skips_existing: bool = False) -> None:
        self._file = file
        self._offset = file.stat().st_size if skips_existing and file.exists() else 0
        self._number = 0

    def read(self) -> Iterator[SinkProgress | SourceLag]:
        """The values of the new complete lines, one after another; all lines if the file has begun anew.

        :raises OSError: if the file cannot be read.
        :raises ValueError: if a line is no report; the next call goes on behind it.
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
