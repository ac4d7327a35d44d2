"""A deadline of everything that a thread waits for, beside the time-outs of the single waits: many answers that are
each in time take long together.

It belongs to a context of Python (:mod:`contextvars`), so to the thread that has set it, and counts for waits by the
same clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from kafka_sink.common.clock import Clock


@dataclass(slots=True)
class _Deadline:
    clock: Clock
    limit_ms: int
    until_ms: int
    outer: _Deadline | None


_present: ContextVar[_Deadline | None] = ContextVar("kafkalite_deadline", default=None)


@contextmanager
def within(limit_ms: int, clock: Clock) -> Iterator[None]:
    """Let all waits of the body end *limit_ms* after its beginning, or earlier if an outer one says so."""
    deadline = _Deadline(clock, limit_ms, clock.monotonic_ms() + limit_ms, _present.get())
    before = _present.set(deadline)
    try:
        yield
    finally:
        _present.reset(before)


def begin_again() -> None:
    """Begin the innermost limit anew, because something was done or a person was waited for; without one nothing."""
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
