"""The files of the option reportPath that the page of streams shows: one file, or those of a folder.

Called by the threads of the web server. It reads the files that the user named, and no other ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Final

from kafka_sink.common.metrics import Metric
from kafka_sink.reports.figures import StreamFigures
from kafka_sink.reports.writes import SinkProgress, Tail, read_writes

#: The writes that a page shows.
SHOWN_WRITES: Final = 100
_SUFFIXES: Final = (".jsonl", ".json")


class Reports:
    """The report *path*, or those in the folder *path*, which may come to be later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # File → its size and time of change, and what was read then.
        self._read: dict[Path, tuple[tuple[int, int], tuple[int, Sequence[SinkProgress]]]] = {}
        self._lock = threading.Lock()
        # Name of a file → what its lines so far come to.
        self._figures: dict[str, tuple[Tail, StreamFigures]] = {}

    def names(self) -> list[str]:
        """The names of the files, the one that was written last first."""
        if not self.path.is_dir():
            return [self.path.name] if self.path.exists() else []
        # A link would show lines of a file elsewhere, and a pipe would be waited for.
        files = (each for each in self.path.iterdir() if each.suffix in _SUFFIXES and not each.is_symlink())
        dated = [(status.st_mtime_ns, file.name) for file in files if S_ISREG((status := file.stat()).st_mode)]
        return [name for _, name in sorted(dated, reverse=True)]

    def read(self, name: str) -> tuple[int, Sequence[SinkProgress]]:
        """The number of writes in the file *name*, one of :meth:`names`, and the last ones.

        :raises ValueError: if it is no report.
        :raises OSError: if it cannot be read.
        """
        file = self._file(name)
        status = file.stat()
        stamp = status.st_size, status.st_mtime_ns
        kept = self._read.get(file)
        if kept is None or kept[0] != stamp:
            kept = stamp, read_writes(file, SHOWN_WRITES)
            self._read[file] = kept
        return kept[1]

    def metrics(self) -> Iterator[Metric]:
        """The families ``kafka_sink_…`` of all files, each with its name as the label ``report``.

        :raises ValueError: if one is no report.
        :raises OSError: if one cannot be read.
        """
        with self._lock:
            for name in self.names():
                tail, figures = self._figures.setdefault(
                    name, (Tail(self._file(name)), StreamFigures(("report", name)))
                )
                for line in tail.read():
                    figures.add(line)
                yield from figures.metrics()

    def _file(self, name: str) -> Path:
        return self.path / name if self.path.is_dir() else self.path
