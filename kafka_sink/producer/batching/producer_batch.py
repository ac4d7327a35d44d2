"""ProducerBatch: the records of one partition that are sent together.

Calling threads append to an open batch under the lock of its partition; from the drain on only the sender thread uses
it. Single records are staged, and counted to the byte, when they are appended; they are encoded together when the batch
is closed. A batch allocates and frees memory only through the accumulator's pool.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_sink.columns.varint import varint_size
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.clock import Clock, ExponentialBackoff
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Header, TopicPartition
from kafka_sink.producer.batching.buffer_pool import BatchMemory
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import (
    NO_RECORD_ERRORS,
    Delivery,
    DeliveryCallback,
    FutureRecordMetadata,
    MayWait,
    ProduceRequestResult,
    anywhere,
)
from kafka_sink.records import batch as record_batch
from kafka_sink.records import compacted
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from kafka_sink.records.reference import header_entries
from kafka_sink.records.vectorized import StagedRecords

_log = logging.getLogger(__name__)

_SEQUENCE_MAX = 0x7FFFFFFF


def sequence_precedes(first: int, second: int) -> bool:
    """Whether *first* was assigned before *second*. Sequences wrap from 2^31 - 1 to 0, so a comparison of sizes is not
    enough."""
    return 0 < ((second - first) & _SEQUENCE_MAX) < 2**30


def sequence_after(sequence: int, count: int = 1) -> int:
    """The sequence *count* records after *sequence*."""
    return (sequence + count) & _SEQUENCE_MAX


class FinalState(Enum):
    """The final state of a batch; unset until the batch is done."""

    ABORTED = "aborted"
    FAILED = "failed"
    SPLIT = "split"
    SUCCEEDED = "succeeded"


@dataclass(frozen=True, slots=True)
class Compression:
    """Codec and level of a producer's batches."""

    type: CompressionType
    level: int | None

    @classmethod
    def of(cls, config: ProducerConfig) -> Compression:
        """The compression of a producer with this *config*."""
        return cls(CompressionType.from_name(config.compression_type), config.compression_level)


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The largest size of batches, their compression, and the time they linger."""

    batch_size_bytes: int
    compression: Compression
    linger_ms: int
    delivery_timeout_ms: int
    retry_backoff: ExponentialBackoff


@dataclass(slots=True)
class _Thunk:
    """Records that were appended together, and their callback."""

    first: int
    count: int
    size_bytes: int
    callback: DeliveryCallback

    def holds(self, index: int) -> bool:
        """Whether the record at position *index* of the batch is one of them."""
        return self.first <= index < self.first + self.count


class ProducerBatch:
    """One record batch under construction, in flight, or done (apache/kafka ``ProducerBatch``).

    After an interrupted append the batch holds the records that it has counted, and accepts no more.

    :param memory: room for the 61-byte header and the uncompressed records; the batch owns it.
    :param more_memory: the largest size of the batch, and larger memory when *memory* is full before that.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        memory: bytearray,
        more_memory: BatchMemory,
        compression: Compression,
        clock: Clock,
        created_ms: int,
        may_wait: MayWait = anywhere,
    ) -> None:
        # The attributes of all stages, so that each one has its type and a value from the beginning.
        self.topic_partition = topic_partition
        self.memory = memory
        self._limit = more_memory.limit_for(memory)
        self._capacity = len(memory)
        self._more_memory = more_memory
        self.created_ms = created_ms
        self.attempts = 0
        self.last_attempt_ms = created_ms
        self.drained_ms = created_ms
        self.retry_backoff_ms = 0
        #: Why the last attempt failed, for error messages.
        self.last_failure = ""
        #: The leader epoch at the last attempt, if known: a retry to a newer leader does not wait for the backoff.
        self.leader_epoch: int | None = None
        #: The sequence was changed while an attempt with the old one was unanswered, or its retry was not yet sent.
        self.reopened_sequence = False
        #: The batch was split from a batch that an earlier attempt may have stored, so its sequence must never change.
        self.may_be_stored = False
        self.record_count = 0
        #: Size of the largest record; known once the batch is closed.
        self.largest_record_bytes = 0
        self.size_bytes = HEADER_BYTES
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.is_transactional = False
        self._may_wait = may_wait
        self.result = ProduceRequestResult(topic_partition, clock, may_wait)
        self.final_state: FinalState | None = None
        #: Unanswered requests that refer to the buffer; the buffer must not be reused before they are answered.
        self.unanswered_sends = 0
        self._compression = compression
        self._clock = clock
        # Also True while an append is in progress. A signal handler on the same thread that appends in the middle of it
        # opens another batch, and if the append does not complete, nothing is appended after it.
        self._closed_for_appends = False
        self._thunks: list[_Thunk] = []
        # Records that are staged and not yet encoded, in runs, oldest first, each with the position of its first byte;
        # and the run that the next record joins.
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
        """Append one record, or return None when the record does not fit into the batch or into the available memory,
        when the batch is closed, or when the record would fill the batch and *may_fill* is False.

        The record is encoded when the batch is closed.
        """
        # One function, with the exact size computed inline, because it runs once per record and dominates the cost of
        # an append.
        if self._closed_for_appends:
            return None
        entries = header_entries(headers) if headers else b""
        self._closed_for_appends = True
        count = self.record_count
        used = self.size_bytes
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
            body += varint_size(len(headers)) + len(entries)
        size = used + body + (1 if body < 64 else 2 if body < 8192 else varint_size(body))
        if (size >= self._limit and (size > self._limit or not may_fill)) or (
            size > self._capacity and not self._grow_to(size)
        ):
            self._closed_for_appends = False
            return None
        staging = self._staging
        if staging is None:
            staging = StagedRecords(count)
            self._staged.append((used, staging))
            self._staging = staging
        staging.timestamps.append(timestamp)
        staging.keys.append(key)
        staging.values.append(value)
        if headers:
            staging.headers[count - staging.first] = len(headers), entries
        if count == 0:
            self.base_timestamp = timestamp
        if callback is not None:
            self._thunks.append(_Thunk(count, 1, size - used, callback))
        self.size_bytes = size
        self.record_count = count + 1
        self._closed_for_appends = False
        return FutureRecordMetadata(self.result, count, timestamp, key_size, value_size)

    def append_encoded(
        self,
        records: Buffer,
        count: int,
        first_timestamp: int,
        max_timestamp: int,
        callback: DeliveryCallback | None,
        *,
        records_before: int = 0,
    ) -> bool:
        """Append *count* records that are already encoded (including offset and timestamp deltas) for the position
        after *records_before* records.

        Returns False, and appends nothing, when they do not fit into the batch or into the available memory, when the
        batch is closed, or when it has more records.
        """
        if self._closed_for_appends:
            return False
        self._closed_for_appends = True
        size = len(records)
        needed = self.size_bytes + size
        if (
            self.record_count != records_before
            or needed > self._limit
            or (needed > self._capacity and not self._grow_to(needed))
        ):
            self._closed_for_appends = False
            return False
        if self.record_count == 0:
            self.base_timestamp = first_timestamp
        self._staging = None
        self._place(records, self.size_bytes)
        if callback is not None:
            self._thunks.append(_Thunk(self.record_count, count, size, callback))
        self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.size_bytes, self.record_count = needed, self.record_count + count
        self._closed_for_appends = False
        return True

    def _grow_to(self, needed: int) -> bool:
        larger = self._more_memory.allocate_larger(needed)
        if larger is None:
            return False
        used = self.size_bytes
        memoryview(larger)[:used] = memoryview(self.memory)[:used]
        outgrown, self.memory = self.memory, larger
        self._capacity = len(larger)
        self._more_memory.give_back(outgrown)
        return True

    def _place(self, records: Buffer, position: int) -> None:
        # Through a view: an assignment to a slice of the bytearray itself copies the records twice.
        memoryview(self.memory)[position : position + len(records)] = records

    def close_for_appends(self) -> None:
        """Refuse further appends; :meth:`close` does the rest."""
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
        """Set the producer id, the epoch and the base sequence."""
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        # The next attempt gets a new header, because the old one may still be in flight.
        self._header = None

    def reset_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set a new sequence in a new epoch, while this batch waits for its answer or its retry (KIP-360)."""
        self.reopened_sequence = True
        self.set_producer_state(producer_id, producer_epoch, base_sequence)

    def close(self) -> None:
        """Encode and compress the records, once, and prepare an attempt with the current sequence."""
        self._closed_for_appends = True
        self.reopened_sequence = False
        if self._body is None:
            self._encode_staged()
            records = memoryview(self.memory)[HEADER_BYTES : self.size_bytes]
            if self._compression.type is CompressionType.NONE:
                self._body = records
            else:
                self._body = compress(self._compression.type, records, self._compression.level)

    def _encode_staged(self) -> None:
        staged, self._staged = self._staged, []
        newest_run, self._staging = self._staging, None
        for position, run in staged:
            # A record that was interrupted before it was counted is not part of the batch.
            run.cut(self.record_count - run.first)
            records, largest = run.encode(self.base_timestamp)
            self.largest_record_bytes = max(self.largest_record_bytes, largest)
            self.max_timestamp = max(self.max_timestamp, max(run.timestamps, default=NO_TIMESTAMP))
            self._place(records, position)
            if run is newest_run:
                self.size_bytes = position + len(records)

    @property
    def wire(self) -> list[Buffer]:
        """The closed batch as a produce request contains it: header and records, without a copy."""
        if self._body is None:
            raise RuntimeError(f"a batch of {self.topic_partition} must be closed before it is sent")
        if self._header is None:
            self._header = bytearray(HEADER_BYTES)
            record_batch.write_header(
                self._header,
                records=[self._body],
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
        return [self._header, self._body]

    @property
    def wire_bytes(self) -> int:
        """Size of a closed batch after compression, or of an open batch before compression."""
        return self.size_bytes if self._body is None else HEADER_BYTES + len(self._body)

    # --- the end -----------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        return self.final_state is not None

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        return delivery_timeout_ms <= now_ms - self.created_ms

    @property
    def was_sent(self) -> bool:
        """Whether a request with this batch was sent, so that it may be stored although no answer confirmed it."""
        return self.unanswered_sends > 0 or self.attempts > 0 or self.may_be_stored

    def reenqueued(self, now_ms: int) -> None:
        """Record that the batch goes back to its queue after a failed attempt."""
        self.attempts += 1
        self.last_attempt_ms = now_ms

    def abort(self, error: Exception) -> bool:
        """Abort the batch; True when this call completed it."""
        return self._finish(FinalState.ABORTED, NO_OFFSET, NO_TIMESTAMP, error)

    def done(
        self,
        base_offset: int,
        log_append_time: int,
        error: Exception | None,
        record_errors: Mapping[int, Exception] = NO_RECORD_ERRORS,
    ) -> bool:
        """Complete the batch with the broker's answer; True when this call completed it, False when it was done before.

        :param record_errors: the records, by their position in the batch, whose error differs from *error*.
        :raises RuntimeError: if the batch has succeeded before, because success is final.
        """
        target = FinalState.SUCCEEDED if error is None else FinalState.FAILED
        if self._finish(target, base_offset, log_append_time, error, record_errors):
            return True
        if self.final_state is FinalState.SUCCEEDED:
            raise RuntimeError(
                f"a batch of {self.topic_partition} that had succeeded was completed again as {target.value}"
            )
        _log.debug("ignored %s of a batch of %s that was %s", target.value, self.topic_partition, self.final_state)
        return False

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        """Split this batch into two of about half the bytes each and the same age; its futures refer to them
        afterwards.

        Their memory is new; the caller has to account for it instead of this batch's buffer.

        :raises ValueError: if the batch has fewer than two records.
        """
        if self.record_count < 2:
            raise ValueError(f"a batch of {self.record_count} record(s) of {self.topic_partition} cannot be split")
        self.close()
        records = compacted.parse_records(memoryview(self.memory)[HEADER_BYTES : self.size_bytes])
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

    def _piece(self, records: Sequence[compacted.PlacedRecord], start: int, end: int) -> ProducerBatch:
        base_delta = records[start].timestamp_delta
        encoded = bytearray()
        ends = []
        for index in range(start, end):
            record = records[index]
            compacted.write_content(encoded, index - start, record.timestamp_delta - base_delta, record.content)
            ends.append(len(encoded))
        memory = bytearray(HEADER_BYTES + len(encoded))
        piece = ProducerBatch(
            self.topic_partition,
            memory,
            self._more_memory,
            self._compression,
            self._clock,
            self.created_ms,
            self._may_wait,
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

    def release_memory(self) -> bytearray:
        """Return the memory of a batch that is done and not in flight, for reuse; an empty buffer the second time."""
        self._body = None
        self._header = None
        memory, self.memory = self.memory, bytearray()
        return memory

    def _finish(
        self,
        state: FinalState,
        base_offset: int,
        log_append_time: int,
        error: Exception | None,
        record_errors: Mapping[int, Exception] = NO_RECORD_ERRORS,
    ) -> bool:
        with self._state_lock:
            if self.final_state is not None:
                return False
            self.final_state = state
        self.result.set(base_offset, log_append_time, error, record_errors)
        for thunk in self._thunks:
            if thunk.first < self.record_count:
                named = (record_errors[index] for index in sorted(record_errors) if thunk.holds(index))
                self._tell(thunk, base_offset, log_append_time, next(named, error))
        self.result.done()
        return True

    def _tell(self, thunk: _Thunk, base_offset: int, log_append_time: int, error: Exception | None) -> None:
        first = NO_OFFSET if base_offset == NO_OFFSET else base_offset + thunk.first
        delivery = Delivery(self.topic_partition, first, thunk.count, thunk.size_bytes, log_append_time, error)
        try:
            thunk.callback(delivery)
        except BaseException as raised:
            # Also SystemExit: on the main thread sys.exit() ends the program, but here it would end the sender thread.
            _log.error(
                "a delivery callback for %s raised %r; the callbacks of the other records are called",
                self.topic_partition,
                raised,
                exc_info=True,
            )
