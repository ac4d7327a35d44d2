"""What a caller holds until the broker has answered.

Made on the appending thread, completed once by the sender thread. They never know a socket or a lock of the
accumulator.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata, TopicPartition


class ProduceRequestResult:
    """The outcome of one batch: set once, then released to whoever waits (apache/kafka ``ProduceRequestResult``)."""

    def __init__(self, topic_partition: TopicPartition, clock: Clock) -> None:
        self.topic_partition = topic_partition
        self._clock = clock
        self.base_offset = NO_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.error: Exception | None = None
        self._is_set = False
        self._is_done = False
        self._done = threading.Condition()

    def set(self, base_offset: int, log_append_time: int, error: Exception | None) -> None:
        """Record the outcome; waiters are released by :meth:`done`, after the callbacks have run."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.error = error
        self._is_set = True

    def done(self) -> None:
        """Release the waiters."""
        if not self._is_set:
            raise RuntimeError("set() must be called before done()")
        with self._done:
            self._is_done = True
            self._done.notify_all()

    @property
    def completed(self) -> bool:
        return self._is_done

    def wait(self, timeout_ms: int) -> bool:
        """True once completed, False when *timeout_ms* passed first."""
        deadline = self._clock.monotonic_ms() + timeout_ms
        with self._done:
            while not self._is_done:
                left = deadline - self._clock.monotonic_ms()
                if left <= 0:
                    return False
                self._clock.wait(self._done, left)
        return True


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of a run of records that were appended together.

    ``count`` records got the offsets ``base_offset … base_offset + count - 1``; ``size_bytes`` is their encoded size
    before compression. ``error`` is None when the broker acknowledged them. Runs on the sender thread: keep it short.
    """

    topic_partition: TopicPartition
    base_offset: int
    count: int
    size_bytes: int
    log_append_time: int
    error: Exception | None


DeliveryCallback = Callable[[Delivery], None]


class FutureRecordMetadata:
    """The future of one record sent by :meth:`KafkaProducer.send`."""

    def __init__(
        self,
        result: ProduceRequestResult,
        relative_offset: int,
        create_timestamp: int,
        key_size: int,
        value_size: int,
    ) -> None:
        self._result = result
        self._relative_offset = relative_offset
        self._create_timestamp = create_timestamp
        self._key_size = key_size
        self._value_size = value_size

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._result.completed

    def get(self, timeout_ms: int = FOREVER_MS) -> RecordMetadata:
        """Wait for the outcome.

        :raises KafkaTimeoutError: nothing was known after *timeout_ms*.
        :raises ApiError: the record was not stored; the text says why.
        """
        if not self._result.wait(timeout_ms):
            raise KafkaTimeoutError(f"no answer for {self._result.topic_partition} after waiting for {timeout_ms} ms")
        if self._result.error is not None:
            # One exception serves all records of the batch: its traceback must not grow with every one that asks.
            raise self._result.error.with_traceback(None)
        return self.metadata()

    def metadata(self) -> RecordMetadata:
        """Where the record is, from an outcome that is known."""
        topic, partition = self._result.topic_partition
        base = self._result.base_offset
        log_time = self._result.log_append_time
        return RecordMetadata(
            topic,
            partition,
            NO_OFFSET if base == NO_OFFSET else base + self._relative_offset,
            self._create_timestamp if log_time == NO_TIMESTAMP else log_time,
            self._key_size,
            self._value_size,
        )


class FailedFuture:
    """A future that was never more than its error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def get(self, timeout_ms: int = FOREVER_MS) -> RecordMetadata:
        """:raises Exception: always, the error that kept the record from being staged."""
        raise self._error
