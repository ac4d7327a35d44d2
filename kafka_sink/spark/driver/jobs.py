"""The Spark jobs of a write: they end with their caller, those of an atomic write keep their rows and end with the
first task that fails, and what the exception of one means for the write: who ended it, whether another attempt may
succeed, and what it leaves in the topic.

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

Where a task of the sink has failed the job, :func:`~kafka_sink.spark.errors.cause_of` has read why. All else that ends
a job reaches the driver as text: PySpark has no class for most of it, and with Spark Connect nothing else crosses the
network. Only the beginning is read, where Spark says what happened: its stack trace names other classes.

Source: https://spark.apache.org/docs/latest/api/python/reference/api/pyspark.SparkContext.addJobTag.html (Spark 3.5);
apache/spark ``ExecutorMonitor`` (``spark.dynamicAllocation.cachedExecutorIdleTimeout``),
``TaskSetManager.checkSpeculatableTasks`` (at most one copy beside the first attempt) and
``AppStatusListener.onTaskEnd`` (what counts as failed), ``SparkCoreErrors.sparkJobCancelled``,
``DAGScheduler.abortStage``, and ``error-conditions.json``.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from kafka_sink.common.clock import SYSTEM_CLOCK, Moment
from kafka_sink.common.errors import CancelledWriteError, ConfigError, KafkaError, SinkWriteError, is_permanent
from kafka_sink.common.threads import start_thread
from kafka_sink.exactly_once.model import IN_ORDER, AttemptError, ExactlyOnceError, FencedError
from kafka_sink.exactly_once.transactions import FENCED
from kafka_sink.spark.internals import classic_context, running_tasks, stages_with_tag
from kafka_sink.spark.task.shared_client import shared_client
from kafka_sink.spark.versions import inheriting
from kafka_sink.spark.write_spec import ProducerSpec

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
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
    jobs = _Jobs(spark)
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


class _Jobs:
    """The jobs of one call, by their tag; over Spark Connect there is no *context*."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._context = classic_context(spark)
        self._tag = f"kafkalite-{os.urandom(8).hex()}"

    def begin(self) -> None:
        """Called in the thread of the jobs, before them."""
        if self._context is None:
            self._spark.addTag(self._tag)
            return
        self._context.addJobTag(self._tag)
        # An interrupted task would end before its Python worker, which goes on with the rows that wait in its
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
    tag = f"kafkalite-first-failure-{os.urandom(8).hex()}"
    has_ended, has_cancelled = threading.Event(), threading.Event()

    def watch() -> None:
        try:
            while not has_ended.wait(EVERY_S):
                tracker = context.statusTracker()
                stages = [tracker.getStageInfo(stage) for stage in stages_with_tag(context, tag)]
                if any(stage is not None and stage.numFailedTasks for stage in stages):
                    has_cancelled.set()
                    context.cancelJobsWithTag(tag)
        except Exception:
            # The context has been stopped. Otherwise copies wait until the transaction's time-out.
            _log.debug("the tasks of a job cannot be watched", exc_info=True)

    context.addJobTag(tag)
    thread = start_thread("kafkalite-first-failure", watch)
    try:
        return action()
    except Exception as error:
        if has_cancelled.is_set():
            raise AttemptError(
                "a task failed, and the tasks of an atomic write are tried again only together; the log of Spark's "
                "driver says how it failed"
            ) from error
        raise
    finally:
        has_ended.set()
        thread.join()
        context.removeJobTag(tag)


#: Somebody has cancelled the job, its stage, its group, all jobs, or stopped Spark.
_CANCELLED: Final = re.compile(
    r"\[SPARK_JOB_CANCELLED\]|\bJob \d+ cancelled\b|\bOPERATION_CANCELL?ED\b|InterruptedException"
    r"|SparkContext was shut ?down|stopped SparkContext|\[INVALID_HANDLE\.OPERATION_ABANDONED\]"
)
#: Losses of the cluster that another attempt repairs.
_LOST: Final = re.compile(
    r"\[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND\]|Checkpoint block \S+ not found|Job aborted due to stage"
)
#: A stage that fails again: rows, functions, files and sizes. From 4.0 on Spark raises most of them by their condition.
_FAILS_AGAIN: Final = re.compile(
    r"PythonException|\[(?!CHECKPOINT_RDD)[A-Z][A-Z0-9_.]+\]|FileNotFound|is not true!|erializ|UnsupportedOperation"
    r"|Spark(?:Runtime|Arithmetic|DateTime|NumberFormat|ArrayIndexOutOfBounds|FileNotFound|Upgrade)\w*Exception"
    r"|java\.lang\.(?:Runtime|IllegalArgument|Arithmetic|NumberFormat|ClassCast|NullPointer)Exception"
)
#: Characters of Spark's text that are shown.
_SHOWN: Final = 400
#: The part of an error about a row that has a value of it.
_VALUE: Final = re.compile(
    r"\bhas .* in column '|\bhas the timestamp [^,;]*|\b(?:names|has) partition -?\d+", re.DOTALL
)
#: Spark's own names of errors.
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")


