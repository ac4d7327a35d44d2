"""The effect of a Spark job's exception on a write."""

from __future__ import annotations

import re
import traceback

import pytest
from pyspark.errors import PySparkException

from kafka_sink.common.errors import ConfigError, ErrorCode, KafkaTimeoutError
from kafka_sink.errors import CancelledWriteError, SinkWriteError
from kafka_sink.exactly_once.model import AttemptError, FencedError
from kafka_sink.spark.dataframe_writer import WriteCourse
from kafka_sink.spark.driver.job_failures import as_spark_reads, is_cancelled, of_attempt, summary_of
from tests.support.cases import with_each

PY4J = "An error occurred while calling o63.collectToPython.\n: "
STAGE = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 10.0 failed 4 times, most "
    "recent failure: Lost task 1.3 in stage 10.0 (TID 17) (localhost executor driver): "
)
TRACE = "\n\tat org.apache.spark.api.python.PythonException.of\n\tat java.lang.InterruptedException.of"


@pytest.mark.behaviour("Stop means stop", "A write that somebody cancels is not tried again")
@with_each(
    "said",
    [
        f"{PY4J}org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 1 cancelled part of cancelled job group g",
        f"{PY4J}org.apache.spark.SparkException: Job 3 cancelled as part of cancellation of all jobs",
        f"{PY4J}org.apache.spark.SparkException: Job 5 cancelled because Stage 5 was cancelled",
        f"{PY4J}org.apache.spark.SparkException: Job 19 cancelled because SparkContext was shut down",
        "[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008",
        "(java.lang.InterruptedException) ",
    ],
)
def test_cancelled_jobs_are_known(said: str) -> None:
    error = PySparkException(said)
    assert is_cancelled(error)
    assert of_attempt(error) is error
    told = WriteCourse("t", 3, None, is_of_query=True).ended_by(error)
    assert isinstance(told, CancelledWriteError)
    assert str(told).endswith(": no row of version 3 became visible; write it again")


#: Spark's pattern, which needs at least one stack frame for each character in the group.
SPARKS_PATTERN = (
    r"py4j\.protocol\.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)(java\.lang\.InterruptedException)"
)


class Py4JJavaError(Exception):
    """Has the name of Py4J's error, which cannot be constructed without a JVM."""


@pytest.mark.behaviour("Stop means stop", "A query that is stopped within a batch has not failed, and runs it once")
def test_spark_finds_the_stop_of_a_query_in_a_short_text() -> None:
    read = as_spark_reads(Py4JJavaError(f"{PY4J}java.lang.InterruptedException{100 * TRACE}"))
    text = "".join(traceback.format_exception(read))
    found = re.search(SPARKS_PATTERN, text)
    assert found is not None and len(text) - found.start(1) < 100, text


def test_other_errors_of_a_batch_are_raised_as_they_are() -> None:
    for error in (Py4JJavaError(f"{PY4J}java.io.IOException{TRACE}"), ValueError("java.lang.InterruptedException")):
        assert as_spark_reads(error) is error


@pytest.mark.behaviour("Exactly once: atomic", "What another attempt may cure is tried again")
@with_each(
    "said",
    [
        f"{PY4J}{STAGE}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        f"{PY4J}{STAGE}ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: lost",
        f"{PY4J}org.apache.spark.SparkException: Job aborted due to stage failure: ShuffleMapStage 3 has failed the "
        "maximum allowable number of times: 4. Most recent failure reason: org.apache.spark.shuffle.FetchFailed",
        f"{PY4J}org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_1_2",
    ],
)
def test_what_the_cluster_has_lost_is_tried_again(said: str) -> None:
    error = PySparkException(said + TRACE)
    assert not is_cancelled(error)
    assert isinstance(of_attempt(error), AttemptError)


@pytest.mark.behaviour("Stop means stop", "What no attempt cures is raised at once, with its first cause")
@with_each(
    "said",
    [
        f"{PY4J}{STAGE}org.apache.spark.api.python.PythonException: Traceback (most recent call last):",
        f"{PY4J}{STAGE}java.lang.RuntimeException: '(id < 2)' is not true!",
        f"{PY4J}{STAGE}org.apache.spark.SparkFileNotFoundException: File file:/in does not exist",
        "[USER_RAISED_EXCEPTION] '(id < 2)' is not true! SQLSTATE: P0001",
        f"{PY4J}org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error",
        "[UNRESOLVED_COLUMN] A column cannot be resolved",
        "[NOT_IMPLEMENTED] x is not implemented.",
        f"{PY4J}org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results",
    ],
)
def test_what_spark_would_say_again_is_raised_as_it_is(said: str) -> None:
    error = PySparkException(said + TRACE)
    assert not is_cancelled(error)
    assert of_attempt(error) is error


@with_each(
    ("error", "may_pass"),
    [
        *(
            (SinkWriteError(f"topic {name}: no answer in 120000 ms"), True)
            for name in ("POLICY_VIOLATION", "ConfigError")
        ),
        (SinkWriteError("no answer", cause_class="ApiError", is_permanent=True), False),
        (KafkaTimeoutError("no answer"), True),
        (ConfigError("two options"), False),
        (FencedError("a newer driver"), False),
        (ValueError("of a signal handler"), False),
    ],
)
def test_errors_of_the_sink_are_tried_again_if_they_may_pass(error: Exception, may_pass: bool) -> None:
    assert isinstance(of_attempt(error), AttemptError) is may_pass


def test_fence_of_a_task_is_told_from_its_other_failures() -> None:
    fenced = SinkWriteError("an older epoch", code=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert isinstance(of_attempt(fenced), FencedError)


def test_summary_is_one_line_of_what_spark_says() -> None:
    assert summary_of(PySparkException(f"{PY4J}{STAGE}the cause{TRACE}")) == f"{STAGE}the cause"


class Counted:
    value = 1200


@pytest.mark.behaviour("Stop means stop", "An error that ends a write says what stays in the topic")
def test_an_interrupt_stays_what_it_is_and_says_what_stays() -> None:
    stopped = WriteCourse("t", None, Counted(), is_of_query=False).ended_by(  # type: ignore[arg-type]
        KeyboardInterrupt()
    )
    assert type(stopped) is KeyboardInterrupt
    assert str(stopped) == (
        "the write was stopped: 1,200 rows of tasks that had ended and the rows of other tasks that were acknowledged "
        "before stay in topic t, and a repeated write writes them again"
    )
    bare = WriteCourse("t", 4, None, is_of_query=True).ended_by(AssertionError())
    assert (str(bare), bare.__notes__) == ("", ["kafkalite: no row of version 4 became visible; write it again"])
    timed_out = WriteCourse("t", 4, None, is_of_query=True, is_deciding=True).ended_by(TimeoutError("after 60 s"))
    assert str(timed_out) == "after 60 s"
    assert timed_out.__notes__ == [
        "kafkalite: version 4 was about to be committed and is in Kafka as a whole or not at all; write it again, "
        "which writes it once"
    ]


@pytest.mark.behaviour(
    "Exactly once: versions out of order", "The error of a version says what a later one that is committed does to it"
)
def test_failed_version_names_what_a_later_one_does_to_it() -> None:
    course = WriteCourse("t", 1, None, is_of_query=False)
    failed = course.ended_by(FencedError("a newer driver has taken over"))
    (note,) = failed.__notes__
    assert note.startswith("kafkalite: if version 1 is not committed, write it again before any later version: once")
    assert "before any later version" in str(course.ended_by(KeyboardInterrupt()))
    assert not hasattr(WriteCourse("t", 1, None, is_of_query=True).ended_by(FencedError("newer")), "__notes__")
