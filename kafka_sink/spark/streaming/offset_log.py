"""Identifies the rows that Spark has planned for a micro-batch, by a digest of the offset log in its query's
checkpoint.

Spark writes the entry of a batch before it runs the batch, and reads it again when it repeats the batch. The same entry
therefore means the same rows, as far as the sources' offsets describe them. The metadata line before the offsets is
left out, because it contains the time at which the batch was planned. Pure functions, except for access to the given
files.

Source: ``OffsetSeqLog`` (v1: one line for each source; v2, since Spark 4.1: each line begins with the name of the
source), and ``FileStreamSourceLog``, the log that the offsets of a file source refer to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, Protocol

from kafka_sink.common.bounded import known_number
from kafka_sink.exactly_once.model import PlannedOffsets

#: The maximum number of bytes read of a file, from its end: a file source sometimes rewrites its complete log, with the
#: newest entries last.
MOST_BYTES: Final = 8 << 20

#: The maximum number of entries of a file source's log that are read for one batch. Normally there is one, and one more
#: for each failed start.
_MOST_ENTRIES: Final = 20

_NOTHING: Final = "-"


class OffsetLogError(Exception):
    """The files do not identify the planned rows; the text does not contain the checkpoint's location."""


class CheckpointFiles(Protocol):
    """The files of one checkpoint, by their paths in it; each implementation raises its own errors."""

    def names(self, folder: str) -> list[str]:
        """The names of all entries in *folder*."""

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        """The last *most* bytes of a file, and whether this is the complete file.

        :raises FileNotFoundError: if the file does not exist.
        """


def planned_offsets(files: CheckpointFiles, version: int | None = None) -> PlannedOffsets:
    """The planned offsets of batch *version*, or of the last planned batch.

    :raises OffsetLogError: if there is no batch yet, or the format of the entries is unknown.
    """
    if version is None:
        numbers = [number for number in map(known_number, files.names("offsets")) if number is not None]
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
    """The end offset of each source in batch *version*; None if the source has no offset yet."""
    data, is_whole = files.read(f"offsets/{version}", MOST_BYTES)
    form, _, *lines = data.decode().split("\n")
    if not is_whole or form not in ("v1", "v2"):
        raise OffsetLogError(f"the entry of batch {version} in its offset log has another format: {form[:20]!r}")
    pairs = enumerate(lines) if form == "v1" else (line.split(":", 1) for line in lines)
    return {str(source): _offset(text) for source, text in pairs}


def _offset(text: str) -> Any:
    """JSON text as a value, so that the order of its names does not matter; other text unchanged."""
    if text == _NOTHING:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _files_between(files: CheckpointFiles, source: str, start: Any, end: Any) -> list[Any] | None:
    """Path and time of every file that a file source has between two offsets; None for other sources."""
    last, first = _number(end), _number(start)
    if last is None:
        return None
    first = -1 if first is None else first
    if last - first > _MOST_ENTRIES:
        raise OffsetLogError(f"the file log of its source {source} has {last - first} entries for one batch")
    return [item for number in range(first + 1, last + 1) for item in _logged_files(files, source, number)]


def _number(offset: Any) -> int | None:
    """The entry in the source's own log that *offset* refers to."""
    number = offset.get("logOffset") if isinstance(offset, dict) and len(offset) == 1 else None
    return number if isinstance(number, int) else None


def _logged_files(files: CheckpointFiles, source: str, number: int) -> list[Any]:
    path = f"sources/{source}/{number}"
    try:
        data, is_whole = files.read(path, MOST_BYTES)
    except FileNotFoundError:
        # Every tenth entry also contains the entries before it.
        data, is_whole = files.read(f"{path}.compact", MOST_BYTES)
    lines = data.split(b"\n")
    if is_whole and lines[0] != b"v1":
        raise OffsetLogError(f"its file log {path} has another format: {lines[0][:20]!r}")
    entries = [json.loads(line) for line in lines[1:]]
    if not is_whole and not any(entry["batchId"] < number for entry in entries):
        raise OffsetLogError(f"its file log {path} has more than {MOST_BYTES} bytes for one batch")
    return sorted([entry["path"], entry["timestamp"]] for entry in entries if entry["batchId"] == number)


def read_offsets(open_files: Callable[[], CheckpointFiles], version: int | None) -> PlannedOffsets:
    """As :func:`planned_offsets`, without digest after any error."""
    try:
        return planned_offsets(open_files(), version)
    except OffsetLogError as error:
        return PlannedOffsets(unknown=f"the checkpoint does not contain the offsets: {error}")
    except Exception as error:
        # The batch can be written without the offsets after any error. The texts of other libraries may contain
        # credentials.
        return PlannedOffsets(unknown=f"the checkpoint cannot be read from here ({type(error).__name__})")
