"""A ``format("kafkalite")`` that records the time of its own code in Spark's processes, for ``profile_stream``.

Each call appends a line to a file of its process, in the folder that an environment variable names: Spark's workers
inherit the environment of the session.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructType

from kafka_sink.spark.data_source import (
    KafkaliteDataSource,
    KafkaliteExactlyOnceStreamWriter,
    KafkaliteStreamWriter,
)
from kafka_sink.spark.versions import WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER: Final = "KAFKALITE_BENCH_TIMES"
#: The parts that a line may name: a task; the planner and the committer.
TASK: Final = "task"
DRIVER: Final = "driver"


@contextmanager
def timed(part: str) -> Iterator[None]:
    """Record the wall time of the block, and the CPU time of the process during it."""
    wall, cpu = time.monotonic(), time.process_time()
    try:
        yield
    finally:
        ended = time.monotonic()
        line = {"part": part, "ended": ended, "wall": ended - wall, "cpu": time.process_time() - cpu}
        with Path(os.environ[FOLDER], str(os.getpid())).open("a") as file:
            file.write(json.dumps(line) + "\n")


class _Timed:
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with timed(TASK):
            written: WriterCommitMessage = super().write(iterator)  # type: ignore[misc]
            return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:
        with timed(DRIVER):
            super().commit(messages, batchId)  # type: ignore[misc]


class _TimedStreamWriter(_Timed, KafkaliteStreamWriter):
    pass


class _TimedExactlyOnceStreamWriter(_Timed, KafkaliteExactlyOnceStreamWriter):
    pass


class TimedSource(KafkaliteDataSource):
    """Replaces ``kafkalite`` in a session that registers it."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        with timed(DRIVER):
            writer = super().streamWriter(schema, overwrite)
        once = isinstance(writer, KafkaliteExactlyOnceStreamWriter)
        writer.__class__ = _TimedExactlyOnceStreamWriter if once else _TimedStreamWriter
        return writer
