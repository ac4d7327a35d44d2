"""Which rows Spark has planned for a micro-batch: what the offset log in its query's checkpoint says, as a digest.

Spark writes the entry of a batch before it runs it, and reads it again where it runs the batch again: so the same entry
means the same rows, as far as the sources' offsets describe them. Left out is the line before them, which has the time
at which the batch was planned. Pure but for the files that it is given.

Source: ``OffsetSeqLog`` (v1: a line for each source; v2, since Spark 4.1: with the source's name before it), and
``FileStreamSourceLog``, where a source of files keeps what its offsets are numbers of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, Protocol

from kafka_sink.exactly_once.model import PlannedOffsets

#: What is read of a file at most, from its end, bytes: a source of files rewrites all of its log now and then, with the
#: newest entries last.
_MOST_BYTES: Final = 8 << 20

#: How many entries of a file source's log are read for one batch: there is one, and one more for each failed start.
_MOST_ENTRIES: Final = 20

_NOTHING: Final = "-"


class OffsetLogError(Exception):
    """The files do not say which rows were planned; the text holds nothing of the checkpoint's location."""


class CheckpointFiles(Protocol):
    """The files of one checkpoint, by their paths in it; each implementation has errors of its own."""

    def names(self, folder: str) -> list[str]:
        """Of everything in *folder*."""
        ...

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        """The last *most* bytes of a file, and whether that is all of it.

        :raises FileNotFoundError: there is no such file.
        """
        ...


def planned_offsets(files: CheckpointFiles, version: int | None = None) -> PlannedOffsets:
    """Of batch *version*, or of the last one that was planned.

    :raises OffsetLogError: there is no batch yet, or the format of the entries is not known.
    """
    if version is None:
        numbers = [int(name) for name in files.names("offsets") if name.isdecimal()]
        if not numbers:
            raise OffsetLogError("its offset log is empty")
        version = max(numbers)
    ends = _entry(files, version)
    starts = _entry(files, version - 1) if version > 0 else {}
    sources = [
        [source, starts.get(source), end, _files_between(files, source, starts.get(source), end)]
        for source, end in sorted(ends.items())
    ]
    text = json.dumps(sources, sort_keys=True)
    return PlannedOffsets(version, blake2b(text.encode(), digest_size=8).hexdigest(), "")


def _entry(files: CheckpointFiles, version: int) -> Mapping[str, Any]:
    """The offset up to which each source is read by the end of batch *version*; None where that has none yet."""
    data, is_whole = files.read(f"offsets/{version}", _MOST_BYTES)
    form, _, *lines = data.decode().split("\n")
    if not is_whole or form not in ("v1", "v2"):
        raise OffsetLogError(f"its offset log's entry of batch {version} is of another format: {form[:20]!r}")
    pairs = enumerate(lines) if form == "v1" else (line.split(":", 1) for line in lines)
    return {str(source): _offset(text) for source, text in pairs}


def _offset(text: str) -> Any:
    """JSON as a value, so that the order of its names is no difference; anything else as it is."""
    if text == _NOTHING:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _files_between(files: CheckpointFiles, source: str, start: Any, end: Any) -> list[Any] | None:
    """Path and time of every file that a source of files has between two offsets; None for other sources."""
    last, first = _number(end), _number(start)
    if last is None:
        return None
    first = -1 if first is None else first
    if last - first > _MOST_ENTRIES:
        raise OffsetLogError(f"its source {source} has {last - first} entries in its log of files for one batch")
    return [item for number in range(first + 1, last + 1) for item in _logged_files(files, source, number)]


def _number(offset: Any) -> int | None:
    """The entry in the source's own log that *offset* stands for."""
    number = offset.get("logOffset") if isinstance(offset, dict) and len(offset) == 1 else None
    return number if isinstance(number, int) else None


def _logged_files(files: CheckpointFiles, source: str, number: int) -> list[Any]:
    path = f"sources/{source}/{number}"
    try:
        data, is_whole = files.read(path, _MOST_BYTES)
    except FileNotFoundError:
        # Every tenth entry holds those before it too.
        data, is_whole = files.read(f"{path}.compact", _MOST_BYTES)
    lines = data.split(b"\n")
    if is_whole and lines[0] != b"v1":
        raise OffsetLogError(f"its log of files {path} is of another format: {lines[0][:20]!r}")
    entries = [json.loads(line) for line in lines[1:]]
    if not is_whole and not any(entry["batchId"] < number for entry in entries):
        raise OffsetLogError(f"its log of files {path} has more than {_MOST_BYTES} bytes for one batch")
    return sorted([entry["path"], entry["timestamp"]] for entry in entries if entry["batchId"] == number)
