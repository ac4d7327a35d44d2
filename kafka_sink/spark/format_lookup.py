"""``format("kafkalite")`` in a session of Spark: its registration for every thread, and the reason if it is not found.

Called in the user's own Python process, from any thread. A write looks up a Python format in the session that is active
in the calling thread of the JVM. Spark searches for the formats of new sessions once for each JVM, with the interpreter
that the JVM's environment names. So a format is missing in a thread without an active session, and if that interpreter
has no kafkalite; both can be corrected from Python.

Source: Spark 4's ``DataSource.lookupDataSource``, ``DataSourceManager`` and ``PythonUtils.defaultPythonExec``.
"""

from __future__ import annotations

import os
import pkgutil
import shutil
import site
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from kafka_sink.preflight.findings import Finding, Status
from kafka_sink.spark.internals import (
    activate,
    activate_before,
    environment_of_jvm,
    folder_of_jvm,
    has_format,
    has_workers,
    is_active,
    look_up_format,
    name_python_of_workers,
    provide_format,
    python_of_workers,
)
from kafka_sink.spark.options import FORMAT, ONLY_WRITES
from kafka_sink.spark.versions import SPARK, is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_sink.spark.versions import DataSource

STEP: Final = "Spark finds the format"
REGISTER: Final = "kafka_sink.register(spark)"

#: The interpreter that Spark runs if none is named.
_DEFAULT_PYTHON: Final = "python3"
#: The environment variables of the JVM, in order, that name the interpreter that looks for formats.
_NAMES_OF_PYTHON: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_OWN_FOLDER: Final = Path(sys.executable).parent.resolve()
#: Starts this interpreter with the bytecode of PySpark, where pip has installed it.
_LAUNCHER: Final = str(_OWN_FOLDER / "kafkalite-python")


# --- registering ------------------------------------------------------------------------------------------------------


def register_format(spark: SparkSession, source: type[DataSource]) -> None:
    """Make *source* a format of *spark* that is found in every thread of this process, also after the connection of a
    thread with the JVM was replaced, for example after an interrupt.

    Spark 4.0 refuses a format that it has already found itself; this is not an error here.
    """
    if not is_connect(spark):
        name_interpreter(spark)
    # Spark's own search starts a Python process, which takes a second.
    is_provided = not is_connect(spark) and _finds_ours_alone(spark) and provide_format(spark, FORMAT, source)
    if is_connect(spark) or not (is_provided or has_format(spark, FORMAT, source)):
        try:
            spark.dataSource.register(source)
        except PySparkException as error:
            if "[DATA_SOURCE_ALREADY_EXISTS]" not in str(error):
                raise
    if is_connect(spark):
        return
    activate(spark)
    # From now on, a writer with this format first makes the session of the DataFrame the active one.
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    for writer in (DataFrameWriter, DataStreamWriter):
        writer.format = activate_before(writer.format, FORMAT)  # type: ignore[assignment,method-assign]


def name_interpreter(spark: SparkSession) -> None:
    """Set the workers' interpreter if none was named: one that has kafkalite. In a local session whose JVM has not
    started workers, kafkalite-python, which uses PySpark's installed bytecode, replaces this process's interpreter."""
    context = spark.sparkContext
    python = python_of_workers(context)
    # Other machines may not have this interpreter.
    is_local = str(context.master).startswith("local")
    named = python
    if python == _DEFAULT_PYTHON:
        named = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
        if named is None and is_local:
            named = sys.executable
    if is_local and _is_own_interpreter(named) and os.access(_LAUNCHER, os.X_OK) and not has_workers(spark):
        named = _LAUNCHER
    if named is not None and named != python:
        name_python_of_workers(context, named)


def _is_own_interpreter(python: str | None) -> bool:
    """Whether the command *python* runs the interpreter of this process, in the same virtual environment."""
    path = shutil.which(python) if python else None
    # In virtual environments *python* is a link to the system's interpreter, so the folders are compared, too.
    return path is not None and Path(path).parent.resolve() == _OWN_FOLDER and Path(path).samefile(sys.executable)


