"""The end of a streaming job, with a fake query."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from kafka_sink.spark.streaming.stopping import JvmHandler, Stop, run_until_stopped


class JavaError:
    """A failure of the query as the JVM reports it."""

    def __init__(self, text: str, cause: JavaError | None = None) -> None:
        self.text, self.cause = text, cause

    def toString(self) -> str:
        return self.text

    def getCause(self) -> JavaError | None:
        return self.cause

    def get(self) -> JavaError:
        return JavaError("org.apache.spark.sql.streaming.StreamingQueryException: ", self)


class JavaQuery:
    """The JVM's object of the query; it fails with *text*."""

    def __init__(self, text: str) -> None:
        self.text = text

    def streamingQuery(self) -> JavaQuery:
        return self

    def getClass(self) -> JavaQuery:
        return self

    def getSimpleName(self) -> str:
        return "MicroBatchExecution"

    def exception(self) -> JavaError:
        return JavaError(self.text)


class Query:
    """Fails with *text* at its first check, after it has sent *signals* to its process."""

    id = "5f0c8d7e-1"

    def __init__(self, text: str, *signals: signal.Signals) -> None:
        self.text, self.signals = text, signals
        self._jsq = JavaQuery(text)

    @property
    def isActive(self) -> bool:
        for number in self.signals:
            os.kill(os.getpid(), number)
        return False

    def exception(self) -> StreamingQueryException:
        return StreamingQueryException(f"it failed: {self.text}")


def run(text: str, *signals: signal.Signals) -> None:
    query: Any = Query(text, *signals)
    run_until_stopped(query)


@pytest.mark.behaviour("Spark jobs", "A program that the signal ended is no failure")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_hadoop_program_ended_by_the_signal_is_no_failure(
    number: signal.Signals, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run(f"terminated with exception: ExitCodeException exitCode={code}: ", number)
    assert "the query writes the current micro-batch after its next start" in caplog.text


@pytest.mark.behaviour("Spark jobs", "Any other failure is raised")
@pytest.mark.parametrize(
    ("text", "signals"),
    [
        ("ExitCodeException exitCode=130: ", ()),
        ("ExitCodeException exitCode=1300: ", (signal.SIGINT,)),
        ("this row fails", (signal.SIGINT,)),
    ],
)
def test_any_other_failure_is_raised(text: str, signals: tuple[signal.Signals, ...]) -> None:
    with pytest.raises(StreamingQueryException, match=text):
        run(text, *signals)


@pytest.mark.behaviour("Spark jobs", "SIGTERM and Ctrl-C let the micro-batch end, and the next start goes on")
def test_one_signal_to_python_and_to_the_jvm_waits_for_the_batch() -> None:
    stop = Stop()
    jvm = JvmHandler(stop)
    stop.on_signal(signal.SIGINT, None)
    jvm.handle(None)
    assert stop.requested.is_set()
    assert not stop.at_once.is_set()
    jvm.handle(None)
    assert stop.at_once.is_set()
