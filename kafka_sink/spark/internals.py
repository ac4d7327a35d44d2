"""All uses of private APIs of Spark, PySpark and pyarrow, where there is no public API.

Used by each process of the sink, which nothing here may make slower to start. Each docstring has the versions of Spark
in which the private API was seen, and the result where it is gone: no write depends on it.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import struct
import sys
import zipimport
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafka_sink.common.clock import FOREVER_MS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

T = TypeVar("T")

#: A worker's connection to the JVM is the local variable "sock" of this function of PySpark.
_WORKER_LOOP: Final = "worker"
_DAEMON: Final = f"{os.sep}pyspark{os.sep}daemon.py"

_log = logging.getLogger(__name__)


def _seen(access: Callable[[], T], otherwise: T) -> T:
    """The result of *access*, or *otherwise* if Spark has changed or has ended."""
    try:
        return access()
    except Exception:
        _log.debug("Spark does not have what was looked for", exc_info=True)
        return otherwise


# --- sessions and jobs ------------------------------------------------------------------------------------------------


def classic_context(spark: Any) -> SparkContext | None:
    """The context of a classic session; None over Spark Connect, which has none in this process.

    Seen in Spark 3.5 to 4.3. Gone: None, and jobs are stopped as over Spark Connect.
    """
    context: SparkContext | None = getattr(spark, "_sc", None)
    return context


def stages_with_tag(context: SparkContext, tag: str) -> set[int]:
    """The stages of the jobs with *tag* that have begun.

    Seen in Spark 3.5 to 4.3. Gone: none.
    """

    def access() -> set[int]:
        private: Any = context
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in private._jsc.sc().statusTracker().getJobIdsForTag(tag)]
        return {stage for job in jobs if job is not None for stage in job.stageIds}

    return _seen(access, set())


def running_tasks(context: SparkContext, stages: Collection[int]) -> int:
    """The number of tasks of *stages* whose end the scheduler does not know. Spark's status store does not count tasks
    of a cancelled job, and no public API shows those that are still running.

    Seen in Spark 3.5 to 4.3 (``TaskSchedulerImpl.taskIdToTaskSetManager``). Gone: 0, and no caller waits for them.
    """

    def access() -> int:
        private: Any = context
        # The keys are Java's longs, which Py4J cannot pass to a lookup.
        managers = private._jsc.sc().taskScheduler().taskIdToTaskSetManager().elements()
        count = 0
        while managers.hasMoreElements():
            count += managers.nextElement().taskSet().stageId() in stages
        return count

    return _seen(access, 0)


def remove_checkpoint(rows: Any) -> None:
    """Remove the blocks of *rows*, which ``localCheckpoint`` returned and no job reads any more. Spark itself removes
    them after the JVM's garbage collector has run, which can take half an hour; over Spark Connect, after Python has
    released *rows*.

    Seen in Spark 3.5 to 4.3 (``LogicalRDD.rdd``, ``SparkContext.unpersistRDD``). Gone: the blocks stay until then.
    """

    def remove() -> None:
        checkpoint = rows._jdf.queryExecution().analyzed().rdd()
        # RDD.unpersist would warn in each batch that the rows cannot be computed again.
        checkpoint.sparkContext().unpersistRDD(checkpoint.id(), False)

    _seen(remove, None)


class SparksBar:
    """Spark's ``ConsoleProgressBar``. It draws every 200 ms, but not within 500 ms after the end of a job.

    Seen in Spark 3.5 to 4.3 (``ConsoleProgressBar.lastFinishTime``). Gone: the bar draws among other lines.
    """

    def __init__(self, context: Any) -> None:
        self._bar: Any = None
        self._last_end_ms: Any = None
        _seen(lambda: self._find(context), None)

    def _find(self, context: Any) -> None:
        # Scala's Option: Spark may have no bar.
        bar = context._jsc.sc().progressBar()
        if bar.isDefined():
            shown = bar.get()
            self._last_end_ms = shown.getClass().getDeclaredField("lastFinishTime")
            self._last_end_ms.setAccessible(True)
            self._bar = shown

    def erase(self) -> None:
        """Erase the bar."""
        if self._bar is not None:
            self._bar.finishAll()

    def hold_back(self) -> None:
        """Erase the bar and suppress it until the end of a job, which resets this."""
        if self._bar is not None:
            self.erase()
            self._last_end_ms.setLong(self._bar, FOREVER_MS)


# --- queries ----------------------------------------------------------------------------------------------------------


def micro_batch_of(context: Any) -> tuple[str | None, str | None]:
    """The id of the query that the task or the thread with this *context* runs a batch of, and the number of the batch.

    Seen in Spark 3.5 to 4.3 (``StreamExecution.QUERY_ID_KEY``, ``MicroBatchExecution.BATCH_ID_KEY``). Gone, and without
    a context: None, and an exactly-once stream is refused.
    """
    if context is None:
        return None, None
    return context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("streaming.sql.batchId")


def setting_of_session(context: Any, name: str, otherwise: str) -> str:
    """The setting *name* of the session of the task with this *context*, in upper case: tasks have the settings that a
    session changed as local properties.

    Seen in Spark 4.3 (``SQLExecution.withSQLConfPropagated``). Gone, unset, and without a context: *otherwise*.
    """
    setting = None if context is None else context.getLocalProperty(name)
    return otherwise if setting is None else setting.strip().upper()


def java_query(query: Any) -> Any:
    """The object of the JVM for a StreamingQuery; None over Spark Connect.

    Seen in Spark 3.5 to 4.3. Gone: None, and neither the trigger nor the cause of a failure is known.
    """
    return getattr(query, "_jsq", None)


def running_query(spark: Any, query: str | None) -> Any:
    """The query with the id *query* (None: the one whose batch has this session) that runs in a classic session, as an
    object of the JVM. Finding it takes several round trips.

    Seen in Spark 3.5 to 4.3 (``SharedState.activeStreamingQueries``, ``StreamExecution.lastExecution``). Gone: None,
    and repeated batches are recognized by their numbers only.
    """

    def access() -> Any:
        # The session of a batch is a clone, and its own manager does not know the query.
        running = spark._jsparkSession.sharedState().activeStreamingQueries()
        if query is not None:
            return running.get(spark._jvm.java.util.UUID.fromString(query))
        batches = [(each, each.lastExecution()) for each in running.values() if each is not None]
        own = spark._jsparkSession
        return next((each for each, batch in batches if batch is not None and batch.sparkSession().equals(own)), None)

    return _seen(access, None)


def hadoop_files(spark: Any, location: str) -> tuple[Any, Any]:
    """The JVM of a classic session, and Hadoop's file system of *location* with the settings of the session.

    Seen in Spark 3.5 to 4.3 (``SessionState.newHadoopConf``). Gone: an error, and the offsets of a batch are unknown.
    """
    path = spark._jvm.org.apache.hadoop.fs.Path(location)
    return spark._jvm, path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def jvm_with_callbacks() -> Any:
    """The JVM of this program, which can call objects of Python; None over Spark Connect.

    Seen in Spark 3.5 to 4.3 (``SparkContext._gateway``). Gone: None, and the JVM handles signals as it does without
    kafkalite.
    """

    def access() -> Any:
        from pyspark import SparkContext
        from pyspark.java_gateway import ensure_callback_server_started

        gateway: Any = SparkContext._gateway
        if gateway is None:
            return None
        start: Any = ensure_callback_server_started
        start(gateway)
        return gateway.jvm

    return _seen(access, None)


# --- sessions of threads ----------------------------------------------------------------------------------------------


def activate(spark: Any) -> None:
    """Make *spark* the active session of the JVM's thread that serves this thread.

    Seen in Spark 4.0 to 4.3. Gone: Spark finds formats only in the thread that has created the session.
    """
    _seen(lambda: spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession), None)


def activate_before(named: Callable[[Any, str], Any], ours: str) -> Callable[[Any, str], Any]:
    """The method ``format`` of a writer, *named*, which makes the session of the DataFrame the active one first if the
    format is *ours*. It cannot be done earlier: PySpark gives each thread, and each thread after an interrupt, a new
    thread of the JVM without an active session, and has no hook for that.

    Seen in Spark 4.0 to 4.3 (``DataFrameWriter._spark``). Gone: as :func:`activate`.
    """
    if hasattr(named, "__wrapped__"):
        return named

    @functools.wraps(named)
    def format(self: Any, source: str) -> Any:
        vars(self).pop("save", None)
        if source.lower() != ours:
            return named(self, source)
        activate(getattr(self, "_spark", None))
        writer = named(self, source)
        if hasattr(writer, "save"):
            writer.save = _telling_of_the_job(writer.save)
        return writer

    return format


def _telling_of_the_job(save: Callable[..., None]) -> Callable[..., None]:
    """The method ``save`` of one writer, whose interrupts get a text about the Spark job that still runs."""

    @functools.wraps(save)
    def telling(*arguments: Any, **named: Any) -> None:
        try:
            save(*arguments, **named)
        except KeyboardInterrupt as error:
            error.args = error.args or (_JOB_GOES_ON,)
            raise

    return telling


_JOB_GOES_ON: Final = (
    "df.write was interrupted, and its Spark job goes on, unless Spark cancels it as at Ctrl-C outside of notebooks: "
    "spark.sparkContext.cancelAllJobs() ends all jobs of the application, and spark.interruptAll() those of a session "
    "of Spark Connect; kafka_sink.write ends its own job"
)


def is_active(spark: Any) -> bool | None:
    """Whether *spark* is the active session of this thread; None if the thread has none.

    Seen in Spark 4.0 to 4.3. Gone: True, so that no problem is reported.
    """

    def access() -> Any:
        active = spark._jvm.org.apache.spark.sql.SparkSession.getActiveSession()
        return None if active.isEmpty() else bool(active.get().equals(spark._jsparkSession))

    active: bool | None = _seen(access, True)
    return active


def look_up_format(spark: Any, name: str) -> None:
    """Let Spark look up the format *name* as it does for a write, in the session of the thread.

    Seen in Spark 4.0 to 4.3 (``DataSource.lookupDataSource``). Gone: an error that names it.

    :raises Exception: that of Spark, if it does not find the format.
    """
    lookup = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    lookup(name, spark._jsparkSession.sessionState().conf())


def has_format(spark: Any, name: str, source: type) -> bool:
    """Whether the format *name* of *spark* is *source* already, with the files that were added to its context, because
    Spark has found it, or it was registered.

    Seen in Spark 4.0 to 4.3 (``DataSourceManager``). Gone: False, and it is registered again, with a warning of Spark.
    """

    def access() -> bool:
        from pyspark.serializers import CloudPickleSerializer

        serializer: Any = CloudPickleSerializer
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        if not manager.dataSourceExists(name):
            return False
        signed = (byte - 256 if byte > 127 else byte for byte in serializer().dumps(source))
        held = manager.lookupDataSource(name).dataSourceCls()
        # A format that Spark has found itself does not know the files that were added to this context.
        is_complete = list(held.pythonIncludes()) == list(spark.sparkContext._python_includes)
        return is_complete and bool(held.command().mkString(",") == ",".join(map(str, signed)))

    return _seen(access, False)


def environment_of_jvm(spark: Any, name: str) -> str | None:
    """The environment variable *name* of the JVM, such as the one with the interpreter that looks for formats.

    Seen in Spark 4.0 to 4.3. Gone: None.
    """
    value: str | None = _seen(lambda: spark._jvm.java.lang.System.getenv(name), None)
    return value


def folder_of_jvm(spark: Any) -> str | None:
    """The working directory of the JVM, where its Python processes look for modules first.

    Seen in Spark 4.0 to 4.3. Gone: None.
    """
    value: str | None = _seen(lambda: spark._jvm.java.lang.System.getProperty("user.dir"), None)
    return value


def provide_format(spark: Any, name: str, source: Any) -> bool:
    """Set the format *name* as the only result of Spark's search for formats in Python packages, if Spark has not
    searched yet; return whether it was set. All sessions have the format then.

    Seen in Spark 4.0 to 4.3 (``DataSourceManager.dataSourceBuilders``). Gone: False, and Spark searches.
    """

    def access() -> bool:
        from pyspark.serializers import CloudPickleSerializer

        serializer: Any = CloudPickleSerializer
        jvm, context = spark._jvm, spark.sparkContext
        sources = jvm.org.apache.spark.sql.execution.datasources
        manager = getattr(getattr(sources, "DataSourceManager$"), "MODULE$")
        if manager.dataSourceBuilders().isDefined():
            return False
        # Without an accumulator, as after Spark's own search: the format outlives the context of an accumulator.
        function = jvm.SimplePythonFunction(
            bytearray(serializer().dumps(source)),
            context.environment,
            context._python_includes,
            context.pythonExec,
            context.pythonVer,
            [],
            None,
        )
        ours = sources.v2.python.UserDefinedPythonDataSource(function)
        only = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({name: ours})
        getattr(manager, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(only))
        return True

    return _seen(access, False)


def has_workers(spark: Any) -> bool:
    """Whether the JVM of this machine has started Python workers.

    Seen in Spark 4.0 to 4.3 (the children of the JVM's process on Linux). Gone: True, and their interpreter is not
    changed. ``SparkEnv`` is not usable: Py4J lists its methods, and one needs a class that PySpark does not have.
    """

    def access() -> bool:
        jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
        children = [pid for tasks in Path(f"/proc/{jvm}/task").glob("*/children") for pid in tasks.read_text().split()]
        return any(b"pyspark.worker" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children)

    return _seen(access, True)


def python_of_workers(context: Any) -> str | None:
    """The interpreter that the workers of *context* run.

    Seen in Spark 4.0 to 4.3 (``SparkContext.pythonExec``). Gone: None, and it is not changed.
    """
    return getattr(context, "pythonExec", None)


def name_python_of_workers(context: Any, python: str) -> None:
    """Let the workers of *context* run the interpreter *python*.

    Seen in Spark 4.0 to 4.3, which read it for each task. Gone: no effect.
    """
    context.pythonExec = python


# --- Python workers ---------------------------------------------------------------------------------------------------


def worker_socket() -> socket.socket | None:
    """The connection through which Spark sends tasks to this worker.

    Seen in Spark 3.5 to 4.3 (``pyspark/daemon.py``). Gone, or without Spark's daemon: None, and nothing is tuned or
    watched.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _WORKER_LOOP and frame.f_code.co_filename.endswith(_DAEMON):
            connection = frame.f_locals.get("sock")
            return connection if isinstance(connection, socket.socket) else None
        frame = frame.f_back
    return None


def share_zip_directories() -> None:
    """Let the packages of ``pyspark.zip`` share one copy of its directory, which saves 10 MB of each worker and more.

    Spark has the archive on the path of its Python processes, and calls :func:`importlib.invalidate_caches` when a
    process has its first task, or other files. Python before 3.13 then reads the directory, 1,485 files, for each
    package that was ever imported, and keeps all of these equal copies (python/cpython#103200).

    Seen in Python 3.11 and 3.12. Gone: each package keeps its copy.
    """
    if sys.version_info >= (3, 13):
        return
    directories: Any = getattr(zipimport, "_zip_directory_cache", {})
    for importer in list(sys.path_importer_cache.values()):
        if isinstance(importer, zipimport.zipimporter) and importer.archive in directories:
            vars(importer)["_files"] = directories[importer.archive]


def spare_pandas() -> None:
    """Keep the next call of ``pyarrow.array`` in this process from importing pandas, 40 MB of each worker and a quarter
    of a second of its first task; changes nothing where pandas is already imported.

    ``pyarrow.array`` imports pandas, if it is installed, to determine whether its argument belongs to pandas. Spark
    calls it with one list, the message of the task, when a writer has returned. For this one call a function replaces
    ``pyarrow.array``; other arguments, and later calls, reach the original. pyarrow's own record of whether pandas is
    available is not changed: Spark gives the same process to other jobs.

    Seen in Spark 4.0 to 4.3 (``pyspark/sql/worker/write_into_data_source.py``). Gone: pandas is imported.
    """
    pyarrow: Any = sys.modules.get("pyarrow")
    original = getattr(pyarrow, "array", None)
    if original is None or "pandas" in sys.modules or getattr(original, "__module__", "") == __name__:
        return

    def array(values: Any, *arguments: Any, **named: Any) -> Any:
        pyarrow.array = original
        if arguments or named or type(values) is not list or len(values) != 1 or type(values[0]) is not bytes:
            return original(values, *arguments, **named)
        return array_of_one(pyarrow.binary(), values[0])

    pyarrow.array = array


def array_of_one(kind: pa.DataType, value: bytes) -> pa.Array:
    """The array of *kind*, binary or UTF-8 text, with this one value, created without importing pandas."""
    import pyarrow

    offsets = pyarrow.py_buffer(struct.pack("=ii", 0, len(value)))
    return pyarrow.Array.from_buffers(kind, 1, [None, offsets, pyarrow.py_buffer(value)])