def summary_of(error: Exception) -> str:
    """Spark's text of *error*, in one line, without stack traces."""
    lines = [line.strip() for line in _beginning(error).splitlines()]
    texts = [line.removeprefix(": ") for line in lines if line and not line.startswith("An error occurred while")]
    return " ".join(texts)[:_SHOWN]


def reported(error: BaseException) -> str:
    """The text of *error* in a report: its kind and, if it is of kafkalite, its text, but no value of a row, because
    reports are read by more people than rows."""
    kind = type(error).__name__
    if isinstance(error, KafkaError) and not isinstance(error, AttemptError | CancelledWriteError):

        def without_value(match: re.Match[str]) -> str:
            if match[0].endswith("'"):
                return "has a value in column '"
            return "has a timestamp" if "timestamp" in match[0] else "names a partition"

        return f"{kind}: {_VALUE.sub(without_value, str(error))}"[:_SHOWN]
    condition = _CONDITION.search(_beginning(error))
    return f"{kind}{f': {condition[0]}' if condition else ''}; what it says is in the error that the write raised"


def is_cancelled(error: Exception) -> bool:
    """Whether somebody else has cancelled the job that ended with *error*."""
    return not isinstance(error, KafkaError) and _CANCELLED.search(_beginning(error)) is not None


def as_spark_reads(error: Exception) -> Exception:
    """The error to raise from a batch of a query in the place of *error*.

    Spark tells the stop of a query from a failure by a pattern over the text of Py4J's error, and needs a stack frame
    or more for each character behind its beginning. A Java stack trace is too long for that: the thread of the query
    ends with a StackOverflowError.

    Source: apache/spark ``StreamExecution.PROXY_ERROR``.
    """
    # A client of Spark Connect has no Py4J.
    if type(error).__name__ != "Py4JJavaError" or not is_cancelled(error):
        return error
    return CancelledWriteError(f"py4j.protocol.Py4JJavaError: {_beginning(error)}")


def of_attempt(error: Exception) -> Exception:
    """*error* of an attempt at a batch, or in its place the AttemptError if another attempt may succeed, and the
    FencedError if a task's transaction was no longer its own."""
    if isinstance(error, ExactlyOnceError) or is_cancelled(error):
        return error
    if isinstance(error, KafkaError):
        if is_permanent(error):
            return error
        is_fenced = isinstance(error, SinkWriteError) and error.code in FENCED
        return FencedError(str(error)) if is_fenced else AttemptError(str(error))
    begins = _beginning(error)
    if _LOST.search(begins) is None or _FAILS_AGAIN.search(begins) is not None:
        return error
    return AttemptError(summary_of(error))


def _beginning(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        # Py4J asks the JVM for the text, which may have ended.
        text = repr(error)
    return text.split("\n\tat ", 1)[0].split("JVM stacktrace:", 1)[0]


@dataclass
class WriteCourse:
    """A write to *topic* (None: rows name theirs) of *version* (None: at least once), which an application numbers
    unless *is_of_query*. Tasks that have ended have added their rows to *counted*. *is_deciding* from the moment when
    the batch may be committed."""

    topic: str | None
    version: int | None
    counted: Accumulator[int] | None
    is_of_query: bool
    is_deciding: bool = False

    def what_stays(self) -> str:
        """The rows that an end at this moment leaves in the topic, and the remedy, in one sentence."""
        if self.version is None:
            ended = "" if self.counted is None else f"{self.counted.value:,} rows of tasks that had ended and "
            topics = "their topics" if self.topic is None else f"topic {self.topic}"
            return (
                f"{ended}the rows of other tasks that were acknowledged before stay in {topics}, and a repeated write "
                "writes them again"
            )
        if not self.is_deciding:
            again = "write it again" if self.is_of_query else IN_ORDER
            return f"no row of version {self.version} became visible; {again}"
        again = "write it again, which writes it once" if self.is_of_query else IN_ORDER
        return f"version {self.version} was about to be committed and is in Kafka as a whole or not at all; {again}"

    def stopped(self) -> str:
        """The meaning of an interrupt at this moment."""
        return f"the write was stopped: {self.what_stays()}"

    def ended_by(self, error: BaseException) -> BaseException:
        """*error* with what stays, or the error to raise in its place if the Spark job was cancelled."""
        if isinstance(error, Exception) and is_cancelled(error):
            return CancelledWriteError(f"the write was cancelled ({summary_of(error)}): {self.what_stays()}")
        if isinstance(error, KafkaError):
            if self.version is not None and not self.is_of_query:
                error.add_note(f"kafkalite: if version {self.version} is not committed, {IN_ORDER}")
            return error
        if error.args:
            error.add_note(f"kafkalite: {self.what_stays()}")
        else:
            error.args = (self.stopped(),)
        return error
