"""Locks that a KeyboardInterrupt, or whatever else a signal handler raises, does not leave held.

CPython runs signal handlers on the main thread, between two bytecodes, so an exception may appear at any line of what a
caller of ours runs there. Between the end of a ``with`` block and the call of ``__exit__``, and at the entry and the
exit of :class:`threading.Condition`'s own methods, nothing catches it: the lock would stay held for ever. So what is
locked on callers' threads is an RLock, which knows its owner, and the method that locks it has the decorator
:func:`leaves`; or, where that would cost too much, ends with ``except BaseException: release_left(lock); raise``.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

#: Whose calls hold locks; an application may lie between others of ours, as the command line's does.
_LOCKING: Final = ("kafka_sink.producer", "kafka_sink.client", "kafka_sink.common")

Lock: TypeAlias = "threading.RLock | threading.Condition"

P = ParamSpec("P")
T = TypeVar("T")


def leaves(name: str) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """Decorates methods: what they raise does not leave the lock, or the condition, in the attribute *name* held.

    One that was held before the call stays so.
    """

    def decorate(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
        @functools.wraps(method)
        def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
            lock = getattr(self, name)
            was_held = is_held(lock)
            try:
                return method(self, *args, **kwargs)
            except BaseException:
                while not was_held and is_held(lock):
                    lock.release()
                raise

        return cast("Callable[Concatenate[Any, P], T]", call)

    return decorate


def release_left(lock: Lock) -> None:
    """Release *lock* if this thread still holds it; for handlers of exceptions, outside of every ``with`` of *lock*."""
    if is_nested():
        # What holds it may be the call that the signal handler interrupted, which goes on.
        return
    while is_held(lock):
        lock.release()


def is_held(lock: Lock) -> bool:
    """Whether this thread holds *lock*."""
    held: bool = lock._is_owned()  # type: ignore[union-attr]
    return held


def is_nested() -> bool:
    """Whether this call came about in the middle of another one of producer or client: from a signal handler, a
    finalizer or a plug-in. It looks at every frame of the thread, so it is for the rare case alone.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    while frame is not None:
        if _is_ours(frame):
            return True
        frame = frame.f_back
    return False


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_LOCKING)
