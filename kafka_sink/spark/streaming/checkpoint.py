"""Reads what a query planned from its checkpoint on the driver, and its own ids: those of the query and of its run.

Called in Spark's planner process on the driver's machine, and in the driver program by ``foreachBatch``. Spark provides
the query's id and the batch's number to tasks, but not to planners. It only reads, and an unavailable answer is not an
error. Locations may contain credentials, so no message repeats one. The files are on this machine, or in a store that
Hadoop's file systems in the JVM of a classic session read with its settings, or those of pyarrow.

Without credentials, Azure's client in pyarrow raises an error of C++ that no Python can catch, and it runs the command
``az`` of the PATH for a token. So it reads in a process of its own (:func:`main`), which is given no PATH, and whose
end is an answer like any other.

Source: ``org.apache.spark.sql.execution.streaming.checkpointing.StreamMetadata``, which writes the file ``metadata``.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kafka_sink.common.bounded import Latest
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.threads import start_thread
from kafka_sink.exactly_once.model import PlannedOffsets
from kafka_sink.spark.internals import hadoop_files
from kafka_sink.spark.streaming.offset_log import CheckpointFiles, read_offsets

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
        self._ended = threading.Event()
        folder = None if location is None else local_folder(location)
        if location is None:
            self._end(PlannedOffsets(unknown=_NOT_GIVEN))
        elif folder is not None:
            self._read(lambda: LocalFiles(folder))
        elif not is_remote(location):
            self._end(PlannedOffsets(unknown="only Spark can read a checkpoint in this kind of store"))
        elif (_resting.get(location) or 0) > SYSTEM_CLOCK.monotonic_ms():
            self._end(
                PlannedOffsets(
                    unknown=f"a recent attempt to read the checkpoint failed, or took more than {LIMIT_MS} ms"
                )
            )
        elif may_end_its_process(location):
            start_thread("kafkalite-checkpoint", lambda: self._read_in_own_process(location))
        else:
            start_thread("kafkalite-checkpoint", lambda: self._read(lambda: ArrowFiles(location)))

    def result(self) -> PlannedOffsets:
        """The planned offsets; without digest if they are not available in time."""
        if self._ended.wait(LIMIT_MS / 1000):
            return self._offsets
        self._rest()
        return PlannedOffsets(unknown=f"the checkpoint could not be read within {LIMIT_MS} ms")

    def _read(self, open_files: Callable[[], CheckpointFiles]) -> None:
        self._end(read_offsets(open_files, self._version))

    def _read_in_own_process(self, location: str) -> None:
        offsets = read_in_own_process(location, self._version, LIMIT_MS / 1000)
        if not offsets.digest:
            self._rest()
        self._end(offsets)

    def _rest(self) -> None:
        _resting.put(self._location, SYSTEM_CLOCK.monotonic_ms() + _REST_MS)

    def _end(self, offsets: PlannedOffsets) -> None:
        self._offsets = offsets
        self._ended.set()


def run_of(running: Any) -> str | None:
    """The id of this run of the query *running*; None if Spark does not tell."""
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

        return [str(each.base_name) for each in self._fs.get_file_info(fs.FileSelector(f"{self._folder}/{folder}"))]

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


def may_end_its_process(location: str) -> bool:
    """Whether pyarrow's client for *location* ends the process in which it has no credentials."""
    return _SCHEMES.get(urlsplit(location).scheme) in ("abfs", "abfss")


def is_remote(location: str) -> bool:
    """Whether pyarrow has a file system for *location*."""
    return urlsplit(location).scheme in _SCHEMES


PROGRAM: Final = f"from {__name__} import main; main()"
#: There is no command in it; without the variable a shell would look in a PATH of its own.
_NO_PATH: Final = "/nonexistent"


def read_in_own_process(
    location: str, version: int | None, timeout_s: float, *, program: str = PROGRAM
) -> PlannedOffsets:
    """The offsets that :func:`main` reads at *location*; without digest if its process fails or takes too long."""
    # The location may contain credentials, and everybody sees the arguments of a process.
    question = json.dumps({"location": location, "version": version})
    environ = {**os.environ, "PATH": _NO_PATH, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    try:
        done = subprocess.run(
            # It imports what this process would import, in its order, and nothing else from the working directory.
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
    """Answer the question on standard input on standard output."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = json.load(sys.stdin)
    offsets = read_offsets(lambda: ArrowFiles(question["location"]), question["version"])
    sys.stdout.write(json.dumps(asdict(offsets)))
