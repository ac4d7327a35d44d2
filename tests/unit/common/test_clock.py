"""The real clock: units, and waits that are bounded."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kafka_sink.common.clock import FOREVER_MS, SYSTEM_CLOCK

TraceFunction = Callable[[FrameType, str, Any], Any]


def test_monotonic_time_is_in_milliseconds_and_never_goes_back() -> None:
    before = time.monotonic_ns()
    readings = [SYSTEM_CLOCK.monotonic_ms() for _ in range(100)]
    after = time.monotonic_ns()
    assert readings == sorted(readings)
    assert before // 1_000_000 <= readings[0]
    assert readings[-1] <= after // 1_000_000


def test_wall_time_is_the_unix_epoch_in_milliseconds() -> None:
    assert 0 <= SYSTEM_CLOCK.wall_ms() - int(time.time() * 1000) < 60_000


def test_wait_times_out() -> None:
    condition = threading.Condition()
    with condition:
        assert SYSTEM_CLOCK.wait(condition, 0) is False
        assert SYSTEM_CLOCK.wait(condition, -5) is False


def test_wait_for_ever_is_accepted_and_ends_with_a_notification() -> None:
    condition = threading.Condition()

    def notify() -> None:
        with condition:
            condition.notify_all()

    with condition:
        # The notifier can acquire the lock only after wait() has released it.
        thread = threading.Thread(target=notify, daemon=True)
        thread.start()
        assert SYSTEM_CLOCK.wait(condition, FOREVER_MS) is True
    thread.join()


@pytest.mark.behaviour("Threads", "An interrupt within a wait reaches the caller, wherever it strikes")
def test_an_interrupt_at_any_bytecode_of_a_wait_is_seen() -> None:
    """Interrupts at every bytecode of the wait and of the library below it: no other error replaces an interrupt, the
    condition stays usable, and no waiter remains in it that would take the notification of another one."""
    struck = 0
    while _is_interrupted(struck):
        struck += 1
    assert struck > 60


def _is_interrupted(at: int) -> bool:
    """Wait, with an interrupt before bytecode number *at*; return False if the wait has fewer bytecodes."""
    condition = threading.Condition()
    left = [at]

    def trace(frame: FrameType, event: str, argument: Any) -> TraceFunction | None:
        if frame.f_code is not waits and frame.f_code.co_filename != threading.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    waits = type(SYSTEM_CLOCK).wait.__code__
    is_interrupted = False
    before = sys.gettrace()
    try:
        with condition:
            # Python 3.12 traces bytecodes only if a frame has requested them before.
            own = inspect.currentframe()
            assert own is not None
            own.f_trace_opcodes = True
            sys.settrace(trace)
            try:
                SYSTEM_CLOCK.wait(condition, 1)
            finally:
                sys.settrace(before)
    except KeyboardInterrupt:
        is_interrupted = True
    woken: list[bool] = []
    waiter = threading.Thread(target=_wait_for_a_second, args=(condition, woken))
    with condition:
        waiter.start()
        # The waiter releases the condition's lock when it waits.
        condition.wait(0.001)
    while waiter.is_alive():
        with condition:
            condition.notify()
        waiter.join(0.01)
    assert woken == [True]
    return is_interrupted


def _wait_for_a_second(condition: threading.Condition, woken: list[bool]) -> None:
    with condition:
        woken.append(SYSTEM_CLOCK.wait(condition, 10_000))
