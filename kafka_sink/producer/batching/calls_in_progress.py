"""CallsInProgress: which threads are inside which calls of one producer, and whether one of them was interrupted.

The calling threads enter and leave, and the sender thread reads. Every step is one operation on a dict, so no lock is
needed. This module does not depend on what the calls do.

An exception that a signal handler raises, such as KeyboardInterrupt, may end a call between any two of its lines. The
changes of the call are incomplete then, so from that moment on the producer can only be closed.

A signal handler or a finalizer runs on a thread in the middle of another operation of that thread. If it calls the same
producer, the call is refused at once when it would see an incomplete change, or would wait for a lock that its own
thread holds.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn, ParamSpec, TypeVar

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.locks import Lock, is_held, is_nested, release_left

P = ParamSpec("P")
T = TypeVar("T")

#: The operation that may add a batch.
APPEND: Final = "send"
FLUSH: Final = "flush"


class _Call:
    __slots__ = ("operation", "thread")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.thread = threading.get_ident()


class CallsInProgress:
    """See the module.

    :param on_interrupt: called when the first call was interrupted, on its thread.
    """

    def __init__(self, on_interrupt: Callable[[], None] = lambda: None) -> None:
        self._on_interrupt = on_interrupt
        self._calls: dict[_Call, None] = {}
        self._locks: list[Callable[[], Iterable[Lock]]] = []
        self._sender: int | None = None
        #: Which exception ended which call half-way, as text; None if none did.
        self.interruption: str | None = None

    def during(self, operation: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *call* and return its result; it counts as in progress from before its first line until after its last.

        :raises KafkaError: if this thread is inside another call of the producer.
        """
        thread = threading.get_ident()
        for other in tuple(self._calls):
            if other.thread == thread:
                refuse(operation, other.operation)
        try:
            return self._counted(_Call(operation), call, *args, **kwargs)
        except KafkaError:
            raise
        except BaseException as error:
            self.interrupted(operation, error)
            raise

    def _counted(self, entry: _Call, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            self._calls[entry] = None
            return call(*args, **kwargs)
        finally:
            self._calls.pop(entry, None)

    def ended_by(self, error: BaseException, operation: str) -> None:
        """Record that *error* interrupted *operation* on this thread, unless it is an error of the operation's own."""
        if not isinstance(error, Exception) or (any(map(is_held, self._all_locks())) and not is_nested()):
            self.interrupted(operation, error)

    def interrupted(self, operation: str, error: BaseException) -> None:
        """Record that *error* ended *operation* on this thread half-way, and release what it has left held."""
        is_first = self.interruption is None
        if is_first:
            self.interruption = f"{type(error).__name__} ended {operation} half-way"
        if not is_nested():
            thread = threading.get_ident()
            for call in tuple(self._calls):
                if call.thread == thread:
                    self._calls.pop(call, None)
        release_left(*self._all_locks())
        if is_first:
            self._on_interrupt()

    @property
    def reason(self) -> str:
        """Why the producer takes no records any more, for the end of a sentence; empty if no call was interrupted."""
        return "" if self.interruption is None else f": {self.interruption}"

    def sender_needs(self, locks: Callable[[], Iterable[Lock]]) -> None:
        """Register *locks* that the sender thread needs: it cannot proceed while another thread holds one of them."""
        self._locks.append(locks)

    def _all_locks(self) -> Iterator[Lock]:
        return itertools.chain.from_iterable(locks() for locks in self._locks)

    @contextmanager
    def on_sender_thread(self) -> Iterator[None]:
        """Within, this thread is the sender thread."""
        self._sender = threading.get_ident()
        try:
            yield
        finally:
            # The identifier of a thread that has ended may be reused by another thread.
            self._sender = None

    def check_may_wait(self, operation: str) -> None:
        """Check, before this thread waits for the sender in *operation*, that the sender can proceed.

        :raises KafkaError: if this thread is the sender's, in a delivery callback; or if it holds a lock that the
            sender needs, because a signal handler interrupted another call.
        """
        if threading.get_ident() == self._sender:
            raise KafkaError(
                f"{operation} in a delivery callback would deadlock: callbacks run on the sender thread, and it would "
                f"wait for that thread; call {operation} on another thread"
            )
        if any(map(is_held, self._all_locks())):
            refuse(operation, "call")

    def has(self, operation: str) -> bool:
        """Whether any thread is inside *operation*."""
        # A copy, made in one step, because other threads enter and leave.
        return any(call.operation == operation for call in tuple(self._calls))


def refuse(operation: str, outer: str) -> NoReturn:
    """:raises KafkaError: always, because *operation* was called in the middle of *outer*."""
    raise KafkaError(
        f"{operation} was called during {outer} of the same producer on the same thread, by a signal handler or a "
        "finalizer, and would deadlock; the handler should only set a flag"
    )
