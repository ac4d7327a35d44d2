"""Threads have names, and an exception that escapes one is not lost."""

from __future__ import annotations

import threading

import pytest

from kafka_sink.common import threads
from kafka_sink.common.threads import start_thread


def test_the_thread_runs_under_its_name_and_does_not_hold_up_the_exit() -> None:
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


def test_a_thread_that_does_not_end_holds_up_the_exit_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "_EXIT_LIMIT_S", 0.01)
    over = threading.Event()
    thread = start_thread("stubborn", lambda: over.wait(10) and None, at_exit=lambda: None)
    threads._end_threads()
    assert "thread stubborn did not end" in caplog.text
    over.set()
    thread.join(5)
