"""Futures: the outcomes of calls that stage records, until the broker has answered.

The appending thread creates them, and the sender thread completes each of them once. They have the methods of
:class:`concurrent.futures.Future`, and can be awaited. They depend neither on sockets nor on locks of the accumulator.
"""

from __future__ import annotations

import logging
import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.locks import leaves
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata, TopicPartition

_log = logging.getLogger(__name__)

#: The record errors of a batch whose records share its outcome.
NO_RECORD_ERRORS: Final[Mapping[int, Exception]] = {}

T = TypeVar("T")

#: Raises KafkaError if this thread must not wait for the sender in the operation of this name.
MayWait = Callable[[str], None]

_RESULT: Final = "result() of a future"


def anywhere(operation: str) -> None:
    """Every thread may wait."""


def limit_ms(timeout: float | None) -> int:
    """The *timeout* of a call, in seconds, as ms; None means no limit.

    :raises ValueError: if it is negative, or no number.
    """
    if timeout is None:
        return FOREVER_MS
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds, 0 or more, or None for no limit; got {timeout!r:.50}")
    return math.ceil(timeout * 1000) if timeout < FOREVER_MS / 1000 else FOREVER_MS


class Completion:
    """An event that occurs once: threads wait for it, and callbacks run when it occurs."""

    __slots__ = ("_calls", "_clock", "_condition", "is_done")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._calls: list[Callable[[], object]] = []
        self.is_done = False

    def complete(self) -> None:
        """Release the waiting threads, and run the callbacks. Call it on a thread that no signal handler interrupts, or
        before any thread waits."""
        with self._condition:
            self.is_done = True
            calls, self._calls = self._calls, []
            self._condition.notify_all()
        for call in calls:
            # Also SystemExit: on the main thread sys.exit() ends the program, but here it would end the sender.
            _run(call, BaseException)

    def when_done(self, call: Callable[[], object]) -> None:
        """Call *call* when the event occurs, on the thread that completes it; at once if it has occurred."""
        if not self._waits(call):
            _run(call, Exception)

    @leaves("_condition")
    def _waits(self, call: Callable[[], object]) -> bool:
        with self._condition:
            if not self.is_done:
                self._calls.append(call)
            return not self.is_done

    @leaves("_condition")
    def wait(self, timeout_ms: int) -> bool:
        """Wait for the event; False if *timeout_ms* passed first."""
        deadline = self._clock.monotonic_ms() + timeout_ms
        with self._condition:
            while not self.is_done:
                left = deadline - self._clock.monotonic_ms()
                if left <= 0:
                    return False
                self._clock.wait(self._condition, left)
        return True


def _run(call: Callable[[], object], caught: type[BaseException]) -> None:
    try:
        call()
    except caught as raised:
        _log.error("a done callback raised %r; the others are called", raised, exc_info=True)


class DeliveryFuture(Generic[T]):
    """The outcome of a call that stages records, with the methods of :class:`concurrent.futures.Future`.

    ``await future`` gives its result without holding up the event loop.
    """

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """Whether the outcome is known."""

    @abstractmethod
    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for the outcome, at most *timeout* seconds, and return why records were not stored; None if all were.
        It raises as :meth:`result` does, but for errors of records."""

    def _stored(self) -> T:
        """The result, if the outcome is no error."""
        raise NotImplementedError

    @abstractmethod
    def _when_done(self, call: Callable[[], object]) -> None:
        """Call *call* when the outcome is known; at once if it is."""

    def result(self, timeout: float | None = None) -> T:
        """Wait for the outcome, at most *timeout* seconds, and return where the records are stored. The delivery
        callbacks have run by then.

        :raises KafkaTimeoutError: if the outcome is unknown after *timeout*: the records may be stored later.
        :raises KafkaError: if it would wait in a delivery callback of the same producer.
        :raises ApiError: if records were not stored; the text gives the reason.
        :raises ValueError: if *timeout* is negative, or no number.
        """
        error = self.exception(timeout)
        if error is not None:
            # All records of a batch share one exception, so its traceback must not grow with each call.
            raise error.with_traceback(None)
        return self._stored()

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call *callback* with this future when the outcome is known: on the sender thread, so it must be short, or at
        once. Exceptions that it raises are logged."""
        self._when_done(partial(callback, self))

    def __await__(self) -> Generator[Any, None, T]:
        # Most programs have no event loop, and the import takes longer than that of this package.
        import asyncio
        import concurrent.futures

        ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        # The awaiting task may be cancelled; the record is sent nevertheless.
        ended.set_running_or_notify_cancel()
        self._when_done(partial(ended.set_result, None))
        yield from asyncio.wrap_future(ended)
        return self.result()


