"""An interrupt that a finalizer has swallowed is raised as soon as somebody looks."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sink.spark.driver.interrupts import Interrupts


class Interrupted:
    """Its finalizer is interrupted, as that of a Java object may be."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        # Python runs the handler at the next opportunity, which is here.
        sum(range(1_000))


@pytest.fixture(autouse=True)
def dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What Python has dropped."""
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
