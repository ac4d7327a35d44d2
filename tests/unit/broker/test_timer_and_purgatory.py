"""Timers, and requests that wait for bytes without blocking a thread."""

from __future__ import annotations

import gc
import weakref

import pytest

from kafka_sink.broker.delays import DelayedOperation, DelayedOperationPurgatory, Timer
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.model import TopicPartition
from tests.fakes.clock import FakeClock

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_actions_run_when_they_are_due_in_order_of_time() -> None:
    timer, ran = Timer(FakeClock()), []
    for at_ms in (30, 10, 20, 10):
        timer.schedule(at_ms, lambda at_ms=at_ms: ran.append(at_ms))  # type: ignore[misc]
    assert timer.run_due(9) == 10
    assert ran == []
    assert timer.run_due(20) == 30
    assert ran == [10, 10, 20]
    assert timer.run_due(30) == FOREVER_MS


def test_failing_timer_action_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    timer, ran = Timer(FakeClock()), []

    def fail() -> None:
        raise ValueError("a mistake")

    timer.schedule(1, fail)
    timer.schedule(2, lambda: ran.append(2))
    timer.run_due(5)
    assert ran == [2]
    assert "a delayed action failed" in caplog.text


class Waiting:
    """A delayed operation that completes when a flag is set."""

    def __init__(self) -> None:
        self.ready = False
        self.finished = 0
        self.operation = DelayedOperation(lambda: self.ready, self._finish)

    def _finish(self) -> None:
        self.finished += 1


def test_check_completes_a_satisfied_operation_once() -> None:
    purgatory = DelayedOperationPurgatory(timer := Timer(FakeClock()))
    waiting = Waiting()
    purgatory.watch(waiting.operation, [KEY, OTHER], deadline_ms=100)
    purgatory.check(KEY)
    assert (waiting.finished, purgatory.watched) == (0, 2)
    waiting.ready = True
    purgatory.check(KEY)
    purgatory.check(OTHER)
    timer.run_due(100)
    assert (waiting.finished, purgatory.watched) == (1, 0)


def test_completed_operation_is_watched_under_no_key() -> None:
    purgatory = DelayedOperationPurgatory(Timer(FakeClock()))
    cold = [TopicPartition("cold", number) for number in range(100)]
    for _ in range(5):
        waiting = Waiting()
        purgatory.watch(waiting.operation, [KEY, *cold], deadline_ms=60_000)
        waiting.ready = True
        purgatory.check(KEY)
        assert (waiting.finished, purgatory.watched) == (1, 0)


def test_deadline_completes_an_unsatisfied_operation() -> None:
    purgatory = DelayedOperationPurgatory(timer := Timer(FakeClock()))
    waiting = Waiting()
    purgatory.watch(waiting.operation, [KEY], deadline_ms=100)
    timer.run_due(99)
    assert waiting.finished == 0
    timer.run_due(100)
    assert (waiting.finished, purgatory.watched) == (1, 0)
    waiting.ready = True
    purgatory.check(KEY)
    assert waiting.finished == 1


def test_operation_satisfied_before_its_watch_completes_at_once() -> None:
    purgatory = DelayedOperationPurgatory(Timer(FakeClock()))
    waiting = Waiting()
    waiting.ready = True
    purgatory.watch(waiting.operation, [KEY], deadline_ms=100)
    assert (waiting.finished, purgatory.watched) == (1, 0)


def test_a_check_of_another_key_changes_nothing() -> None:
    purgatory = DelayedOperationPurgatory(Timer(FakeClock()))
    first, second = Waiting(), Waiting()
    purgatory.watch(first.operation, [KEY], deadline_ms=100)
    purgatory.watch(second.operation, [KEY], deadline_ms=100)
    first.ready = second.ready = True
    purgatory.check(OTHER)
    assert (first.finished, second.finished) == (0, 0)
    purgatory.check(KEY)
    assert (first.finished, second.finished) == (1, 1)


def test_completed_operation_is_released_before_its_deadline() -> None:
    purgatory = DelayedOperationPurgatory(Timer(FakeClock()))
    waiting = Waiting()
    purgatory.watch(waiting.operation, [KEY, OTHER], deadline_ms=60_000)
    waiting.ready = True
    purgatory.check(KEY)
    request = weakref.ref(waiting)
    del waiting
    gc.collect()
    assert request() is None, "the timer still has it"
