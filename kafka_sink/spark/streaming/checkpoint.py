"""Reads what a query planned from its checkpoint on the driver, and its own ids: those of the query and of its run.

Called in Spark's planner process on the driver's machine, and in the driver program by ``foreachBatch``. Spark provides
the query's id and the batch's number to tasks, but not to planners. It only reads, and an unavailable answer is not an
error.

Source: ``org.apache.spark.sql.execution.streaming.checkpointing.StreamMetadata``, which writes the file ``metadata``.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kafka_sink.common.bounded import Latest
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.threads import start_thread
from kafka_sink.exactly_once.model import PlannedOffsets
from kafka_sink.spark.streaming.checkpoint_files import (
    ArrowFiles,
    HadoopFiles,
    LocalFiles,
    is_remote,
    local_folder,
    may_end_its_process,
)
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
        # Only streams with a checkpoint in such a store need it.
        from kafka_sink.spark.streaming.checkpoint_process import read_in_own_process

        offsets = read_in_own_process(location, self._version, LIMIT_MS / 1000)
        if not offsets.digest:
            self._rest()
        self._end(offsets)

    def _rest(self) -> None:
        _resting.put(self._location, SYSTEM_CLOCK.monotonic_ms() + _REST_MS)

    def _end(self, offsets: PlannedOffsets) -> None:
        self._offsets = offsets
        self._ended.set()


def running_query(session: Any, query: str) -> Any:
    """The query with the id *query* that runs in a classic *session*, as an object of Spark's JVM; None if Spark does
    not tell. To find it takes several round trips."""
    try:
        # The session of a batch is a clone, and its own manager does not know the query.
        running = session._jsparkSession.sharedState().activeStreamingQueries()
        return running.get(session._jvm.java.util.UUID.fromString(query))
    except Exception:
        _log.debug("the running query %s is not known", query, exc_info=True)
        return None


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
