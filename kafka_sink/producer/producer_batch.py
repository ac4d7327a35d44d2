"""ProducerBatch: the records of one partition that will travel together.

Appended to by calling threads under their partition's lock while it is open; from the moment it is drained the sender
thread alone owns it. It never allocates or frees memory itself: the accumulator does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_sink.common.buffers import Buffer, total_size
from kafka_sink.common.clock import Clock
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Header, TopicPartition
from kafka_sink.producer.futures import Delivery, DeliveryCallback, FutureRecordMetadata, ProduceRequestResult
from kafka_sink.records import batch as record_batch
from kafka_sink.records import reference
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import HEADER_BYTES

_log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
_SEQUENCE_MAX = 0x7FFFFFFF


def sequence_precedes(first: int, second: int) -> bool:
    """Whether *first* was given out before *second*: sequences wrap from 2^31 - 1 to 0, so size alone does not tell."""
    return 0 < ((second - first) & _SEQUENCE_MAX) < 2**30


def sequence_after(sequence: int, count: int = 1) -> int:
    """The sequence *count* records behind *sequence*."""
    return (sequence + count) & _SEQUENCE_MAX


class FinalState(Enum):
    """How a batch ended; unset until then."""

    ABORTED = "aborted"
    FAILED = "failed"
    SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class Compression:
    """Codec and level of a producer's batches."""

    type: CompressionType
    level: int | None


#: See :meth:`kafka_sink.producer.batch_memory.BatchMemory.grow`.
Grow = Callable[[bytearray, int, int], bytearray | None]


@dataclass(slots=True)
class _Thunk:
    """Records that were appended together and whom to tell."""

    first: int
    count: int
    size_bytes: int
    callback: DeliveryCallback | None


