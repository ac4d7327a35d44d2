"""ProducerBatch: the records of one partition that will travel together.

Appended to by calling threads under their partition's lock while it is open; from the moment it is drained the sender
thread alone owns it. Single records are only staged and counted, to the byte, when they are appended; they are encoded
all at once when the batch is closed. It never allocates or frees memory itself: the accumulator does.
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
from kafka_sink.records import rebase
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.staged import StagedRecords, header_entries
from kafka_sink.records.varint import varint_size

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
    SPLIT = "split"
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
    callback: DeliveryCallback


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
        self._capacity = len(buffer)
        self._grow = grow
        self.created_ms = created_ms
        self.attempts = 0
        self.last_attempt_ms = created_ms
        self.drained_ms = created_ms
        self.retry_backoff_ms = 0
        #: Why the last attempt came to nothing, for people.
        self.last_failure = ""
        #: The leader's epoch at the last attempt, where it was known: a later leader need not be waited for.
        self.leader_epoch: int | None = None
        #: The sequence was changed while an attempt under the old one was not answered, or its retry not yet sent.
        self.reopened_sequence = False
        #: It was split from a batch of which an earlier attempt may be stored, so it must never get another sequence.
        self.may_be_stored = False
        self.record_count = 0
        #: Size of the largest record: known once the batch is closed.
        self.largest_record_bytes = 0
        self.size_bytes = HEADER_BYTES
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.is_transactional = False
        self.result = ProduceRequestResult(topic_partition, clock)
        self.final_state: FinalState | None = None
        #: Requests not yet answered that point into the buffer; while there is one the buffer must not be reused.
        self.unanswered_sends = 0
        self._compression = compression
        self._clock = clock
        self._closed_for_appends = False
        self._thunks: list[_Thunk] = []
        # What is staged and not encoded, oldest run first, each with the place of its first byte; and the run that the
        # next record joins.
        self._staged: list[tuple[int, StagedRecords]] = []
        self._staging: StagedRecords | None = None
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
        may_fill: bool = True,
    ) -> FutureRecordMetadata | None:
        """Append one record, or return None when it does not fit (any more, or into the memory that
        there is, or fills the batch and must not).

        The record is encoded when the batch is closed. Its exact size is counted here, in line: the producer does this
        once a record and little else.
        """
        if self._closed_for_appends:
            return None
        count = self.record_count
        delta = timestamp - self.base_timestamp if count else 0
        key_size = value_size = -1
        body = 4 if headers else 5
        if key is not None:
            key_size = len(key)
            body += key_size if key_size < 64 else key_size + (1 if key_size < 8192 else varint_size(key_size) - 1)
        if value is not None:
            value_size = len(value)
            body += (
                value_size
                if value_size < 64
                else value_size + (1 if value_size < 8192 else varint_size(value_size) - 1)
            )
        body += 1 if 0 <= delta < 64 else varint_size(delta)
        if count >= 64:
            body += 1 if count < 8192 else varint_size(count) - 1
        if headers:
            entries = header_entries(headers)
            body += varint_size(len(headers)) + len(entries)
        size = self.size_bytes + body + (1 if body < 64 else 2 if body < 8192 else varint_size(body))
        if size >= self._limit and (size > self._limit or not may_fill):
            return None
        if size > self._capacity and not self._grow_to(size):
            return None
        staging = self._staging
        if staging is None:
            staging = self._staging = StagedRecords(count)
            self._staged.append((self.size_bytes, staging))
        staging.timestamps.append(timestamp)
        staging.keys.append(key)
        staging.values.append(value)
        if headers:
            staging.headers[count - staging.first] = len(headers), entries
        if count == 0:
            self.base_timestamp = timestamp
        if callback is not None:
            self._thunks.append(_Thunk(count, 1, size - self.size_bytes, callback))
        self.size_bytes = size
        self.record_count = count + 1
        return FutureRecordMetadata(self.result, count, timestamp, key_size, value_size)

    def append_encoded(
        self,
        records: Buffer,
        count: int,
        first_timestamp: int,
        max_timestamp: int,
        callback: DeliveryCallback | None,
    ) -> bool:
        """Append *count* records that are already encoded for this place (offset and timestamp deltas included).

        False, and nothing is appended, when they do not fit (any more, or into the memory that there is).
        """
        size = len(records)
        needed = self.size_bytes + size
        if size > self.room_bytes or (needed > self._capacity and not self._grow_to(needed)):
            return False
        if self.record_count == 0:
            self.base_timestamp = first_timestamp
        self._staging = None
        self._place(records, self.size_bytes)
        if callback is not None:
            self._thunks.append(_Thunk(self.record_count, count, size, callback))
        self.size_bytes += size
        self.record_count += count
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        return True

    def _grow_to(self, needed: int) -> bool:
        larger = self._grow(self._open_buffer(), self.size_bytes, needed)
        if larger is None:
            return False
        self._buffer, self._capacity = larger, len(larger)
        return True

    def _place(self, records: Buffer, position: int) -> None:
        # Through a view: assigning to a slice of the bytearray itself copies the records twice.
        memoryview(self._open_buffer())[position : position + len(records)] = records

    def _open_buffer(self) -> bytearray:
        if self._buffer is None:
            raise RuntimeError(f"the memory of this batch of {self.topic_partition} was given back")
        return self._buffer

    @property
    def buffer_bytes(self) -> int:
        """Memory that the batch was given."""
        return self._capacity

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
        """Encode and compress the records, once, and make ready for an attempt under the sequence it has now."""
        self._closed_for_appends = True
        self.reopened_sequence = False
        if self._body is None:
            self._encode_staged()
            records = memoryview(self._open_buffer())[HEADER_BYTES : self.size_bytes]
            if self._compression.type is CompressionType.NONE:
                self._body = records
            else:
                self._body = compress(self._compression.type, records, self._compression.level)

    def _encode_staged(self) -> None:
        staged, self._staged, self._staging = self._staged, [], None
        counted = 0
        for position, run in staged:
            records, largest = run.encode(self.base_timestamp)
            self.largest_record_bytes = max(self.largest_record_bytes, largest)
            newest = max(run.timestamps)
            self.max_timestamp = max(self.max_timestamp, newest)
            self._place(records, position)
            counted += len(run.values)
            if position + len(records) > self.size_bytes or counted > self.record_count:
                # A KeyboardInterrupt struck while a record was staged: its neighbours cannot be told apart from it.
                raise RuntimeError("a record was staged only in part")

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
            is_transactional=self.is_transactional,
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

    @property
    def was_sent(self) -> bool:
        """A request with it has left, so it may be stored although nobody has said so."""
        return self.unanswered_sends > 0 or self.attempts > 0 or self.may_be_stored

    def reenqueued(self, now_ms: int) -> None:
        """The batch goes back to its queue after a failed attempt."""
        self.attempts += 1
        self.last_attempt_ms = now_ms

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

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Two batches of about half the bytes each, as old as this one, which ends: its futures lead to them.

        Their memory is new; whoever accounts for this batch's buffer accounts for theirs instead.

        :raises ValueError: one record cannot be split.
        """
        if self.record_count < 2:
            raise ValueError(f"a batch of {self.record_count} record(s) of {self.topic_partition} cannot be split")
        self.close()
        records = rebase.parse_records(memoryview(self._open_buffer())[HEADER_BYTES : self.size_bytes])
        half = (self.size_bytes - HEADER_BYTES) // 2
        cut, seen = 1, records[0].size_bytes
        while cut < len(records) - 1 and seen + records[cut].size_bytes <= half:
            seen += records[cut].size_bytes
            cut += 1
        pieces = self._piece(records, 0, cut), self._piece(records, cut, len(records))
        with self._state_lock:
            if self.final_state is not None:
                raise RuntimeError(f"a batch of {self.topic_partition} that was {self.final_state.value} was split")
            self.final_state = FinalState.SPLIT
        self.result.split(cut, pieces[0].result, pieces[1].result)
        return pieces

    def _piece(self, records: Sequence[rebase.PlacedRecord], start: int, end: int) -> ProducerBatch:
        base_delta = records[start].timestamp_delta
        encoded = bytearray()
        ends = []
        for index in range(start, end):
            record = records[index]
            rebase.write_content(encoded, index - start, record.timestamp_delta - base_delta, record.content)
            ends.append(len(encoded))
        buffer = bytearray(HEADER_BYTES + len(encoded))
        piece = ProducerBatch(
            self.topic_partition, buffer, len(buffer), self._grow, self._compression, self._clock, self.created_ms
        )
        piece.may_be_stored = self.may_be_stored or self.attempts > 0
        stamps = [self.base_timestamp + record.timestamp_delta for record in records[start:end]]
        piece.append_encoded(encoded, end - start, stamps[0], max(stamps), None)
        for thunk in self._thunks:
            first, last = max(thunk.first, start), min(thunk.first + thunk.count, end)
            if first < last:
                size = ends[last - start - 1] - (ends[first - start - 1] if first > start else 0)
                piece._thunks.append(_Thunk(first - start, last - first, size, thunk.callback))
        piece.close_for_appends()
        return piece

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
            self._tell(thunk, base_offset, log_append_time, error)
        self.result.done()
        return True

    def _tell(self, thunk: _Thunk, base_offset: int, log_append_time: int, error: Exception | None) -> None:
        first = NO_OFFSET if base_offset == NO_OFFSET else base_offset + thunk.first
        delivery = Delivery(self.topic_partition, first, thunk.count, thunk.size_bytes, log_append_time, error)
        try:
            thunk.callback(delivery)
        except Exception:
            _log.exception(
                "a delivery callback for %s raised; the other records' callbacks go on", self.topic_partition
            )
