"""Optimizations of Spark's Python processes, applied once per process and once per task.

Called at the beginning and at the end of each task, and by the planner's and the committer's processes, on the single
thread on which Spark runs them. It changes no result and must never raise. It avoids costs of PySpark itself, of which
the first two are most of the time of a micro-batch's task:

* **A full garbage collection after every task.** ``pyspark/daemon.py`` calls ``gc.collect()`` before a reused process
  takes its next task: 12 to 50 ms with pyarrow, numpy and the producer loaded. Imported modules live until the process
  ends, so they are frozen (:func:`gc.freeze`): the collector does not scan them again. Later garbage is collected as
  before. All objects that are alive at that moment are exempt for good, so freezing is limited to a few times.
* **Nagle's algorithm and delayed acknowledgements** on the loopback connection between the JVM and the process: each
  side waits up to 40 ms for the other. ``TCP_NODELAY`` is permanent; Linux resets ``TCP_QUICKACK``, so it is set again
  for every task. macOS has no ``TCP_QUICKACK``, and a Unix socket (``spark.python.unix.domain.socket.enabled``) needs
  neither.
* **Copies of the directory of pyspark.zip** (:mod:`kafka_sink.spark.task.zip_directories`).
* **pandas**: 40 MB of each Python worker, and a quarter of a second of its first task. ``pyarrow.array`` imports
  pandas, if it is installed, to see whether a list belongs to it, and Spark makes an array of one list, the message of
  the task, when a writer has returned (``pyspark/sql/worker/write_into_data_source.py``). For this one call
  :func:`spare_pandas` puts a function in the place of ``pyarrow.array``; what is given anything else calls the
  original, as does everybody later. pyarrow's own memory of whether pandas is there is not touched: Spark gives the
  same process to other jobs.

Without ``spark.python.worker.reuse`` nothing is frozen: a process that ends after its task is never collected. Without
Spark's daemon (``spark.python.use.daemon``) the connection is not found and not changed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kafka_sink.spark.task import worker_logging
from kafka_sink.spark.task.zip_directories import share_zip_directories

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_sink.spark.write_spec import WriteSpec

#: Set by Spark for processes that take more than one task.
_REUSED: Final = "SPARK_REUSE_WORKER"

#: The first tasks of a process still import modules.
_MOST_FREEZES: Final = 3

#: The location of a worker's connection to the JVM: the local variable "sock" of this function of Spark.
_WORKER_LOOP: Final = "worker"
_DAEMON: Final = f"{os.sep}pyspark{os.sep}daemon.py"

#: Linux only.
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class WorkerProcess:
    """The state of this process across Spark's tasks."""

    def __init__(self) -> None:
        self._freezes = 0
        self._modules_when_frozen = 0

    @contextlib.contextmanager
    def task(self, *, tuned: bool) -> Iterator[None]:
        """Wraps the work of one task, or of one call of the planner or committer; *tuned* = False changes nothing but
        the form of log lines."""
        worker_logging.configure()
        if not tuned:
            yield
            return
        connection = connection_to_jvm()
        _acknowledge_at_once(connection)
        # Before the task imports anything, which is then where the copies were.
        share_zip_directories()
        try:
            yield
        finally:
            spare_pandas()
            self._freeze_what_was_imported()
            # The last bytes of this task and the first of the next one follow.
            _acknowledge_at_once(connection)

    def of(self, spec: WriteSpec) -> AbstractContextManager[None]:
        """Wraps what this process does for this write."""
        return self.task(tuned=spec.tune_python_workers)

    def _freeze_what_was_imported(self) -> None:
        if not os.environ.get(_REUSED) or self._freezes == _MOST_FREEZES:
            return
        if len(sys.modules) == self._modules_when_frozen:
            return
        self._freezes += 1
        self._modules_when_frozen = len(sys.modules)
        gc.collect()
        gc.freeze()


def connection_to_jvm() -> socket.socket | None:
    """The TCP connection through which Spark sends tasks to this worker; None if there is none."""
    connection = worker_socket()
    return connection if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6) else None


def worker_socket() -> socket.socket | None:
    """The connection through which Spark sends tasks to this worker, of any kind; None without Spark's daemon."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _WORKER_LOOP and frame.f_code.co_filename.endswith(_DAEMON):
            connection = frame.f_locals.get("sock")
            return connection if isinstance(connection, socket.socket) else None
        frame = frame.f_back
    return None


def spare_pandas() -> None:
    """Prepare the next call of ``pyarrow.array`` in this process; changes nothing where pandas is already imported."""
    pyarrow: Any = sys.modules.get("pyarrow")
    if pyarrow is None or "pandas" in sys.modules or getattr(pyarrow.array, "__module__", "") == __name__:
        return
    original = pyarrow.array

    def array(values: Any, *arguments: Any, **named: Any) -> Any:
        pyarrow.array = original
        if arguments or named or type(values) is not list or len(values) != 1 or type(values[0]) is not bytes:
            return original(values, *arguments, **named)
        return array_of_one(pyarrow.binary(), values[0])

    pyarrow.array = array


def array_of_one(kind: pa.DataType, value: bytes) -> pa.Array:
    """The array of *kind*, binary or UTF-8 text, with this one value."""
    import pyarrow

    offsets = pyarrow.py_buffer(struct.pack("=ii", 0, len(value)))
    return pyarrow.Array.from_buffers(kind, 1, [None, offsets, pyarrow.py_buffer(value)])


def _acknowledge_at_once(connection: socket.socket | None) -> None:
    if connection is None:
        return
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _QUICK_ACK is not None:
            connection.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


#: This process.
worker_process: Final = WorkerProcess()
