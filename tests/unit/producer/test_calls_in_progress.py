"""The calls in progress, refused calls, and the state after an interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.locks import is_held
from kafka_sink.producer.batching.calls_in_progress import APPEND, FLUSH, CallsInProgress
from tests.fakes.clock import on_another_thread
from tests.support.cases import with_each


class Calls(CallsInProgress):
    """Calls with two locks that the sender needs, and the number of reported interrupts."""

    def __init__(self) -> None:
        self.told = 0
        super().__init__(self._tell)
        self.locks = (threading.RLock(), threading.RLock())
        for lock in self.locks:
            self.sender_needs(lambda lock=lock: [lock])  # type: ignore[misc]

    def _tell(self) -> None:
        self.told += 1

    def leave_one(self, operation: str) -> None:
        """Leave a call in progress, as an interrupt at its last line does."""
        entry = self.during(operation, lambda: next(reversed(self._calls)))
        self._calls[entry] = None

    @property
    def held(self) -> list[bool]:
        return [is_held(lock) for lock in self.locks]


def test_a_call_is_in_progress_from_its_first_line_to_its_end() -> None:
    calls = Calls()
    assert not calls.has(APPEND)
    assert calls.during(APPEND, lambda: (calls.has(APPEND), calls.has(FLUSH))) == (True, False)
    assert not calls.has(APPEND)


def test_a_call_inside_another_of_its_thread_is_refused() -> None:
    calls = Calls()
    inner: list[str] = []

    def outer() -> None:
        with pytest.raises(KafkaError, match=r"^send was called during flush of the same producer on the same thread"):
            calls.during(APPEND, lambda: inner.append("on the same thread"))
        on_another_thread(lambda: calls.during(APPEND, lambda: inner.append("on another thread")))

    calls.during(FLUSH, outer)
    assert inner == ["on another thread"]
    assert calls.interruption is None


def fails(error: BaseException) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_an_error_of_the_call_is_no_interrupt() -> None:
    calls = Calls()
    with pytest.raises(KafkaError, match="closed"):
        calls.during(APPEND, fails(KafkaError("closed")))
    assert (calls.interruption, calls.reason, calls.told, calls.has(APPEND)) == (None, "", 0, False)


def test_only_the_first_interrupt_is_told() -> None:
    calls = Calls()
    for error in (KeyboardInterrupt(), ValueError()):
        with pytest.raises(type(error)):
            calls.during(FLUSH, fails(error))
        assert calls.interruption == "KeyboardInterrupt ended flush half-way"
        assert calls.reason == ": KeyboardInterrupt ended flush half-way"
        assert (calls.told, calls.has(FLUSH)) == (1, False)


def test_an_interrupt_leaves_no_call_and_no_lock_of_its_thread() -> None:
    calls = Calls()
    on_another_thread(lambda: calls.leave_one("close"))
    calls.leave_one(APPEND)
    for lock in calls.locks:
        lock.acquire()
    calls.interrupted(APPEND, KeyboardInterrupt())
    assert (calls.has(APPEND), calls.has("close")) == (False, True)
    assert calls.held == [False, False]


def test_an_interrupted_signal_handler_leaves_the_outer_call() -> None:
    calls = Calls()

    def handler() -> None:
        calls.locks[1].acquire()
        calls.interrupted(FLUSH, KeyboardInterrupt())
        assert calls.has(APPEND), "it goes on after the handler"
        assert calls.held == [False, True]

    calls.during(APPEND, handler)
    assert calls.interruption == "KeyboardInterrupt ended flush half-way"
    calls.locks[1].release()


@with_each(
    ("error", "holds", "is_inside", "interrupts"),
    [
        (KeyboardInterrupt(), False, False, True),
        (KeyboardInterrupt(), False, True, True),
        (TimeoutError(), False, False, False),
        (TimeoutError(), True, False, True),
        (TimeoutError(), True, True, False),
    ],
)
def test_error_with_a_lock_left_held_is_an_interrupt(
    error: BaseException, holds: bool, is_inside: bool, interrupts: bool
) -> None:
    calls = Calls()
    if holds:
        calls.locks[1].acquire()

    def end() -> None:
        calls.ended_by(error, FLUSH)

    if is_inside:
        calls.during(APPEND, end)
    else:
        end()
    assert calls.interruption == (f"{type(error).__name__} ended flush half-way" if interrupts else None)
    assert calls.told == interrupts
    assert calls.held == [False, holds and is_inside]


def test_nobody_waits_for_the_sender_where_it_cannot_proceed() -> None:
    calls = Calls()
    calls.check_may_wait(FLUSH)
    with calls.on_sender_thread():
        with pytest.raises(KafkaError, match=r"^flush in a delivery callback would deadlock"):
            calls.check_may_wait(FLUSH)
        on_another_thread(lambda: calls.check_may_wait(FLUSH))
    calls.check_may_wait(FLUSH)
    with calls.locks[1]:
        with pytest.raises(KafkaError, match=r"^flush was called during call of the same producer"):
            calls.check_may_wait(FLUSH)
        on_another_thread(lambda: calls.check_may_wait(FLUSH))
    calls.check_may_wait(FLUSH)
