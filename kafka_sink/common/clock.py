"""The clock: the only module that reads the time.

State machines never read the time: they receive ``now_ms``. Threads and public classes hold a :class:`Clock`, so a test
or a simulator can replace it. There are two times: the monotonic time for deadlines of waits, and the wall clock for
times that are stored or exchanged, such as record timestamps and the expiry of tokens.

It also has a deadline for all waits of a thread (:func:`within`), and the pauses between attempts, which grow
exponentially with jitter (KIP-580).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

from kafka_sink.common.bounded import known_number

#: Means "no deadline" for a duration or an instant in ms.
FOREVER_MS: Final = 2**62

#: Nanoseconds since an arbitrary start, for metrics only: no decision may depend on it.
stopwatch_ns: Final = time.monotonic_ns


class Clock(Protocol):
    """Source of time for waits and timestamps."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never decreases. Use it for every deadline."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch. Use it for stored or exchanged times, such as record timestamps."""

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        """Wait on *condition* (held by the caller) for at most *timeout_ms*; False after a time-out."""


class SystemClock:
    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        try:
            # threading refuses time-outs beyond TIMEOUT_MAX, and "for ever" is longer.
            return condition.wait(min(max(timeout_ms, 0) / 1000.0, threading.TIMEOUT_MAX))
        except BaseException:
            # An interrupt outside of the library's try statement leaves the condition released, with a waiter in it
            # that would take the next notification.
            try:
                condition.notify_all()
            except RuntimeError:
                condition.acquire()
                condition.notify_all()
            raise


def pause(clock: Clock, duration_ms: int) -> None:
    """Let the calling thread wait for *duration_ms*."""
    condition = threading.Condition()
    with condition:
        clock.wait(condition, duration_ms)


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant from which another process of the same machine may measure the elapsed time.

    The elapsed time is the larger of what the two clocks show: the wall clock may be set back, and the monotonic clock
    stops while the machine sleeps. Use it only for limits that may be reached too early but not too late.
    """

    wall_ms: int
    monotonic_ms: int

    @classmethod
    def now(cls, clock: Clock) -> Moment:
        return cls(clock.wall_ms(), clock.monotonic_ms())

    def elapsed_ms(self, clock: Clock) -> int:
        """Milliseconds since this instant."""
        return max(clock.wall_ms() - self.wall_ms, clock.monotonic_ms() - self.monotonic_ms)


SYSTEM_CLOCK: Final[Clock] = SystemClock()


def moment_ms(text: str) -> int:
    """The time *text* in ms since 1970: that number, or a time of ISO 8601, which is in UTC if it has no offset.

    :raises ValueError: if it is neither.
    """
    if text.isdecimal() and (number := known_number(text)) is not None:
        return number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = "expected ms since 1970, or a time such as 2026-01-31T12:00:00Z"
        raise ValueError(f"{text!r}: {expected}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(slots=True)
class _Deadline:
    clock: Clock
    limit_ms: int
    until_ms: int
    outer: _Deadline | None


_present: ContextVar[_Deadline | None] = ContextVar("kafkalite_deadline", default=None)


@contextmanager
def within(limit_ms: int, clock: Clock) -> Iterator[None]:
    """Limit all waits of the body together to *limit_ms* from its beginning, or to an outer limit that ends earlier."""
    deadline = _Deadline(clock, limit_ms, clock.monotonic_ms() + limit_ms, _present.get())
    before = _present.set(deadline)
    try:
        yield
    finally:
        _present.reset(before)


def begin_again() -> None:
    """Restart the innermost limit of :func:`within`, after progress or a wait for the user; nothing without a limit."""
    deadline = _present.get()
    if deadline is not None:
        deadline.until_ms = deadline.clock.monotonic_ms() + deadline.limit_ms


def end_of(timeout_ms: int, clock: Clock) -> int:
    """The end of a wait that begins now and takes *timeout_ms*, or until the deadline, if that is earlier."""
    now_ms = clock.monotonic_ms()
    end_ms, deadline = now_ms + timeout_ms, _present.get()
    while deadline is not None:
        if deadline.clock is clock:
            end_ms = min(end_ms, deadline.until_ms)
        deadline = deadline.outer
    return max(end_ms, now_ms)


@dataclass(frozen=True)
class ExponentialBackoff:
    """``initial * multiplier**attempts``, capped at *max_ms*, with a random factor of ±*jitter* (a fraction: 0.2 = 20
    %).

    The cap is applied before the jitter, as in Kafka, so clients at the cap do not retry simultaneously.
    """

    initial_ms: int
    max_ms: int
    multiplier: float = 2.0
    jitter: float = 0.2
    rng: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def backoff_ms(self, attempts: int) -> int:
        """Milliseconds to wait after *attempts* failures (0 = before the first retry)."""
        if self.initial_ms <= 0:
            return 0
        # At 2**32 the cap has long been reached; this limit prevents an overflow of the power.
        term = min(self.initial_ms * self.multiplier ** min(attempts, 32), max(self.max_ms, self.initial_ms))
        return int(term * self.rng.uniform(1 - self.jitter, 1 + self.jitter))
