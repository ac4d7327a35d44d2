"""Locks that are released after a KeyboardInterrupt, or any other exception of a signal handler.

CPython runs signal handlers on the main thread, between two bytecodes, so an exception may occur at any line that this
project runs on a caller's thread. At the entry and the exit of the methods of :class:`threading.Condition` nothing
catches it: the lock would stay held for ever. So locks on callers' threads are RLocks, which record their owner, and
the end of a call releases those that are still held: a call of a producer or a blocking client with
:func:`release_left`, the method of an object that outlives such calls with the decorator :func:`leaves`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

#: The packages whose calls hold locks. Frames of other packages, such as the command line, may be between them.
_LOCKING: Final = ("kafka_sink.producer", "kafka_sink.client", "kafka_sink.common")

#: Modules with wrappers, whose frames belong to the wrapped call: :func:`leaves`, and the function of a thread.
_WRAPPING: Final = frozenset({__name__, "kafka_sink.common.threads"})

Lock: TypeAlias = "threading.RLock | threading.Condition"

P = ParamSpec("P")
T = TypeVar("T")


def leaves(name: str) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """Decorator for methods: after an exception, the lock or condition in the attribute *name* is released.

    A lock that was held before the call stays held.
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


def release_left(*locks: Lock) -> None:
    """Release *locks* if this thread still holds them; for exception handlers, outside of every ``with`` of them."""
    if is_nested():
        # The interrupted call may hold the locks, and it continues after the signal handler.
        return
    for lock in locks:
        while is_held(lock):
            lock.release()


def is_held(lock: Lock) -> bool:
    held: bool = lock._is_owned()  # type: ignore[union-attr]
    return held


def is_nested() -> bool:
    """Whether this call runs inside another call of the producer or the client: in a signal handler, a finalizer or a
    plugin. It inspects every frame of the thread, so use it in rare cases only."""
    frame: FrameType | None = sys._getframe(1)
    is_outside = False
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module not in _WRAPPING:
            is_ours = module.startswith(_LOCKING)
            if is_ours and is_outside:
                return True
            is_outside = not is_ours
        frame = frame.f_back
    return False
