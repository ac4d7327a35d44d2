"""Futures: what a caller holds until the broker has answered.

The appending thread creates them, and the sender thread completes each of them once. They depend neither on sockets nor
on locks of the accumulator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.locks import leaves
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata, TopicPartition

#: The record errors of a batch whose records share its outcome.
NO_RECORD_ERRORS: Final[Mapping[int, Exception]] = {}


#: Raises KafkaError if this thread must not wait for the sender in the operation of this name.
MayWait = Callable[[str], None]

_GET: Final = "get() of a future"


def anywhere(operation: str) -> None:
    """Every thread may wait."""


class ProduceRequestResult:
    """The outcome of one batch: set once, then released to the waiters (apache/kafka ``ProduceRequestResult``)."""

    def __init__(self, topic_partition: TopicPartition, clock: Clock, may_wait: MayWait = anywhere) -> None:
        self.topic_partition = topic_partition
        self._clock = clock
        self._may_wait = may_wait
        self.base_offset = NO_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.error: Exception | None = None
        self._record_errors = NO_RECORD_ERRORS
        self._is_set = False
        self._is_done = False
        self._done = threading.Condition()
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
        with self._done:
            self._is_done = True
            self._done.notify_all()

    def split(self, cut: int, head: ProduceRequestResult, tail: ProduceRequestResult) -> None:
        """Record that the batch was split: the first *cut* records share the outcome of *head*, the others that of
        *tail*.
        """
        with self._done:
            self._cut, self._pieces = cut, (head, tail)
            self._is_done = True
            self._done.notify_all()

    @property
    def has_ended(self) -> bool:
        """Whether the batch has its outcome, or was split."""
        return self._is_done

    def wait(self, timeout_ms: int) -> bool:
        """True once every record's outcome is known, False when *timeout_ms* passed first. The caller may wait."""
        if self._is_done and not self._pieces:
            return True
        deadline = self._clock.monotonic_ms() + timeout_ms
        if not self._wait_for_end(timeout_ms):
            return False
        return all(piece.wait(max(deadline - self._clock.monotonic_ms(), 0)) for piece in self._pieces)

    def wait_for_record(self, relative_offset: int, timeout_ms: int) -> tuple[ProduceRequestResult, int] | None:
        """Wait for one record: (the result with its outcome, the record's position there); None after *timeout_ms*."""
        deadline = self._clock.monotonic_ms() + timeout_ms
        place = self, relative_offset
        while True:
            if timeout_ms > 0 and not place[0]._is_done:
                self._may_wait(_GET)
            if not place[0]._wait_for_end(max(deadline - self._clock.monotonic_ms(), 0)):
                return None
            moved = place[0].piece_of(place[1])
            if moved is None:
                return place
            place = moved

    def piece_of(self, relative_offset: int) -> tuple[ProduceRequestResult, int] | None:
        """(result, position) of a record after a split; None if there was no split."""
        if not self._pieces:
            return None
        if relative_offset < self._cut:
            return self._pieces[0], relative_offset
        return self._pieces[1], relative_offset - self._cut

    @leaves("_done")
    def _wait_for_end(self, timeout_ms: int) -> bool:
        deadline = self._clock.monotonic_ms() + timeout_ms
        with self._done:
            while not self._is_done:
                left = deadline - self._clock.monotonic_ms()
                if left <= 0:
                    return False
                self._clock.wait(self._done, left)
        return True


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


class ColumnsFuture:
    """The future of all rows of one :meth:`KafkaProducer.send_columns`, completed batch by batch."""

    __slots__ = ("_all_ended", "_callback", "_clock", "_deliveries", "_may_wait", "_rows", "_rows_ended", "_topic")

    def __init__(
        self, topic: str, rows: int, clock: Clock, callback: DeliveryCallback | None, may_wait: MayWait = anywhere
    ) -> None:
        self._topic = topic
        self._rows = rows
        self._clock = clock
        self._callback = callback
        self._may_wait = may_wait
        self._all_ended = threading.Condition()
        # Guarded by the condition.
        self._deliveries: list[Delivery] = []
        self._rows_ended = 0

    def delivered(self, delivery: Delivery) -> None:
        """Add the outcome of some of the rows; the sender thread calls it once per batch that received rows."""
        try:
            if self._callback is not None:
                self._callback(delivery)
        finally:
            with self._all_ended:
                self._deliveries.append(delivery)
                self._rows_ended += delivery.count
                if self._rows_ended == self._rows:
                    self._all_ended.notify_all()

    def ends_with(self, rows: int) -> None:
        """Reduce the number of rows to those that were staged."""
        with self._all_ended:
            self._rows = rows
            self._all_ended.notify_all()

    @leaves("_all_ended")
    def done(self) -> bool:
        """Whether the outcome of every row is known."""
        with self._all_ended:
            return self._rows_ended == self._rows

    @leaves("_all_ended")
    def get(self, timeout_ms: int = FOREVER_MS) -> tuple[Delivery, ...]:
        """Wait for every row, and return where each batch was stored. The callbacks have run by then.

        :raises KafkaTimeoutError: if the outcome of some rows is unknown after *timeout_ms*.
        :raises KafkaError: if it would wait in a delivery callback of the same producer.
        :raises ApiError: if some rows were not stored; the text gives the reason for the first of them.
        """
        if timeout_ms > 0 and not self.done():
            self._may_wait(_GET)
        deadline = self._clock.monotonic_ms() + timeout_ms
        with self._all_ended:
            while self._rows_ended < self._rows:
                left = deadline - self._clock.monotonic_ms()
                if left <= 0:
                    under_way = f"{self._rows - self._rows_ended} of {self._rows} rows"
                    raise KafkaTimeoutError(
                        f"no answer for {under_way} for {self._topic} after waiting for {timeout_ms} ms"
                    )
                self._clock.wait(self._all_ended, left)
            deliveries = tuple(self._deliveries)
        failed = next((delivery.error for delivery in deliveries if delivery.error is not None), None)
        if failed is not None:
            # All callers share one exception, so its traceback must not grow with each call.
            raise failed.with_traceback(None)
        return deliveries


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


class FutureRecordMetadata:
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
        """Whether the outcome is known."""
        result, relative_offset = self._result, self._relative_offset
        while result.has_ended:
            moved = result.piece_of(relative_offset)
            if moved is None:
                return True
            result, relative_offset = moved
        return False

    def get(self, timeout_ms: int = FOREVER_MS) -> RecordMetadata:
        """Wait for the outcome.

        :raises KafkaTimeoutError: if the outcome is unknown after *timeout_ms*.
        :raises KafkaError: if it would wait in a delivery callback of the same producer.
        :raises ApiError: if the record was not stored; the text gives the reason.
        """
        place = self._result.wait_for_record(self._relative_offset, timeout_ms)
        if place is None:
            raise KafkaTimeoutError(f"no answer for {self._result.topic_partition} after waiting for {timeout_ms} ms")
        result, relative_offset = place
        error = result.error_of(relative_offset)
        if error is not None:
            # All records of the batch share one exception, so its traceback must not grow with each call.
            raise error.with_traceback(None)
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


class FailedFuture:
    """The future of a record that was never staged."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def get(self, timeout_ms: int = FOREVER_MS) -> RecordMetadata:
        """:raises Exception: always: the error that prevented the record from being staged."""
        raise self._error
