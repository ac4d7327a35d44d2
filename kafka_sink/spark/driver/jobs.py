"""The Spark jobs of a write: they end with their caller.

PySpark leaves a job running when its caller is interrupted: by a notebook's stop button, Ctrl-C, or an exception of a
signal handler. :func:`run_stoppable` cancels it and returns once its tasks have ended. Used on the driver, or in the
process of a Spark Connect client, in any thread but that of a streaming query, whose stop ends the jobs of its thread.
The job runs in a separate thread, because an interrupted thread leaves a response on its connection to the JVM that its
next call would read. The job has a tag besides the tags and the group that its caller has set, which cancel it as
before.

Source: https://spark.apache.org/docs/latest/api/python/reference/api/pyspark.SparkContext.addJobTag.html (Spark 3.5).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from kafka_sink.common.clock import SYSTEM_CLOCK, Moment
from kafka_sink.common.threads import start_thread
from kafka_sink.spark.internals import classic_context, running_tasks, stages_with_tag
from kafka_sink.spark.versions import inheriting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

_SLICE_S: Final = 0.5
#: The pause before a cancellation is repeated, s, because the job may not have begun before.
_AGAIN_S: Final = 0.1
#: The maximum wait for a cancelled job, and then for its tasks, ms. Spark checks for cancelled Python tasks every 2 s
#: and kills their workers after spark.python.task.killTimeout, which is 2 s; a busy machine takes longer.
_END_MS: Final = 10_000
#: The wait over Spark Connect, whose server does not report the end of tasks, s.
_KILLED_BY_SERVER_S: Final = 6.0
#: The time within which brokers append records that a worker sent before its task ended, s.
_SETTLE_S: Final = 0.2

_log = logging.getLogger(__name__)


def too_late() -> str:
    """The meaning of an interrupt after the body's work."""
    return "the interrupt came too late: everything was done"


class Interrupts:
    """Records the exception that SIGINT's handler raises within the body; :meth:`check` raises it if it was dropped.

    Python drops an exception that a signal handler raises within a finalizer, and Py4J has a finalizer for each Java
    object that the driver has seen. Within a call, Py4J closes the connection, which may fail: its error then hides the
    interrupt. In other threads than the main one this does nothing, because signal handlers run in the main one.

    An interrupt without a text gets the one that *meaning* returns, which the body replaces as it proceeds; if the body
    did not notice the interrupt, the text says that it came too late.

    Source: https://docs.python.org/3/reference/datamodel.html#object.__del__ and ``py4j.java_gateway.JavaObject``.
    """

    def __init__(self, meaning: Callable[[], str] | None = None) -> None:
        self.meaning = meaning
        self._handler: Callable[[int, FrameType | None], object] | None = None
        self._raised: BaseException | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._on_signal)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        assert self._handler is not None
        try:
            self._handler(number, frame)
        except BaseException as error:
            self._raised = error
            raise

    def check(self) -> None:
        """Raise the exception of the handler again, if it was dropped."""
        if self._raised is not None:
            raise self._raised

    def behind(self, error: BaseException) -> BaseException:
        """The exception of the handler if *error* was raised in response to it, else *error*."""
        context: BaseException | None = error
        while context is not None:
            if context is self._raised:
                return context
            context = context.__context__
        return error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        stopped = self._raised if error is None else self.behind(error)
        if stopped is None or not (stopped is self._raised or isinstance(stopped, KeyboardInterrupt)):
            return
        meaning = too_late if error is None else self.meaning
        if meaning is not None and not stopped.args:
            stopped.args = (meaning(),)
        if stopped is not error:
            raise stopped from None


def run_stoppable(spark: SparkSession, action: Callable[[], T], interrupts: Interrupts) -> T:
    """The result of *action*, which runs jobs of *spark*. An interrupt of this call, or an earlier one in *interrupts*,
    is raised after the jobs have ended. The error of a job that fails or is cancelled is raised after all of its tasks
    have ended."""
    interrupts.check()
    jobs = _Jobs(spark)
    done: Future[T] = Future()
    has_begun, is_unwanted = threading.Event(), threading.Event()

    def run() -> None:
        # The caller checks these in the opposite order: a job that it does not wait for does not begin.
        has_begun.set()
        if is_unwanted.is_set():
            return
        try:
            jobs.begin()
            result = action()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    try:
        start_thread("kafkalite-spark-job", inheriting(spark, run))
        # In slices: an asynchronous exception, as of _thread.interrupt_main, does not interrupt a lock wait.
        while not wait([done], _SLICE_S).done:
            interrupts.check()
    except BaseException:
        is_unwanted.set()
        if has_begun.is_set():
            _cancel(jobs, done)
            jobs.await_tasks()
        raise
    if done.exception() is not None:
        jobs.await_tasks()
    return done.result()


def _cancel(jobs: _Jobs, done: Future[T]) -> None:
    begun = Moment.now(SYSTEM_CLOCK)
    while not done.done() and begun.elapsed_ms(SYSTEM_CLOCK) < _END_MS:
        try:
            jobs.cancel()
        except Exception:
            _log.debug("the job could not be cancelled", exc_info=True)
        wait([done], _AGAIN_S)
    if not done.done():
        _log.warning("the Spark job was cancelled and has not ended within %d ms", _END_MS)


def _pause(seconds: float) -> None:
    never: Future[None] = Future()
    wait([never], seconds)


class _Jobs:
    """The jobs of one call, by their tag; over Spark Connect there is no *context*."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context = classic_context(spark)
        self._tag = f"kafkalite-{os.urandom(8).hex()}"
        self._callers = spark.getTags() if self._context is None else set()

    def begin(self) -> None:
        """Called in the thread of the jobs, before them."""
        if self._context is None:
            for tag in (*self._callers, self._tag):
                self._spark.addTag(tag)
            return
        self._context.addJobTag(self._tag)
        # An interrupted task would end before its Python worker, which continues with the rows that are buffered in its
        # connection. One that is not interrupted ends when Spark has killed its worker.
        self._context.setInterruptOnCancel(False)

    def cancel(self) -> None:
        """Cancel the jobs that have begun."""
        if self._context is None:
            self._spark.interruptTag(self._tag)
        else:
            self._context.cancelJobsWithTag(self._tag)

    def await_tasks(self) -> None:
        """Return once no task of the jobs is running any more, as far as that is known."""
        context = self._context
        if context is None:
            _pause(_KILLED_BY_SERVER_S)
            return
        begun = Moment.now(SYSTEM_CLOCK)
        while running_tasks(context, stages_with_tag(context, self._tag)) and begun.elapsed_ms(SYSTEM_CLOCK) < _END_MS:
            _pause(_AGAIN_S)
        _pause(_SETTLE_S)
