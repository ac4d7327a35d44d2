"""The streams, as the driver starts them and as the program beside it sees them: by their folders and topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

STREAM, ATOMIC, BATCH = "writeStream", "foreach_batch-atomic", "numbered-batch"
WAYS: Final = (STREAM, ATOMIC, BATCH)
#: Triggers differ by up to so many seconds, so that not all streams plan at the same moment.
_SPREAD_S: Final = 12


@dataclass(frozen=True, slots=True)
class Query:
    """Stream *number*, which writes in *way* to its own *topic*; its checkpoint and reports are in *folder*."""

    number: int
    way: str
    topic: str
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def failures(self) -> Path:
        """Errors with which it ended before it was begun again, one of JSON a line."""
        return self.folder / "failures.jsonl"

    @property
    def committed(self) -> int:
        """How many batches Spark knows to be written."""
        return _batches(self.checkpoint / "commits")

    @property
    def planned(self) -> int:
        return _batches(self.checkpoint / "offsets")

    def trigger_s(self, least: int) -> int:
        return least + self.number % _SPREAD_S

    def __str__(self) -> str:
        return f"query {self.number} ({self.way})"


def _batches(log: Path) -> int:
    return max((int(file.name) + 1 for file in log.glob("[0-9]*") if file.name.isdigit()), default=0)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the driver is told: a batch has *rows* in *tasks*, and comes after *trigger_s* at the earliest."""

    master: str
    bootstrap_servers: str
    name: str
    folder: Path
    queries: int
    rows: int
    tasks: int
    trigger_s: int

    def write(self, file: Path) -> None:
        file.write_text(json.dumps({**asdict(self), "folder": str(self.folder)}))

    @staticmethod
    def read(file: Path) -> Settings:
        values = json.loads(file.read_text())
        return Settings(**{**values, "folder": Path(values["folder"])})

    @property
    def drain(self) -> Path:
        """When this file exists, streams write what they have planned, and end."""
        return self.folder / "drain"

    def all_queries(self) -> Iterator[Query]:
        """Each way in turn."""
        for number in range(self.queries):
            name = f"{number:02}"
            yield Query(number, WAYS[number % len(WAYS)], f"{self.name}-{name}", self.folder / "queries" / name)
