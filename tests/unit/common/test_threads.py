"""Threads have names, and an exception that escapes one is not lost."""

from __future__ import annotations

import threading

import pytest

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