class ProduceRequestResult:
    """The outcome of one batch: set once, then released to the waiters (apache/kafka ``ProduceRequestResult``)."""

    def __init__(self, topic_partition: TopicPartition, clock: Clock, may_wait: MayWait = anywhere) -> None:
        self.topic_partition = topic_partition
        self._clock = clock
        self.base_offset = NO_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.error: Exception | None = None
        self._record_errors = NO_RECORD_ERRORS
        self._is_set = False
        self._end = Completion(clock)
        self._may_wait = may_wait
        # After a split: how many records went to the first piece; the rest went to the second.
        self._cut = 0
        self._pieces: tuple[ProduceRequestResult, ...] = ()

    def set(
        self,
        base_offset: int,
        log_append_time: int,
        error: Exception | None,
        record_errors: Mapping[int, Exception] = NO_RECORD_ERRORS,
    ) -> None:
        """Set the outcome; :meth:`done` releases the waiters after the callbacks have run.

        :param record_errors: the records, by their position in the batch, whose error differs from *error*.
        """
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.error = error
        self._record_errors = record_errors
        self._is_set = True

    def error_of(self, relative_offset: int) -> Exception | None:
        """The error of one record; None if it was stored."""
        return self._record_errors.get(relative_offset, self.error)

    def done(self) -> None:
        """Release the waiters."""
        if not self._is_set:
            raise RuntimeError("set() must be called before done()")
        self._end.complete()

    def split(self, cut: int, head: ProduceRequestResult, tail: ProduceRequestResult) -> None:
        """Record that the batch was split: the first *cut* records share the outcome of *head*, the others that of
        *tail*."""
        self._cut, self._pieces = cut, (head, tail)
        self._end.complete()

    @property
    def has_ended(self) -> bool:
        """Whether the batch has its outcome, or was split."""
        return self._end.is_done

    def wait(self, timeout_ms: int) -> bool:
        """True once every record's outcome is known, False when *timeout_ms* passed first. The caller may wait."""
        if self._end.is_done and not self._pieces:
            return True
        deadline = self._clock.monotonic_ms() + timeout_ms
        if not self._end.wait(timeout_ms):
            return False
        return all(piece.wait(max(deadline - self._clock.monotonic_ms(), 0)) for piece in self._pieces)

    def wait_for_record(self, relative_offset: int, timeout_ms: int) -> tuple[ProduceRequestResult, int] | None:
        """Wait for one record: (the result with its outcome, the record's position there); None after *timeout_ms*."""
        deadline = self._clock.monotonic_ms() + timeout_ms
        result, relative_offset = self.piece_of(relative_offset)
        while not result.has_ended:
            if timeout_ms > 0:
                self._may_wait(_RESULT)
            if not result._end.wait(max(deadline - self._clock.monotonic_ms(), 0)):
                return None
            result, relative_offset = result.piece_of(relative_offset)
        return result, relative_offset

    def when_record_is_done(self, relative_offset: int, call: Callable[[], object]) -> None:
        """Call *call* when the outcome of one record is known; at once if it is."""

        def ended() -> None:
            piece, position = self.piece_of(relative_offset)
            if piece is self:
                call()
            else:
                piece.when_record_is_done(position, call)

        self._end.when_done(ended)

    def piece_of(self, relative_offset: int) -> tuple[ProduceRequestResult, int]:
        """(result, position) of a record after the splits so far."""
        result = self
        while result._pieces:
            is_in_tail = relative_offset >= result._cut
            relative_offset -= result._cut if is_in_tail else 0
            result = result._pieces[is_in_tail]
        return result, relative_offset


@dataclass(slots=True)
class Delivery:
    """The outcome of a run of records that were appended together.

    ``count`` records got the offsets ``base_offset … base_offset + count - 1``; ``size_bytes`` is their encoded size
    before compression. ``error`` is None if the broker acknowledged them. Callbacks receive it on the sender thread, so
    they must be short.
    """

    topic_partition: TopicPartition
    base_offset: int
    count: int
    size_bytes: int
    log_append_time: int
    error: Exception | None


DeliveryCallback = Callable[[Delivery], None]


