"""Reads a query's checkpoint on the driver: the id of the query, and the rows that Spark has planned for a micro-batch,
which a digest of the offset log identifies.

Spark writes the entry of a batch before it runs the batch, and reads it again when it repeats the batch. The same entry
therefore means the same rows, as far as the sources' offsets describe them. The metadata line before the offsets is
left out, because it contains the time at which the batch was planned.

Called in Spark's planner process on the driver's machine, and in the driver program by ``foreachBatch``. Spark provides
the query's id and the batch's number to tasks, but not to planners. It only reads, and an unavailable result is not an
error. Locations may contain credentials, so no message repeats one. The files are on this machine, or in a store that
Hadoop's file systems in the JVM of a classic session read with its settings, or those of pyarrow.

Without credentials, Azure's client in pyarrow raises a C++ exception that Python cannot catch, and it runs the command
``az`` of the PATH for a token. So it reads in a separate process (:func:`main`), whose PATH has no commands, and whose
failure is handled like any other.

Source: ``org.apache.spark.sql.execution.streaming.checkpointing``: ``StreamMetadata``, which writes the file
``metadata``, ``OffsetSeqLog`` (v1: one line for each source; v2, since Spark 4.1: each line begins with the name of the
source), and ``FileStreamSourceLog``, the log that the offsets of a file source refer to.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from kafka_sink.common.bounded import Latest, known_number
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.threads import start_thread
from kafka_sink.exactly_once.model import PlannedOffsets
from kafka_sink.spark.internals import hadoop_files

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
    entry: dict[str, Any] = {}
    for source, text in pairs:
        try:
            # Parsed, so that the order of its names does not matter.
            entry[str(source)] = None if text == _NOTHING else json.loads(text)
        except ValueError:
            entry[str(source)] = text
    return entry


def _files_between(files: CheckpointFiles, source: str, start: Any, end: Any) -> list[Any] | None:
    """The path and time of each file of a file source between two offsets; None for other sources."""
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
    """As :func:`planned_offsets`; after any error, without a digest."""
    try:
        return planned_offsets(open_files(), version)
    except OffsetLogError as error:
        return PlannedOffsets(unknown=f"the checkpoint does not contain the offsets: {error}")
    except Exception as error:
        # The batch can be written without the offsets after any error. The texts of other libraries may contain
        # credentials.
        return PlannedOffsets(unknown=f"the checkpoint cannot be read from here ({type(error).__name__})")


#: The maximum time that a batch waits for a remote store, ms, and the time for which the store is then not accessed
#: again, because each of its requests may take minutes to fail.
LIMIT_MS: Final = 2_000
_REST_MS: Final = 300_000

_NOT_GIVEN: Final = (
    "the location of the checkpoint is not known (option checkpointLocation; argument checkpoint_location of "
    "foreach_batch)"
)

_log = logging.getLogger(__name__)

#: Location → the time from which it may be accessed again.
_resting: Final[Latest[str, int]] = Latest(1000)


def query_of(location: str | None) -> str | None:
    """The id of the query with the option ``checkpointLocation`` *location*; None if the checkpoint is not on this
    machine."""
    folder = None if location is None else local_folder(location)
    if folder is None:
        return None
    try:
        query_id = json.loads((Path(folder) / "metadata").read_text(encoding="utf-8"))["id"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return query_id if isinstance(query_id, str) else None


class OffsetsReading:
    """Starts to read the offsets planned for batch *version*, or for the last batch, of the query whose checkpoint is
    at *location*. A remote store is read on a separate thread while the caller continues."""

    def __init__(self, location: str | None, version: int | None = None) -> None:
        self._location = location or ""
        self._version = version
        self._offsets: Future[PlannedOffsets] = Future()
        folder = None if location is None else local_folder(location)
        unknown = ""
        if location is None:
            unknown = _NOT_GIVEN
        elif folder is not None:
            self._offsets.set_result(read_offsets(lambda: LocalFiles(folder), version))
        elif urlsplit(location).scheme not in _SCHEMES:
            unknown = "only Spark can read a checkpoint in this kind of store"
        elif (_resting.get(location) or 0) > SYSTEM_CLOCK.monotonic_ms():
            unknown = f"a recent attempt to read the checkpoint failed, or took more than {LIMIT_MS} ms"
        else:
            start_thread("kafkalite-checkpoint", lambda: self._offsets.set_result(self._read_remote()))
        if unknown:
            self._offsets.set_result(PlannedOffsets(unknown=unknown))

    def result(self) -> PlannedOffsets:
        """The planned offsets; without a digest if they are not available in time."""
        try:
            return self._offsets.result(LIMIT_MS / 1000)
        except TimeoutError:
            self._rest()
            return PlannedOffsets(unknown=f"the checkpoint could not be read within {LIMIT_MS} ms")

    def _read_remote(self) -> PlannedOffsets:
        if _SCHEMES[urlsplit(self._location).scheme] not in _ENDING_THEIR_PROCESS:
            return read_offsets(lambda: ArrowFiles(self._location), self._version)
        offsets = read_in_own_process(self._location, self._version, LIMIT_MS / 1000)
        if not offsets.digest:
            self._rest()
        return offsets

    def _rest(self) -> None:
        _resting.put(self._location, SYSTEM_CLOCK.monotonic_ms() + _REST_MS)


def run_of(running: Any) -> str | None:
    """The id of this run of the query *running*; None if it is not available."""
    try:
        return str(running.runId())
    except Exception:
        _log.debug("the run of a query is not known", exc_info=True)
        return None


def offsets_of(session: Any, running: Any, version: int) -> PlannedOffsets:
    """The offsets planned for batch *version* of the query *running* in a classic *session*. They are read through
    Spark's JVM if the checkpoint is not on this machine."""

    def open_files() -> CheckpointFiles:
        location = str(running.resolvedCheckpointRoot())
        folder = local_folder(location)
        return HadoopFiles(location, session) if folder is None else LocalFiles(folder)

    return read_offsets(open_files, version)


