"""A job is cancelled together with its caller."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_sink.spark.driver import jobs
from kafka_sink.spark.driver.jobs import Interrupts, run_stoppable


class Context:
    """A SparkContext whose only job runs until it is cancelled; *tags* are those of cancelled jobs."""

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
        # The first cancellation precedes the job's start, so only the second one takes effect.
        if len(self.tags) == 2:
            self.cancelled.set()


class Session:
    def __init__(self) -> None:
        self.context = self._sc = Context()


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(jobs, "inheriting", lambda session, run: run)
    return Session()


@pytest.mark.behaviour("Stop means stop", "An interrupted write ends its Spark job, and a repeated one is whole")
def test_interrupt_cancels_until_the_job_has_ended(spark: Session) -> None:
    def job() -> None:
        _thread.interrupt_main()
        assert spark.context.cancelled.wait(60)

    with pytest.raises(KeyboardInterrupt):
        run_stoppable(spark, job, Interrupts())  # type: ignore[arg-type]
    # More than two if the job is slow to react.
    assert len(spark.context.tags) >= 2 and set(spark.context.tags) == set(spark.context.began)


def test_interrupt_before_the_job_begins_lets_none_begin(spark: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Callable[[], object]] = []

    def interrupted(name: str, run: Callable[[], object]) -> None:
        runs.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "start_thread", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_stoppable(spark, lambda: None, Interrupts())  # type: ignore[arg-type]
    runs[0]()
    assert spark.context.began == spark.context.tags == []


def test_result_and_error_of_a_job_reach_the_caller(spark: Session) -> None:
    assert run_stoppable(spark, lambda: 7, Interrupts()) == 7  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="of the job"):
        run_stoppable(spark, lambda: int("of the job"), Interrupts())  # type: ignore[arg-type]
    assert spark.context.tags == []


class Interrupted:
    """Its finalizer is interrupted, as that of a Java object may be."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        # Python runs the signal handler at the next opportunity, which is here.
        sum(range(1_000))


@pytest.fixture(autouse=True)
def dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The types of the exceptions that Python reports as unraisable."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: found.append(type(each.exc_value)))
    before = signal.getsignal(signal.SIGINT)
    yield found
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.behaviour("Stop means stop", "An interrupt within a finalizer is not lost")
def test_interrupt_within_a_finalizer_is_raised_by_next_check(dropped: list[Any]) -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        interrupts.check()
        Interrupted()
        assert dropped == [KeyboardInterrupt]
        interrupts.check()
        pytest.fail("the interrupt is lost")


def test_interrupt_within_a_finalizer_is_raised_at_the_end(dropped: list[Any]) -> None:
    with pytest.raises(KeyboardInterrupt, match="too late: everything was done"), Interrupts():
        Interrupted()
        assert dropped == [KeyboardInterrupt]


@pytest.mark.behaviour("Stop means stop", "An interrupt says what it means at its moment")
def test_interrupt_without_a_text_gets_what_it_means_now() -> None:
    with pytest.raises(KeyboardInterrupt, match=r"^later$"), Interrupts(lambda: "first") as interrupts:
        interrupts.meaning = lambda: "later"
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1_000))
    with pytest.raises(KeyboardInterrupt, match=r"^its own$"), Interrupts(lambda: "first"):
        raise KeyboardInterrupt("its own")
    with pytest.raises(ValueError, match=r"^$"), Interrupts(lambda: "first"):
        raise ValueError


def test_a_handler_that_raises_nothing_interrupts_nothing() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with Interrupts() as interrupts:
            Interrupted()
            interrupts.check()
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_errors_of_the_body_are_raised_as_they_are(dropped: list[Any]) -> None:
    with pytest.raises(ValueError, match="mine"), Interrupts():
        Interrupted()
        raise ValueError("mine")
    assert dropped == [KeyboardInterrupt]


def test_what_follows_from_interrupts_is_told_from_other_errors() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, Interrupts() as interrupts:
        try:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                sum(range(1_000))
            finally:
                raise OSError("the connection cannot be closed")
        except OSError as error:
            assert interrupts.behind(ValueError()) is not error
            raise interrupts.behind(error)  # noqa: B904
    assert isinstance(raised.value, KeyboardInterrupt)


def test_other_threads_have_nothing_to_do() -> None:
    def run() -> None:
        with Interrupts() as interrupts:
            interrupts.check()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
