"""The only reader of time.

State machines never ask what time it is: they are given ``now_ms``. The shells around them (threads, facades)
hold a :class:`Clock`, so a test or a simulator can put a fake one in its place. Two times exist and are never mixed:
the monotonic one for deadlines and the wall clock for record timestamps.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final, Protocol

#: Stands for "no deadline" wherever a duration or an instant in ms is expected.
FOREVER_MS: Final = 2**62

#: Nanoseconds since an arbitrary start, for figures alone: nothing may be decided by it.
stopwatch_ns: Final = time.monotonic_ns


class Clock(Protocol):
    """Source of time for everything that has to wait or to stamp."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back. Use it for every deadline."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch. Use it for record timestamps only."""
        ...

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        """Wait on *condition* (held by the caller) for at most *timeout_ms*; False when it timed out."""
        ...


class SystemClock:
    """The real clock."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        # threading refuses time-outs beyond TIMEOUT_MAX; "for ever" is longer than that.
        return condition.wait(min(max(timeout_ms, 0) / 1000.0, threading.TIMEOUT_MAX))


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant from which another process of the same machine may measure.

    As much time has passed since then as either clock says: the wall clock may be set back, and the monotonic one
    stands still while the machine sleeps. Only for limits that are better reached too early than too late.
    """

    wall_ms: int
    monotonic_ms: int

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        return cls(clock.wall_ms(), clock.monotonic_ms())

    def elapsed_ms(self, clock: Clock) -> int:
        """How long ago it was."""
        return max(clock.wall_ms() - self.wall_ms, clock.monotonic_ms() - self.monotonic_ms)


SYSTEM_CLOCK: Final[Clock] = SystemClock()
