"""The lines of the option reportPath: one JSON report for each committed write of a sink.

Pure values and the reading of one file, on the calling thread. It never writes.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Write:
    """One line of the file. *number* is that of the micro-batch or version; None for a batch write without one. Times
    in ms; None if there were no rows. *partition_rows* are those of all partitions together, with those of dead
    letters; *bad_rows* are dead letters or were dropped."""

    number: int | None
    is_skipped: bool
    rows: int
    elapsed_ms: int
    commit_ms: int
    ack_p50_ms: int | None
    ack_p99_ms: int | None
    partition_rows: int
    bad_rows: int = 0

    @classmethod
    def of(cls, line: dict[str, Any]) -> Write:
        """:raises KeyError, TypeError: if the line is no report."""
        return cls(
            line.get("batch", line.get("version")),
            line.get("decision") == "skipped",
            int(line["rows"]),
            int(line["elapsed_ms"]),
            int(line.get("commit_ms", 0)),
            line["ack_p50_ms"],
            line["ack_p99_ms"],
            sum(int(part["rows"]) for part in line["partitions"].values()),
            # Lines of earlier releases have none.
            int(line.get("bad_rows", 0)),
        )

    @property
    def rows_per_s(self) -> int:
        return self.rows * 1000 // max(self.elapsed_ms + self.commit_ms, 1)

    @property
    def is_torn(self) -> bool:
        """Whether the partitions have another number of rows than the write. With acks=0 theirs are not known."""
        return self.partition_rows not in (0, self.rows, self.rows + self.bad_rows)

    def missing_since(self, before: int | None) -> int:
        """The number of micro-batches between *before* and this one that the file does not have."""
        return 0 if self.number is None or before is None else max(self.number - before - 1, 0)

    def is_marked(self, before: int | None) -> bool:
        """Whether it is torn, or the file does not have all micro-batches between *before* and it."""
        return self.is_torn or self.missing_since(before) > 0

    def remark(self, before: int | None) -> str:
        """What is unusual about the write, which follows the one with the number *before*; empty if nothing is."""
        if self.is_skipped:
            return "skipped: committed before"
        if self.is_torn:
            return f"torn: its partitions have {self.partition_rows:,} rows"
        if self.number is not None and before is not None and self.number <= before:
            return "written again" if self.number == before else "begins anew"
        missing = self.missing_since(before)
        return f"{missing} before it missing from the file" if missing else ""


def read_writes(file: Path, last: int) -> tuple[int, Sequence[Write]]:
    """The number of lines, and the writes of the *last* ones. A line that its sink is still writing is left out.

    :raises OSError: if the file cannot be read.
    :raises ValueError: if a line is no report; the text names the file and the line.
    """
    lines: deque[str] = deque(maxlen=last)
    count = 0
    with file.open(encoding="utf-8", errors="replace") as all_lines:
        for line in all_lines:
            if line.endswith("\n"):
                count += 1
                lines.append(line)
    return count, tuple(_write(file, number, line) for number, line in enumerate(lines, count - len(lines) + 1))


def _write(file: Path, number: int, line: str) -> Write:
    try:
        return Write.of(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"{file} line {number} is no report of a write: {line.strip()[:60]!r}; give the file that the option "
            "reportPath names."
        ) from None
