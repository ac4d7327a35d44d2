"""The Spark jobs of a write: they end with their caller, and those of an atomic write keep their rows and end with the
first task that fails.

PySpark leaves a job running when its caller is interrupted: by a notebook's stop button, Ctrl-C, or an exception of a
signal handler. :func:`run_stoppable` cancels it and returns once its tasks have ended. Used on the driver, or in the
process of a Spark Connect client, in any thread but that of a streaming query, whose stop ends the jobs of its thread.
The job runs in a thread of its own, because an interrupted thread leaves an answer on its connection to the JVM that
its next call would take for its own. The job has a tag besides the tags and the group that its caller has set, which
cancel it as before.

The rows of an atomic write are blocks of executors: what a local checkpoint holds cannot be computed again, because a
stage that Spark runs again would be a second writer. Dynamic allocation removes executors that have nothing to do, with
their blocks. With ``spark.speculation`` Spark starts copies of slow tasks on other hosts. A copy that fails counts as a
failure of its task, and a few of them end the stage although the first attempt is well; so copies wait until Spark has
no more use for them (:func:`~kafka_sink.spark.task.transactional_task.write_in_drivers_transaction`). But a second
attempt also follows a first one that has failed, and no task can tell which of the two it is. The driver can: here its
jobs are cancelled as soon as Spark has seen a task fail.

Source: https://spark.apache.org/docs/latest/api/python/reference/api/pyspark.SparkContext.addJobTag.html (Spark 3.5);
apache/spark ``ExecutorMonitor`` (``spark.dynamicAllocation.cachedExecutorIdleTimeout``),
``TaskSetManager.checkSpeculatableTasks`` (at most one copy beside the first attempt) and
``AppStatusListener.onTaskEnd`` (what counts as failed).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from kafka_sink.common.clock import SYSTEM_CLOCK, Moment
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.threads import start_thread
from kafka_sink.exactly_once.model import AttemptError
from kafka_sink.spark.internals import classic_context, running_tasks, stages_with_tag
from kafka_sink.spark.producer_spec import ProducerSpec
from kafka_sink.spark.task.shared_client import shared_client
from kafka_sink.spark.versions import inheriting

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_SLICE_S: Final = 0.5
#: How often a job is cancelled that may not have begun when it was cancelled before.
_AGAIN_S: Final = 0.1
#: How long a cancelled job, and then its tasks, are waited for. Spark looks for cancelled tasks in Python every 2 s and
#: kills their workers after spark.python.task.killTimeout, which is 2 s; a busy machine takes longer.
_END_MS: Final = 10_000
#: A server of Spark Connect does not tell when it has.
_KILLED_BY_SERVER_S: Final = 6.0
#: Brokers append within this time what a worker sent before its task ended.
_SETTLE_S: Final = 0.2

_log = logging.getLogger(__name__)


def too_late() -> str:
    """The meaning of an interrupt after the body's work."""
    return "the interrupt came too late: everything was done"


