"""The streams, with the folders and topics by which the driver and the program that supervises it find them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

STREAM, ATOMIC, BATCH = "writeStream", "foreach_batch-atomic", "numbered-batch"
WAYS: Final = (STREAM, ATOMIC, BATCH)
#: Trigger intervals differ by less than this number of seconds, so that streams do not all plan at the same time.
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
        """The file of the errors after which it was restarted, one JSON text per line."""
        return self.folder / "failures.jsonl"

    @property
    def committed(self) -> int:
        """How many batches Spark has committed."""
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
    """The settings of the driver: each batch has *rows* in *tasks*; triggers are at least *trigger_s* apart."""

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
        """Once this file exists, the streams write their planned batches and end."""
        return self.folder / "drain"

    def all_queries(self) -> Iterator[Query]:
        """Yield the queries, whose ways to write take turns."""
        for number in range(self.queries):
            name = f"{number:02}"
            yield Query(number, WAYS[number % len(WAYS)], f"{self.name}-{name}", self.folder / "queries" / name)