class ColumnsFuture(DeliveryFuture[tuple[Delivery, ...]]):
    """The future of all rows of one :meth:`KafkaProducer.send_columns`, completed batch by batch. Its result has the
    offsets of each batch, and its exception the reason for the first rows that were not stored."""

    __slots__ = ("_callback", "_deliveries", "_end", "_lock", "_may_wait", "_rows", "_rows_ended", "_topic")

    def __init__(
        self, topic: str, rows: int, clock: Clock, callback: DeliveryCallback | None, may_wait: MayWait = anywhere
    ) -> None:
        self._topic = topic
        self._callback = callback
        self._end = Completion(clock)
        self._may_wait = may_wait
        self._lock = threading.RLock()
        # Guarded by the lock.
        self._rows = rows
        self._deliveries: list[Delivery] = []
        self._rows_ended = 0
        if rows == 0:
            self._end.complete()

    def delivered(self, delivery: Delivery) -> None:
        """Add the outcome of some of the rows; the sender thread calls it once per batch that received rows."""
        try:
            if self._callback is not None:
                self._callback(delivery)
        finally:
            self._change(delivery)

    def ends_with(self, rows: int) -> None:
        """Reduce the number of rows to those that were staged."""
        self._change(rows=rows)

    @leaves("_lock")
    def _change(self, delivery: Delivery | None = None, rows: int | None = None) -> None:
        with self._lock:
            if delivery is not None:
                self._deliveries.append(delivery)
                self._rows_ended += delivery.count
            if rows is not None:
                self._rows = rows
            is_over = self._rows_ended == self._rows
        if is_over:
            self._end.complete()

    def done(self) -> bool:
        return self._end.is_done

    def exception(self, timeout: float | None = None) -> Exception | None:
        waiting_ms = limit_ms(timeout)
        if waiting_ms > 0 and not self._end.is_done:
            self._may_wait(_RESULT)
        if not self._end.wait(waiting_ms):
            under_way = f"{self._rows - self._rows_ended} of {self._rows} rows"
            raise KafkaTimeoutError(f"no answer for {under_way} for {self._topic} after waiting for {waiting_ms} ms")
        return next((delivery.error for delivery in self._deliveries if delivery.error is not None), None)

    def _stored(self) -> tuple[Delivery, ...]:
        return tuple(self._deliveries)

    def _when_done(self, call: Callable[[], object]) -> None:
        self._end.when_done(call)


class PartlyStagedError(KafkaError):
    """``send_columns`` staged some of its rows and then failed; ``__cause__`` holds the reason.

    The staged rows are sent as usual, so sending all rows again would duplicate them. Wait for ``staged``, and send
    only the rows whose numbers are in ``rows_left`` (int64, ascending; for a table, ``table.take(error.rows_left)``).
    """

    remedy = "send `rows_left` again; `staged` is the future of the others"

    #: The future of the rows that were staged.
    staged: ColumnsFuture

    def __init__(self, topic: str, rows: int, rows_left: NDArray[np.int64], cause: Exception) -> None:
        self.rows_staged = rows - len(rows_left)
        self.rows_left = rows_left
        super().__init__(
            f"{self.rows_staged} of {rows} rows for topic {topic} were staged before this error, and are sent: "
            f"{cause}; do not send all rows again: wait for the future in this error's attribute staged, then send "
            "the rows in its attribute rows_left"
        )


class FutureRecordMetadata(DeliveryFuture[RecordMetadata]):
    """The future of one record sent by :meth:`KafkaProducer.send`."""

    __slots__ = ("_create_timestamp", "_key_size", "_relative_offset", "_result", "_value_size")

    def __init__(
        self, result: ProduceRequestResult, relative_offset: int, create_timestamp: int, key_size: int, value_size: int
    ) -> None:
        self._result = result
        self._relative_offset = relative_offset
        self._create_timestamp = create_timestamp
        self._key_size = key_size
        self._value_size = value_size

    def done(self) -> bool:
        return self._result.piece_of(self._relative_offset)[0].has_ended

    def exception(self, timeout: float | None = None) -> Exception | None:
        result, relative_offset = self._located(limit_ms(timeout))
        return result.error_of(relative_offset)

    def _located(self, timeout_ms: int) -> tuple[ProduceRequestResult, int]:
        located = self._result.wait_for_record(self._relative_offset, timeout_ms)
        if located is None:
            raise KafkaTimeoutError(f"no answer for {self._result.topic_partition} after waiting for {timeout_ms} ms")
        return located

    def _stored(self) -> RecordMetadata:
        result, relative_offset = self._located(0)
        topic, partition = result.topic_partition
        base, log_time = result.base_offset, result.log_append_time
        return RecordMetadata(
            topic,
            partition,
            NO_OFFSET if base == NO_OFFSET else base + relative_offset,
            self._create_timestamp if log_time == NO_TIMESTAMP else log_time,
            self._key_size,
            self._value_size,
        )

    def _when_done(self, call: Callable[[], object]) -> None:
        self._result.when_record_is_done(self._relative_offset, call)


class FailedFuture(DeliveryFuture[RecordMetadata]):
    """The future of a record that was never staged: *error* is the reason."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def exception(self, timeout: float | None = None) -> Exception | None:
        return self._error

    def _when_done(self, call: Callable[[], object]) -> None:
        _run(call, Exception)
