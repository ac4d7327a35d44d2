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
* **pandas**, which Spark's last step of a task imports (:mod:`kafka_sink.spark.task.without_pandas`).

Without ``spark.python.worker.reuse`` nothing is frozen: a process that ends after its task is never collected. Without
Spark's daemon (``spark.python.use.daemon``) the connection is not found and not changed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Final

from kafka_sink.spark.task import worker_logging
from kafka_sink.spark.task.without_pandas import spare_pandas

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
        try:
            yield
        finally:
            spare_pandas()
            self._freeze_what_was_imported()
            # The last bytes of this task and the first of the next one follow.
            _acknowledge_at_once(connection)

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
    found = worker_socket()
    return found if found is not None and found.family in (socket.AF_INET, socket.AF_INET6) else None


def worker_socket() -> socket.socket | None:
    """The connection through which Spark sends tasks to this worker, of any kind; None without Spark's daemon."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _WORKER_LOOP and frame.f_code.co_filename.endswith(_DAEMON):
            found = frame.f_locals.get("sock")
            return found if isinstance(found, socket.socket) else None
        frame = frame.f_back
    return None


def _acknowledge_at_once(connection: socket.socket | None) -> None:
    if connection is None:
        return
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _QUICK_ACK is not None:
            connection.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


#: This process.
worker_process: Final = WorkerProcess()
