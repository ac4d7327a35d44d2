"""The real clock: units, and waits that are bounded."""

from __future__ import annotations

import threading
import time

from kafka_sink.common.clock import FOREVER_MS, SYSTEM_CLOCK


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
        # The notifier can only get the lock once wait() has given it up.
        thread = threading.Thread(target=notify, daemon=True)
        thread.start()
        assert SYSTEM_CLOCK.wait(condition, FOREVER_MS) is True
    thread.join()
