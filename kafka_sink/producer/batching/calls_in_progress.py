"""CallsInProgress: which threads are inside which calls of one producer.

The calling threads enter and leave, and the sender thread reads. Every step is one operation on a dict, so no lock is
needed. This module does not depend on what the calls do.

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
    """See the module."""

    def __init__(self) -> None:
        self._calls: dict[_Call, None] = {}
        self._locks: list[Callable[[], Iterable[Lock]]] = []
        self._sender: int | None = None

    def during(self, operation: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *call* and return its result; it counts as in progress from before its first line until after its last.

        :raises KafkaError: if this thread is inside another call of the producer.
        """
        self.check_not_inside(operation)
        entry = _Call(operation)
        try:
            self._calls[entry] = None
            outcome = call(*args, **kwargs)
            del self._calls[entry]
            return outcome
        except BaseException:
            self._calls.pop(entry, None)
            raise

    def sender_needs(self, locks: Callable[[], Iterable[Lock]]) -> None:
        """Register *locks* that the sender thread needs: it cannot proceed while another thread holds one of them."""
        self._locks.append(locks)

    @contextmanager
    def on_sender_thread(self) -> Iterator[None]:
        """This thread is the sender's meanwhile."""
        self._sender = threading.get_ident()
        try:
            yield
        finally:
            # Another thread may get the number of one that has ended.
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
        for lock in itertools.chain.from_iterable(locks() for locks in self._locks):
            if is_held(lock):
                if is_nested():
                    refuse(operation, "call")
                release_left(lock)

    def has(self, operation: str) -> bool:
        """Whether any thread is inside *operation*."""
        # A copy, made in one step, because other threads enter and leave.
        return any(call.operation == operation for call in tuple(self._calls))

    def check_not_inside(self, operation: str) -> None:
        """:raises KafkaError: if this thread is inside another call of the producer."""
        thread = threading.get_ident()
        for call in tuple(self._calls):
            if call.thread == thread:
                if is_nested():
                    refuse(operation, call.operation)
                # A second interrupt, while the first was being handled, prevented the removal of this entry.
                self._calls.pop(call, None)


def refuse(operation: str, outer: str) -> NoReturn:
    """:raises KafkaError: always, because *operation* was called in the middle of *outer*."""
    raise KafkaError(
        f"{operation} was called during {outer} of the same producer on the same thread, by a signal handler or a "
        "finalizer, and would deadlock; the handler should only set a flag"
    )