#: Hadoop's URI schemes → pyarrow's.
_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "hdfs": "hdfs"}
#: Schemes whose client in pyarrow ends its process without credentials.
_ENDING_THEIR_PROCESS: Final = ("abfs", "abfss")


class LocalFiles:
    """The files of a folder on this machine."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def names(self, folder: str) -> list[str]:
        return [path.name for path in (self._folder / folder).iterdir()]

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        with (self._folder / path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - most, 0))
            return file.read(), size <= most


class HadoopFiles:
    """The files of Hadoop's file system of *location*, to which Spark has just written, with the settings of a classic
    *session*."""

    def __init__(self, location: str, session: Any) -> None:
        self._location = location
        self._jvm, self._hadoop = hadoop_files(session, location)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._location}/{path}")

    def names(self, folder: str) -> list[str]:
        return [str(status.getPath().getName()) for status in self._hadoop.listStatus(self._path(folder))]

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        where = self._path(path)
        if not self._hadoop.exists(where):
            raise FileNotFoundError(path)
        size = self._hadoop.getFileStatus(where).getLen()
        stream = self._hadoop.open(where)
        try:
            stream.seek(max(size - most, 0))
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)), size <= most
        finally:
            stream.close()


class ArrowFiles:
    """The files of an object store or HDFS, with the credentials from the environment of this machine."""

    def __init__(self, location: str) -> None:
        self._fs, self._folder = _opened(location)

    def names(self, folder: str) -> list[str]:
        from pyarrow import fs

        return [str(file.base_name) for file in self._fs.get_file_info(fs.FileSelector(f"{self._folder}/{folder}"))]

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        with self._fs.open_input_file(f"{self._folder}/{path}") as file:
            size = file.size()
            file.seek(max(size - most, 0))
            return bytes(file.read()), size <= most


@lru_cache(maxsize=4)
def _opened(location: str) -> tuple[Any, str]:
    """pyarrow's file system of *location* and the path in it; cached, so that its connections are reused by later
    batches."""
    from pyarrow import fs

    parts = urlsplit(location)
    opened: tuple[Any, str] = fs.FileSystem.from_uri(parts._replace(scheme=_SCHEMES[parts.scheme]).geturl())
    return opened


def local_folder(location: str) -> str | None:
    """*location* as a path on this machine; None if it is not on this machine."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    return parts.path if parts.scheme else location


PROGRAM: Final = f"from {__name__} import main; main()"
#: A folder without commands; without the variable a shell would use a default PATH.
_NO_PATH: Final = "/nonexistent"


def read_in_own_process(
    location: str, version: int | None, timeout_s: float, *, program: str = PROGRAM
) -> PlannedOffsets:
    """The offsets that :func:`main` reads at *location*; without a digest if its process fails or takes too long."""
    # The location may contain credentials, and all users can see the arguments of a process.
    question = json.dumps({"location": location, "version": version})
    environ = {**os.environ, "PATH": _NO_PATH, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    try:
        done = subprocess.run(
            # With the module path of this process, in its order, and without the working directory.
            [sys.executable, "-P", "-c", program],
            input=question,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=timeout_s,
            check=True,
        )
        return PlannedOffsets(**json.loads(done.stdout))
    except (OSError, ValueError, subprocess.SubprocessError):
        return PlannedOffsets(
            unknown="only Spark can read the checkpoint: this machine has no credentials of its own for the store"
        )


def main() -> None:
    """Read the request from standard input, and write the offsets to standard output."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = json.load(sys.stdin)
    offsets = read_offsets(lambda: ArrowFiles(question["location"]), question["version"])
    sys.stdout.write(json.dumps(asdict(offsets)))
