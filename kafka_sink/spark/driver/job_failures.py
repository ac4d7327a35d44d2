"""The meaning of an exception of a Spark job for the write: whether the job was cancelled, whether another attempt may
succeed, and which part of the text may be shown.

If a task of the sink has failed the job, :func:`~kafka_sink.spark.errors.cause_of` returns its error. Other causes
reach the driver only as text: PySpark has no class for most of them, and Spark Connect transfers nothing else. Only the
beginning, which names the cause, is searched: the stack trace names other classes.

Source: apache/spark ``SparkCoreErrors.sparkJobCancelled``, ``DAGScheduler.abortStage``, and ``error-conditions.json``.
"""

from __future__ import annotations

import re
from typing import Final

from kafka_sink.common.errors import CancelledWriteError, KafkaError, SinkWriteError, is_permanent
from kafka_sink.exactly_once.model import AttemptError, ExactlyOnceError, FencedError
from kafka_sink.exactly_once.transactions import FENCED

#: Another program has cancelled the job, its stage, its group, all jobs, or stopped Spark.
_CANCELLED: Final = re.compile(
    r"\[SPARK_JOB_CANCELLED\]|\bJob \d+ cancelled\b|\bOPERATION_CANCELL?ED\b|InterruptedException"
    r"|SparkContext was shut ?down|stopped SparkContext|\[INVALID_HANDLE\.OPERATION_ABANDONED\]"
)
#: Losses of the cluster that another attempt repairs.
_LOST: Final = re.compile(
    r"\[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND\]|Checkpoint block \S+ not found|Job aborted due to stage"
)
#: A stage that fails again: rows, functions, files and sizes. From 4.0 on most of them have an error condition.
_FAILS_AGAIN: Final = re.compile(
    r"PythonException|\[(?!CHECKPOINT_RDD)[A-Z][A-Z0-9_.]+\]|FileNotFound|is not true!|erializ|UnsupportedOperation"
    r"|Spark(?:Runtime|Arithmetic|DateTime|NumberFormat|ArrayIndexOutOfBounds|FileNotFound|Upgrade)\w*Exception"
    r"|java\.lang\.(?:Runtime|IllegalArgument|Arithmetic|NumberFormat|ClassCast|NullPointer)Exception"
)
#: Characters of Spark's text that are shown.
_SHOWN: Final = 400
#: The part of an error about a row that contains a value of the row.
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
    """Whether another program has cancelled the job that ended with *error*."""
    return not isinstance(error, KafkaError) and _CANCELLED.search(_beginning(error)) is not None


def as_spark_reads(error: Exception) -> Exception:
    """The error to raise from a batch of a query instead of *error*.

    Spark distinguishes the stop of a query from a failure by a pattern on the text of Py4J's error, which needs a stack
    frame or more for each character after the beginning. A Java stack trace is too long for that: the thread of the
    query ends with a StackOverflowError.

    Source: apache/spark ``StreamExecution.PROXY_ERROR``.
    """
    # A client of Spark Connect has no Py4J.
    if type(error).__name__ != "Py4JJavaError" or not is_cancelled(error):
        return error
    return CancelledWriteError(f"py4j.protocol.Py4JJavaError: {_beginning(error)}")


def of_attempt(error: Exception) -> Exception:
    """*error* of an attempt at a batch, or in its place the AttemptError if another attempt may succeed, and the
    FencedError if a task's transaction had another producer."""
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