class ProducerBatch:
    """One record batch under construction, in flight, or finished (apache/kafka ``ProducerBatch``).

    :param buffer: room for the 61-byte header and the records, uncompressed.
    :param limit: how large it may become, header included.
    :param grow: gets a larger buffer when this one is full before the limit is reached.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        buffer: bytearray,
        limit: int,
        grow: Grow,
        compression: Compression,
        clock: Clock,
        created_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self._buffer: bytearray | None = buffer
        self._limit = limit
        self._grow = grow
        self.created_ms = created_ms
        self.attempts = 0
        self.last_attempt_ms = created_ms
        self.last_append_ms = created_ms
        self.drained_ms = created_ms
        self.retry_backoff_ms = 0
        #: The sequence was changed while an attempt under the old one was not answered, or its retry not yet sent.
        self.reopened_sequence = False
        self.record_count = 0
        self.size_bytes = HEADER_BYTES
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.result = ProduceRequestResult(topic_partition, clock)
        self.final_state: FinalState | None = None
        #: Requests not yet answered that point into the buffer; while there is one the buffer must not be reused.
        self.unanswered_sends = 0
        self._compression = compression
        self._closed_for_appends = False
        self._thunks: list[_Thunk] = []
        self._body: Buffer | None = None
        self._header: bytearray | None = None
        self._state_lock = threading.Lock()

    # --- appending (partition's lock held) ---------------------------------------------------------------------------

    @property
    def room_bytes(self) -> int:
        """Bytes of records that still fit."""
        return 0 if self._closed_for_appends else self._limit - self.size_bytes

    @property
    def is_full(self) -> bool:
        return self._closed_for_appends or (self.record_count > 0 and self.size_bytes >= self._limit)

    def try_append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        callback: DeliveryCallback | None,
        now_ms: int,
    ) -> FutureRecordMetadata | None:
        """Append one record, or return None when it does not fit (any more, or into the memory that there is)."""
        if self._closed_for_appends:
            return None
        timestamp_delta = 0 if self.record_count == 0 else timestamp - self.base_timestamp
        size = reference.record_size(self.record_count, timestamp_delta, key, value, headers)
        if not self._has_memory_for(size):
            return None
        encoded = bytearray()
        reference.write_record(encoded, self.record_count, timestamp_delta, key, value, headers)
        relative_offset = self.record_count
        self._take(encoded, 1, timestamp, timestamp, callback, now_ms)
        return FutureRecordMetadata(
            self.result,
            relative_offset,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )

    def append_encoded(
        self,
        records: Buffer,
        count: int,
        first_timestamp: int,
        max_timestamp: int,
        callback: DeliveryCallback | None,
        now_ms: int,
    ) -> bool:
        """Append *count* records that are already encoded for this place (offset and timestamp deltas included).

        False, and nothing is appended, when they do not fit (any more, or into the memory that there is).
        """
        if not self._has_memory_for(len(records)):
            return False
        self._take(records, count, first_timestamp, max_timestamp, callback, now_ms)
        return True

    def _has_memory_for(self, size: int) -> bool:
        if size > self.room_bytes:
            return False
        buffer, needed = self._open_buffer(), self.size_bytes + size
        if needed > len(buffer):
            larger = self._grow(buffer, self.size_bytes, needed)
            if larger is None:
                return False
            self._buffer = larger
        return True

    def _take(
        self,
        records: Buffer,
        count: int,
        first_timestamp: int,
        max_timestamp: int,
        callback: DeliveryCallback | None,
        now_ms: int,
    ) -> None:
        size = len(records)
        if self.record_count == 0:
            self.base_timestamp = first_timestamp
        # Through a view: assigning to a slice of the bytearray itself copies the records twice.
        memoryview(self._open_buffer())[self.size_bytes : self.size_bytes + size] = records
        self._thunks.append(_Thunk(self.record_count, count, size, callback))
        self.size_bytes += size
        self.record_count += count
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.last_append_ms = now_ms

    def _open_buffer(self) -> bytearray:
        if self._buffer is None:
            raise RuntimeError(f"the memory of this batch of {self.topic_partition} was given back")
        return self._buffer

    def close_for_appends(self) -> None:
        """Nothing more may be added; the rest is done by :meth:`close`."""
        self._closed_for_appends = True

    # --- sending (sender thread) -------------------------------------------------------------------------------------

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2^31 - 1 to 0."""
        return sequence_after(self.base_sequence, self.record_count - 1)

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Give the batch its place in the producer's sequence."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        # The next attempt gets a fresh header: the old one may still be on its way out.
        self._header = None

    def reset_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """A new epoch begins while this batch waits for its answer or its retry: it gets a new sequence (KIP-360)."""
        self.reopened_sequence = True
        self.set_producer_state(producer_id, producer_epoch, base_sequence)

    def close(self) -> None:
        """Compress the records, once, and make ready for an attempt under the sequence that the batch has now."""
        self._closed_for_appends = True
        self.reopened_sequence = False
        if self._body is None:
            records = memoryview(self._open_buffer())[HEADER_BYTES : self.size_bytes]
            if self._compression.type is CompressionType.NONE:
                self._body = records
            else:
                self._body = compress(self._compression.type, records, self._compression.level)

    def _make_header(self, body: Buffer) -> bytearray:
        header = bytearray(HEADER_BYTES)
        record_batch.write_header(
            header,
            records=[body],
            compression=self._compression.type,
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=self.record_count,
        )
        return header

    @property
    def wire(self) -> list[Buffer]:
        """The closed batch as it goes into a produce request: header and records, never copied."""
        if self._body is None:
            raise RuntimeError(f"a batch of {self.topic_partition} must be closed before it is sent")
        if self._header is None:
            self._header = self._make_header(self._body)
        return [self._header, self._body]

    @property
    def wire_bytes(self) -> int:
        """Size of the closed batch after compression; of an open one, before it."""
        return self.size_bytes if self._body is None else HEADER_BYTES + total_size([self._body])

    # --- the end -----------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return self.final_state is not None

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        return delivery_timeout_ms <= now_ms - self.created_ms

    def reenqueued(self, now_ms: int) -> None:
        """The batch goes back to its queue after a failed attempt."""
        self.attempts += 1
        self.last_attempt_ms = max(self.last_append_ms, now_ms)

    def abort(self, error: Exception) -> bool:
        """End the batch because the producer gives up; True when this call ended it."""
        return self._finish(FinalState.ABORTED, NO_OFFSET, NO_TIMESTAMP, error)

    def done(self, base_offset: int, log_append_time: int, error: Exception | None) -> bool:
        """End the batch with the broker's answer; True when this call ended it, False when it had ended before.

        :raises RuntimeError: it had ended in success, and success is final.
        """
        target = FinalState.SUCCEEDED if error is None else FinalState.FAILED
        if self._finish(target, base_offset, log_append_time, error):
            return True
        if self.final_state is FinalState.SUCCEEDED:
            raise RuntimeError(
                f"a batch of {self.topic_partition} that had succeeded was ended again as {target.value}"
            )
        _log.debug("ignored %s of a batch of %s that was %s", target.value, self.topic_partition, self.final_state)
        return False

    def release_buffer(self) -> bytearray | None:
        """Hand over the buffer of a batch that is done and on no wire; None when it was handed over before."""
        with self._state_lock:
            buffer, self._buffer = self._buffer, None
        self._body = None
        self._header = None
        return buffer

    def _finish(self, state: FinalState, base_offset: int, log_append_time: int, error: Exception | None) -> bool:
        with self._state_lock:
            if self.final_state is not None:
                return False
            self.final_state = state
        self.result.set(base_offset, log_append_time, error)
        for thunk in self._thunks:
            if thunk.callback is not None:
                self._tell(thunk, thunk.callback, base_offset, log_append_time, error)
        self.result.done()
        return True

    def _tell(
        self,
        thunk: _Thunk,
        callback: DeliveryCallback,
        base_offset: int,
        log_append_time: int,
        error: Exception | None,
    ) -> None:
        first = NO_OFFSET if base_offset == NO_OFFSET else base_offset + thunk.first
        delivery = Delivery(self.topic_partition, first, thunk.count, thunk.size_bytes, log_append_time, error)
        try:
            callback(delivery)
        except Exception:
            _log.exception(
                "a delivery callback for %s raised; the other records' callbacks go on", self.topic_partition
            )
