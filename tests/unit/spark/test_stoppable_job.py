"""A job ends with its caller."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

import pytest

from kafka_sink.spark.driver import stoppable_job
from kafka_sink.spark.driver.interrupts import Interrupts
from kafka_sink.spark.driver.stoppable_job import run_stoppable


class Context:
    """Of a Spark whose one job runs until it is cancelled; *tags* are those of cancelled jobs."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.began: list[str] = []
        self.tags: list[str] = []

    def addJobTag(self, tag: str) -> None:
        self.began.append(tag)

    def setInterruptOnCancel(self, interrupts: bool) -> None:
        assert not interrupts

    def cancelJobsWithTag(self, tag: str) -> None:
        self.tags.append(tag)
        # Cancelled before it has begun: only the second time it is.
        if len(self.tags) == 2:
            self.cancelled.set()


class Session:
    def __init__(self) -> None:
        self.context = self._sc = Context()


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(stoppable_job, "inheriting", lambda session, run: run)
    return Session()


@pytest.mark.behaviour("Stop means stop", "An interrupted write ends its Spark job, and a repeated one is whole")
def test_interrupt_cancels_until_the_job_has_ended(spark: Session) -> None:
    def job() -> None:
        _thread.interrupt_main()
        assert spark.context.cancelled.wait(60)

    with pytest.raises(KeyboardInterrupt):
        run_stoppable(spark, job, Interrupts())  # type: ignore[arg-type]
    # More often than that where the job takes long to notice it.
    assert len(spark.context.tags) >= 2 and set(spark.context.tags) == set(spark.context.began)


def test_interrupt_before_the_job_begins_lets_none_begin(spark: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Callable[[], object]] = []

    def interrupted(name: str, run: Callable[[], object]) -> None:
        runs.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(stoppable_job, "start_thread", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_stoppable(spark, lambda: None, Interrupts())  # type: ignore[arg-type]
    runs[0]()
    assert spark.context.began == spark.context.tags == []


def test_result_and_error_of_a_job_reach_the_caller(spark: Session) -> None:
    assert run_stoppable(spark, lambda: 7, Interrupts()) == 7  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="of the job"):
        run_stoppable(spark, lambda: int("of the job"), Interrupts())  # type: ignore[arg-type]
    assert spark.context.tags == []
