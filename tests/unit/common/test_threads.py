"""Threads have names, and an exception that ends a thread is reported."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from kafka_sink.common import threads as common_threads
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.threads import EXIT_LIMIT_MS, ProcessThreads, start_thread
from tests.fakes.clock import FakeClock


def test_thread_has_its_name_and_is_a_daemon() -> None:
    seen: list[threading.Thread] = []
    thread = start_thread("sender-p1", lambda: seen.append(threading.current_thread()))
    thread.join(60)
    assert seen == [thread]
    assert thread.name == "sender-p1"
    assert thread.daemon


def test_an_escaping_exception_is_logged_with_the_threads_name(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("boom")

    start_thread("sender-p1", fail).join(60)
    (record,) = caplog.records
    assert "sender-p1" in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "boom"


def test_failing_fork_callback_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class Owner:
        told = False

        def fail(self) -> None:
            raise RuntimeError("boom")

        def note(self) -> None:
            self.told = True

    threads = ProcessThreads(FakeClock())
    owners = [Owner() for _ in range(3)]
    for owner, tell in zip(owners, (Owner.note, Owner.fail, Owner.note), strict=True):
        threads.at_fork(owner, tell)
    threads.forked()
    assert [owner.told for owner in owners] == [True, False, True]
    assert "the fork hook of Owner failed" in caplog.text


@pytest.mark.behaviour("KafkaProducer", "A program that ends tells the sender's thread and waits for it")
def test_a_thread_that_runs_is_told_of_the_exit_and_waited_for() -> None:
    told = threading.Event()
    seen: list[str] = []

    def run() -> None:
        told.wait(10)
        seen.append("ended by itself")

    threads = ProcessThreads(SYSTEM_CLOCK)
    threads.start("over by then", lambda: None, at_exit=lambda: seen.append("told too late")).join(60)
    thread = threads.start("sender-p1", run, at_exit=told.set)
    threads.end()
    assert not thread.is_alive()
    assert seen == ["ended by itself"]


def test_stubborn_thread_delays_exit_only_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(common_threads, "EXIT_LIMIT_MS", 10)
    threads = ProcessThreads(SYSTEM_CLOCK)
    over = threading.Event()
    thread = threads.start("stubborn", lambda: over.wait(10), at_exit=lambda: None)
    threads.end()
    assert "thread stubborn did not end" in caplog.text
    over.set()
    thread.join(60)


def test_exit_waits_for_one_limit_however_many_threads_are_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()

    class Stuck:
        """A thread that never ends; a join waits for its full timeout, on the clock of the test."""

        def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
            self.name = name

        def start(self) -> None:
            """Start, and never end."""

        def is_alive(self) -> bool:
            return True

        def join(self, timeout: float) -> None:
            clock.advance(round(timeout * 1000))

    began_ms = clock.now_ms
    told: list[str] = []
    threads = ProcessThreads(clock)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Stuck)
        for number in range(100):
            threads.start(f"sender-{number}", lambda: None, at_exit=partial(told.append, f"sender-{number}"))
    threads.end()
    assert len(told) == 100
    assert clock.now_ms - began_ms == EXIT_LIMIT_MS


def test_a_thread_that_cannot_be_told_keeps_no_other_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("no way to tell it")

    told = threading.Event()
    threads = ProcessThreads(SYSTEM_CLOCK)
    deaf = threads.start("deaf", lambda: told.wait(10), at_exit=fail)
    other = threads.start("sender-p1", lambda: told.wait(10), at_exit=told.set)
    threads.end()
    assert "the exit hook of thread deaf failed" in caplog.text
    assert not deaf.is_alive()
    assert not other.is_alive()


def test_a_thread_that_is_about_to_start_does_not_break_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = ProcessThreads(FakeClock())
    told: list[str] = []

    class Slow(threading.Thread):
        def start(self) -> None:
            threads.end()

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Slow)
        threads.start("slow", lambda: None, at_exit=lambda: told.append("told"))
    assert told == ["told"]
