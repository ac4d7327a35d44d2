"""Tuning and logging of the Python processes that run the sink's tasks, and the watch that ends a process whose task
Spark has abandoned.

Called at the beginning and at the end of each task, and by the planner's and the committer's processes, on the single
thread on which Spark runs them. Tuning changes no result and must never raise. It avoids costs of PySpark itself, of
which the first two are most of the time of a micro-batch's task:

* **A full garbage collection after every task.** ``pyspark/daemon.py`` calls ``gc.collect()`` before a reused process
  takes its next task: 12 to 50 ms with pyarrow, numpy and the producer loaded. Imported modules live until the process
  ends, so they are frozen (:func:`gc.freeze`): the collector does not scan them again. Later garbage is collected as
  before. All objects that are alive at that moment are exempt permanently, so freezing is limited to a few times.
* **Nagle's algorithm and delayed acknowledgements** on the loopback connection between the JVM and the process: each
  side waits up to 40 ms for the other. ``TCP_NODELAY`` is permanent; Linux resets ``TCP_QUICKACK``, so it is set again
  for every task. macOS has no ``TCP_QUICKACK``, and a Unix socket (``spark.python.unix.domain.socket.enabled``) needs
  neither.
* **Copies of the directory of pyspark.zip** (:func:`~kafka_sink.spark.internals.share_zip_directories`).
* **pandas** (:func:`~kafka_sink.spark.internals.spare_pandas`).

Without ``spark.python.worker.reuse`` nothing is frozen: a process that ends after its task is never collected. Without
Spark's daemon (``spark.python.use.daemon``) the connection is not found and not changed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from kafka_sink.common.threads import at_fork, start_thread
from kafka_sink.spark.internals import share_zip_directories, spare_pandas, worker_socket

if TYPE_CHECKING:
    from kafka_sink.spark.write_spec import WriteSpec

#: Set by Spark for processes that take more than one task.
_REUSED: Final = "SPARK_REUSE_WORKER"

#: More than one, because the first tasks of a process still import modules.
_MOST_FREEZES: Final = 3

#: Linux only.
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class WorkerProcess:
    """The state of this process across Spark's tasks."""

    def __init__(self) -> None:
        self._freezes = 0
        self._modules_when_frozen = 0

    def __reduce__(self) -> str:
        """Pickled by name: a function that Spark sends to a task uses the instance of the task's process."""
        return "worker_process"

    @contextlib.contextmanager
    def task(self, *, tuned: bool) -> Iterator[None]:
        """Tune this process for one task, or for one call of the planner or committer; *tuned* = False changes only the
        format of log lines."""
        configure_logging()
        if not tuned:
            yield
            return
        connection = connection_to_jvm()
        _acknowledge_at_once(connection)
        if len(sys.modules) != self._modules_when_frozen:
            # Before the task imports modules: the imports then reuse the memory of the copies.
            share_zip_directories()
        try:
            yield
        finally:
            spare_pandas()
            is_reused = os.environ.get(_REUSED) and self._freezes < _MOST_FREEZES
            if is_reused and len(sys.modules) != self._modules_when_frozen:
                self._freezes += 1
                self._modules_when_frozen = len(sys.modules)
                gc.collect()
                gc.freeze()
            # Set again, because Linux has reset it: the end of this task and the start of the next one follow.
            _acknowledge_at_once(connection)

    def of(self, spec: WriteSpec) -> AbstractContextManager[None]:
        """As :meth:`task`, with the option of *spec*."""
        return self.task(tuned=spec.tune_python_workers)


def connection_to_jvm() -> socket.socket | None:
    """The TCP connection through which Spark sends tasks to this worker; None if there is none."""
    connection = worker_socket()
    return connection if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6) else None


def _acknowledge_at_once(connection: socket.socket | None) -> None:
    if connection is None:
        return
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _QUICK_ACK is not None:
            connection.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)


#: This process.
worker_process: Final = WorkerProcess()


#: The peer has closed its end. Linux only.
_CLOSED_BY_PEER: Final[int | None] = getattr(select, "POLLRDHUP", None)


class AbandonedWorker:
    """Watches this process's connection to the JVM while a task writes; *end* ends the process, by default immediately,
    as Spark ends a worker: nothing may wait for a broker any more."""

    def __init__(self, end: Callable[[], None] = lambda: os._exit(1)) -> None:
        self._end = end
        at_fork(self, AbandonedWorker._forget)
        self._forget()

    def _forget(self) -> None:
        self._is_writing = False
        self._watched: int | None = None

    @contextlib.contextmanager
    def ended_during_task(self) -> Iterator[None]:
        """End the process if Spark closes the connection during the block."""
        connection = None if _CLOSED_BY_PEER is None else worker_socket()
        watched = None if connection is None else connection.fileno()
        if watched is not None and watched != self._watched:
            self._watched = watched
            start_thread("kafkalite-task-watch", lambda: self._watch(watched))
        self._is_writing = True
        try:
            yield
        finally:
            self._is_writing = False

    def _watch(self, descriptor: int) -> None:
        assert _CLOSED_BY_PEER is not None
        poller = select.poll()
        # Errors are reported, too.
        poller.register(descriptor, _CLOSED_BY_PEER)
        poller.poll()
        if self._is_writing and descriptor == self._watched:
            self._end()


#: This process.
abandoned_worker: Final = AbandonedWorker()


#: The minimum level of log lines, by its name in Python's logging.
LEVEL_VARIABLE: Final = "KAFKALITE_LOG_LEVEL"

#: The format of Spark's own log.
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME_FORMAT: Final = "%y/%m/%d %H:%M:%S"

_package: Final = logging.getLogger("kafka_sink")


class _StandardErrorHandler(logging.Handler):
    """Writes like Python's handler of last resort, with time, level and logger."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT, _TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers and logging.lastResort is not None:
            # Read for each line: Spark replaces sys.stderr for the time of a task.
            stream = getattr(logging.lastResort, "stream", None)
            if stream is not None:
                stream.write(f"{self.format(record)}\n")
                stream.flush()


def configure_logging() -> None:
    """Add time, level and logger to the log lines of this process; the environment has the level. Never raises."""
    if any(isinstance(handler, _StandardErrorHandler) for handler in _package.handlers):
        return
    _package.addHandler(_StandardErrorHandler())
    level = os.environ.get(LEVEL_VARIABLE, "").strip().upper()
    levels = logging.getLevelNamesMapping()
    if level in levels:
        _package.setLevel(levels[level])
    elif level:
        expected = ", ".join(levels)
        _package.warning("%s=%s is not a level of logging; expected one of %s", LEVEL_VARIABLE, level, expected)