def _finds_ours_alone(spark: SparkSession) -> bool:
    """Whether Spark's search would find this format and no other. It finds installed packages, and those on the
    ``PYTHONPATH`` of the JVM's environment, but none on a path that only this process has."""
    jvm = {name: environment_of_jvm(spark, name) for name in (*_NAMES_OF_PYTHON, "PYTHONPATH")}
    python = next((jvm[name] for name in _NAMES_OF_PYTHON if jvm[name]), _DEFAULT_PYTHON)
    if not _is_own_interpreter(python) and python != _LAUNCHER:
        return False
    named = [folder_of_jvm(spark) or "", *filter(None, (jvm["PYTHONPATH"] or "").split(os.pathsep))]
    seen = [*named, *site.getsitepackages(), site.getusersitepackages()]
    return _formats_in(seen) == _formats_in([*seen, *sys.path]) == {"pyspark_kafkalite"}


def _formats_in(path: list[str]) -> set[str]:
    """The modules on *path* in which Spark looks for a format."""
    return {module.name for module in pkgutil.iter_modules(path) if module.name.startswith("pyspark_")}


# --- lookup -----------------------------------------------------------------------------------------------------------


def look_up(spark: SparkSession) -> Finding:
    """Whether ``df.write.format`` and ``df.writeStream.format`` find the format in this thread; if not, the cause and
    the line to write. Spark performs the steps of a write up to the process that creates the data source."""
    if SPARK < (4, 0):
        text = "Spark 3.5 has no formats in Python: kafka_sink.write and foreach_batch need none"
        return Finding(STEP, FORMAT, Status.OK, text)
    try:
        if not is_connect(spark):
            # A read would look in the session of the reader; a write looks in that of the thread.
            spark.range(0).write.format(FORMAT)
            look_up_format(spark, FORMAT)
        # Only the access to the schema makes Spark Connect send a request to its server.
        _ = spark.read.format(FORMAT).load().schema
    except Exception as error:
        # The class depends on the error: Py4J's own if PySpark does not convert it.
        text = str(error)
        if ONLY_WRITES in text:
            return Finding(STEP, FORMAT, Status.OK, "found, and its Python process runs")
        if "[DATA_SOURCE_NOT_FOUND]" in text:
            return Finding(STEP, FORMAT, Status.FAILED, *(_ON_THE_SERVER if is_connect(spark) else _in_this_jvm(spark)))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        cause = next((line for line in reversed(lines) if "Error: " in line), lines[0] if lines else text)
        return Finding(STEP, FORMAT, Status.FAILED, cause, _USABLE_PYTHON)
    text = f"another format has the name {FORMAT}"
    return Finding(STEP, FORMAT, Status.FAILED, text, f"call {REGISTER}, which replaces it")


_USABLE_PYTHON: Final = (
    "PYSPARK_PYTHON must name an interpreter that has pyspark and kafkalite where Spark is started, and no module "
    "pyspark_… of another package may fail there"
)
#: The cause, and what to do.
_ON_THE_SERVER: Final = (
    "the server has looked for formats with an interpreter that does not have kafkalite",
    f"call {REGISTER} before the write; kafkalite must be installed in the server's interpreter (PYSPARK_PYTHON when "
    "it is started)",
)


def _in_this_jvm(spark: Any) -> tuple[str, str]:
    """The cause, and what to do."""
    is_own = is_active(spark)
    if is_own is None:
        cause = "no session is active in this thread, as in a thread of one's own and after an interrupt"
        return cause, f"call {REGISTER} once, before the write"
    if not is_own:
        return "another session is active in this thread", f"call {REGISTER} with the session of the DataFrame"
    python = next(filter(None, (environment_of_jvm(spark, name) for name in _NAMES_OF_PYTHON)), _DEFAULT_PYTHON)
    return (
        f"Spark has looked for formats with the interpreter {python}, which has no kafkalite or cannot be run",
        f"call {REGISTER} before the write, or export PYSPARK_PYTHON={sys.executable} before Spark is started "
        "(spark.pyspark.python is not used for this)",
    )