class Interrupts:
    """Remembers what the handler of SIGINT raises within the body, so that :meth:`check` raises what was dropped.

    Python drops an exception that a signal handler raises within a finalizer, and Py4J has a finalizer for each Java
    object that the driver has seen. Within a call, Py4J closes the connection, which may fail: its error then hides the
    interrupt. In any thread but the main one there is nothing to do, because signal handlers run in that.

    An interrupt without a text gets one: *meaning*, which is what one means at the moment, and which the body replaces
    as it goes on; one of which the body saw nothing came too late.

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
        """Raise again what the handler has raised, if it was dropped."""
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
    """The result of *action*, which runs jobs of *spark*. Whatever interrupts this call, or was dropped of *interrupts*
    before it, is raised when the jobs have ended, and a job that fails or is cancelled by somebody else has ended with
    all of its tasks."""
    interrupts.check()
    context = classic_context(spark)
    jobs: _Jobs = _ConnectJobs(spark) if context is None else _ClassicJobs(context)
    done: Future[T] = Future()
    has_begun, is_unwanted = threading.Event(), threading.Event()

    def run() -> None:
        # The caller looks at these in the opposite order: a job that it does not wait for does not begin.
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
        # In slices: an exception that another thread asks for, as _thread.interrupt_main does, wakes no lock.
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


class _Jobs(Protocol):
    """The jobs of one call."""

    def begin(self) -> None:
        """Called in the thread of the jobs, before them."""

    def cancel(self) -> None:
        """Cancel the jobs that have begun."""

    def await_tasks(self) -> None:
        """Return once no task of the jobs is running any more, as far as that is known."""


class _ClassicJobs:
    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._tag = f"kafkalite-{os.urandom(8).hex()}"

    def begin(self) -> None:
        self._context.addJobTag(self._tag)
        # An interrupted task would end before its Python worker, which goes on with the rows that wait in its
        # connection. One that is not interrupted ends when Spark has killed its worker.
        self._context.setInterruptOnCancel(False)

    def cancel(self) -> None:
        self._context.cancelJobsWithTag(self._tag)

    def await_tasks(self) -> None:
        begun = Moment.now(SYSTEM_CLOCK)
        while self._are_running() and begun.elapsed_ms(SYSTEM_CLOCK) < _END_MS:
            _pause(_AGAIN_S)
        _pause(_SETTLE_S)

    def _are_running(self) -> bool:
        return running_tasks(self._context, stages_with_tag(self._context, self._tag)) > 0


class _ConnectJobs:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"kafkalite-{os.urandom(8).hex()}"

    def begin(self) -> None:
        self._spark.addTag(self._tag)

    def cancel(self) -> None:
        self._spark.interruptTag(self._tag)

    def await_tasks(self) -> None:
        _pause(_KILLED_BY_SERVER_S)


EVERY_S: Final = 1.0
_SPECULATION: Final = "spark.speculation"
_ALLOCATION: Final = "spark.dynamicAllocation.enabled"
_KEPT: Final = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
#: A block waits for its task while the tasks before it write; Spark's default for executors without blocks.
_SHORTEST_S: Final = 60
_TIME: Final = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
#: Spark's suffixes of times, in seconds.
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def shuffle_tasks(df: DataFrame, topic: str | None, producer: ProducerSpec) -> int | None:
    """The number of tasks for the rows of *df* once they are grouped by the partitions of *topic* (None: rows name
    their topics), in the cluster of *producer*; None if Spark chooses it.

    Adaptive execution chooses it from the rows. It is off in streams before Spark 4.1 (SPARK-53941), in streams with
    state, and where the user has disabled it: a shuffle then starts ``spark.sql.shuffle.partitions`` tasks (200),
    however few rows there are.
    """
    conf = df.sparkSession.conf
    if conf.get("spark.sql.adaptive.enabled") == "true":
        return None
    client, context = shared_client(producer), classic_context(df.sparkSession)
    largest = None if topic is None else len(client.run(client.partitions(topic)))
    if not largest and context is not None:
        largest = int(context.defaultParallelism)
    return min(int(conf.get("spark.sql.shuffle.partitions") or largest), largest) if largest else None


def require_kept_blocks(spark: SparkSession) -> None:
    """:raises ConfigError: if Spark may remove executors whose rows are still to be written."""
    if str(spark.conf.get(_ALLOCATION, "false")).lower() != "true":
        return
    text = str(spark.conf.get(_KEPT, "")).lower()
    match = _TIME.fullmatch(text)
    if match is not None and int(match[1]) * _UNITS.get(match[2], _SHORTEST_S) < _SHORTEST_S:
        raise ConfigError(
            f"{_KEPT}={text} and atomic=True do not go together, because Spark would remove executors with rows "
            f"that are still to be written: remove the setting (the default keeps them) or set it to {_SHORTEST_S}s or "
            "more, or atomic=False, which also writes once, with one transaction per task",
            option=_KEPT,
        )


def speculates(spark: SparkSession) -> bool:
    """Whether Spark starts copies of slow tasks.

    :raises ConfigError: if it does, and with Spark Connect nobody can see whether a task has failed.
    """
    if str(spark.conf.get(_SPECULATION, "false")).lower() != "true":
        return False
    if classic_context(spark) is None:
        raise ConfigError(
            f"{_SPECULATION}=true and atomic=True do not go together over Spark Connect, because a copy of a task must "
            f"not write beside the first attempt: set {_SPECULATION}=false for the server, or atomic=False, which also "
            "writes once, with one transaction per task",
            option=_SPECULATION,
        )
    return True


def until_first_failure(context: SparkContext, action: Callable[[], T]) -> T:
    """The result of *action*, which runs jobs of *context* in this thread.

    :raises AttemptError: if a task has failed; the jobs were cancelled.
    """
    watch = _Watch(context)
    context.addJobTag(watch.tag)
    thread = start_thread("kafkalite-first-failure", watch.run)
    try:
        return action()
    except Exception as error:
        if watch.has_cancelled:
            raise AttemptError(
                "a task failed, and the tasks of an atomic write are tried again only together; the log of Spark's "
                "driver says how it failed"
            ) from error
        raise
    finally:
        watch.end()
        thread.join()
        context.removeJobTag(watch.tag)


class _Watch:
    def __init__(self, context: SparkContext) -> None:
        self.tag = f"kafkalite-first-failure-{os.urandom(8).hex()}"
        self.has_cancelled = False
        self._context = context
        self._has_ended = threading.Event()

    def run(self) -> None:
        """The body of the watching thread."""
        try:
            while not self._has_ended.wait(EVERY_S):
                if self._failed_tasks():
                    self.has_cancelled = True
                    self._context.cancelJobsWithTag(self.tag)
        except Exception:
            # The context has been stopped. Otherwise copies wait until the transaction's time-out.
            _log.debug("the tasks of a job cannot be watched", exc_info=True)

    def _failed_tasks(self) -> int:
        tracker = self._context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in stages_with_tag(self._context, self.tag)]
        return sum(stage.numFailedTasks for stage in stages if stage is not None)

    def end(self) -> None:
        self._has_ended.set()
