"""Threads have names, and an exception that escapes one is not lost."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from kafka_sink.common import threads
from kafka_sink.common.threads import start_thread
from tests.fakes.manual_clock import ManualClock


def test_thread_has_its_name_and_is_a_daemon() -> None:
    seen: list[threading.Thread] = []
    thread = start_thread("sender-p1", lambda: seen.append(threading.current_thread()))
    thread.join(5)
    assert seen == [thread]
    assert thread.name == "sender-p1"
    assert thread.daemon


def test_an_escaping_exception_is_logged_with_the_threads_name(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("boom")

    start_thread("sender-p1", fail).join(5)
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

    owners = [Owner() for _ in range(3)]
    for owner, tell in zip(owners, (Owner.note, Owner.fail, Owner.note), strict=True):
        threads.at_fork(owner, tell)
    # As in a child, but for those owners alone that this test has made.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "_told_of_exit", {})
        patch.setattr(threads, "_told_of_forks", {owner: threads._told_of_forks[owner] for owner in owners})
        threads._tell_all()
    assert [owner.told for owner in owners] == [True, False, True]
    assert "Owner could not be told of the fork" in caplog.text


@pytest.mark.behaviour(
    "KafkaProducer", "A program that ends waits for the sender's thread, which says what was not sent"
)
def test_a_thread_that_runs_is_told_of_the_exit_and_waited_for() -> None:
    told = threading.Event()
    seen: list[str] = []

    def run() -> None:
        told.wait(10)
        seen.append("ended by itself")

    start_thread("over by then", lambda: None, at_exit=lambda: seen.append("told too late")).join(5)
    thread = start_thread("sender-p1", run, at_exit=told.set)
    threads._end_threads()
    assert not thread.is_alive()
    assert seen == ["ended by itself"]


def test_stubborn_thread_delays_exit_only_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "_EXIT_LIMIT_MS", 10)
    over = threading.Event()
    thread = start_thread("stubborn", lambda: over.wait(10) and None, at_exit=lambda: None)
    threads._end_threads()
    assert "thread stubborn did not end" in caplog.text
    over.set()
    thread.join(5)


class Stuck:
    """A thread that never ends; joining it takes as long as it is given, on the clock of the test."""

    def __init__(self, name: str, clock: ManualClock) -> None:
        self.name = name
        self._clock = clock

    def is_alive(self) -> bool:
        return True

    def join(self, timeout: float) -> None:
        self._clock.advance(round(timeout * 1000))


def test_exit_waits_for_one_limit_however_many_threads_are_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    began_ms = clock.now_ms
    told: list[str] = []
    stuck = {Stuck(f"sender-{number}", clock): partial(told.append, f"sender-{number}") for number in range(100)}
    monkeypatch.setattr(threads, "SYSTEM_CLOCK", clock)
    monkeypatch.setattr(threads, "_told_of_exit", stuck)
    threads._end_threads()
    assert len(told) == 100
    assert clock.now_ms - began_ms == threads._EXIT_LIMIT_MS


def test_a_thread_that_cannot_be_told_keeps_no_other_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("no way to tell it")

    told = threading.Event()
    deaf = start_thread("deaf", lambda: told.wait(10) and None, at_exit=fail)
    other = start_thread("sender-p1", lambda: told.wait(10) and None, at_exit=told.set)
    threads._end_threads()
    assert "thread deaf could not be told" in caplog.text
    assert not deaf.is_alive()
    assert not other.is_alive()


def test_a_thread_that_is_about_to_start_does_not_break_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    unstarted = threading.Thread(target=lambda: None)
    monkeypatch.setattr(threads, "_told_of_exit", {unstarted: lambda: told.append("told")})
    threads._end_threads()
    assert told == ["told"]
