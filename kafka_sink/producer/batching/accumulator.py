"""RecordAccumulator: the queues between the calling threads and the sender thread.

Calling threads append (:meth:`append`; columns through ``column_append``), flush and close. The sender thread drains
batches through ``batch_drain``, aborts them and deallocates their memory. Each partition has a deque of batches under
its own lock. No lock is held while a thread waits for memory or encodes columns. Of a single record only the headers
are encoded under the lock, because the batch counts every byte before it accepts the record. The accumulator never
performs I/O and never calls user code while it holds a lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.locks import release_left
from kafka_sink.common.model import Header, TopicPartition
from kafka_sink.producer.batching.buffer_pool import BatchMemory, BufferPool, Memory
from kafka_sink.producer.batching.calls_in_progress import APPEND, FLUSH, CallsInProgress
from kafka_sink.producer.batching.producer_batch import Compression, ProducerBatch
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.records import reference
from kafka_sink.records.layout import HEADER_BYTES

P = ParamSpec("P")
T = TypeVar("T")

#: How often a close checks for appends that are still in progress, ms.
_STRAGGLER_CHECK_MS = 10


class PartitionQueue:
    """The batches of one partition, oldest first; only the last may be open. Every access holds ``lock``."""

    __slots__ = ("batches", "lock", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.RLock()
        self.batches: deque[ProducerBatch] = deque()


class _Record(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    callback: DeliveryCallback | None


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The result of an append; ``future`` is None when ``abort_for_new_batch`` asks the caller to choose the partition
    again.
    """

    future: FutureRecordMetadata | None
    batch_is_full: bool
    new_batch_created: bool
    abort_for_new_batch: bool


class TransactionGate(Protocol):
    """The part of the producer's transactions that the accumulator calls, on the calling thread."""

    def check_can_send(self) -> None:
        """:raises TransactionStateError: if no transaction is open.
        :raises TransactionAbortableError: if the open transaction can only be aborted.
        """

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Add the partition of a staged record, after :meth:`check_can_send` and within the same append."""


class RecordAccumulator:
    """Bounded staging area for records (apache/kafka ``RecordAccumulator``)."""

    def __init__(
        self,
        *,
        batch_size_bytes: int,
        compression: Compression,
        pool: BufferPool,
        clock: Clock,
        transactions: TransactionGate | None = None,
    ) -> None:
        self._batch_size_bytes = batch_size_bytes
        self._compression = compression
        self._clock = clock
        #: None for a producer without a transactional id.
        self._transactions = transactions
        self.pool = pool
        self.memory = BatchMemory(pool, batch_size_bytes)
        self._closed = False
        self.calls = CallsInProgress()
        self.calls.sender_needs(lambda: [queue.lock for queue in tuple(self.queues.values())])
        #: Only :meth:`queue` adds to these dicts; nothing is ever removed.
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.queues_by_topic: dict[str, dict[int, PartitionQueue]] = {}
        # Only the keys are used. They are in order, so that a close aborts batches in the order in which they were
        # opened. Every change is one operation on the dict, so no lock is needed.
        self._incomplete: dict[ProducerBatch, None] = {}

    # --- appending (calling threads) ---------------------------------------------------------------------------------

    def append_to_open_batch(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        callback: DeliveryCallback | None,
    ) -> FutureRecordMetadata | None:
        """:meth:`append` for the common case that the partition's newest batch has room. Returns None otherwise.

        This method neither counts appends in progress nor checks whether the producer is closed: the batch is
        incomplete, so a close completes it together with this record, and nothing can be added to it afterwards. A
        record that would fill the batch to its last byte is left to :meth:`append`, so this method never has to wake
        the sender.
        """
        try:
            queue = self.queues_by_topic[topic][partition]
        except KeyError:
            return None
        try:
            with queue.lock:
                if self._transactions is not None:
                    self._transactions.check_can_send()
                batches = queue.batches
                return batches[-1].try_append(timestamp, key, value, headers, callback, False) if batches else None
        except BaseException:
            release_left(queue.lock)
            raise

    def append(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        callback: DeliveryCallback | None,
        max_block_ms: int,
        *,
        abort_on_new_batch: bool,
    ) -> AppendResult:
        """Append one record to the newest batch of its partition, opening a new batch if necessary.

        :raises BufferExhaustedError: if no memory is available within *max_block_ms*.
        :raises KafkaError: if the producer was closed meanwhile, or needs a transaction and none is open.
        """
        record = _Record(timestamp, key, value, headers, callback)
        return self.appending(self._append, topic_partition, record, max_block_ms, abort_on_new_batch)

    def appending(self, append: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *append*, which may add batches, and return its result. Until it returns, no transaction ends and a
        close waits.

        :raises KafkaError: if this thread is inside another call of the producer.
        """
        return self.calls.during(APPEND, append, *args, **kwargs)

    def _append(
        self, topic_partition: TopicPartition, record: _Record, max_block_ms: int, abort_on_new_batch: bool
    ) -> AppendResult:
        self.check_may_append()
        queue = self.queue(topic_partition)
        try:
            with queue.lock:
                result = self._try_append(queue, record)
        except BaseException:
            release_left(queue.lock)
            raise
        if result is not None:
            return result
        if abort_on_new_batch:
            return AppendResult(None, False, False, True)
        # The size is exact, because the first record of a batch has no deltas. Nothing may follow a record that is
        # larger than batch.size.
        size = HEADER_BYTES + reference.record_size(0, 0, record.key, record.value, record.headers)
        memory = Memory()
        opened: list[ProducerBatch] = []
        try:
            self.allocate(memory, size, max_block_ms)
            with queue.lock:
                # Another thread may have opened a batch meanwhile; two would leave the older one half empty.
                result = self._try_append(queue, record)
                if result is None:
                    batch = self.new_batch(topic_partition, memory)
                    opened.append(batch)
                    future = batch.try_append(*record)
                    if future is None:
                        raise RuntimeError(f"a fresh batch of {size} bytes refused its first record")
                    self.add_batch(queue, batch)
                    return AppendResult(future, len(queue.batches) > 1 or batch.is_full, True, False)
            self.pool.deallocate(memory)
            return result
        except BaseException:
            self.give_up(queue, memory, opened)
            raise

    def _try_append(self, queue: PartitionQueue, record: _Record) -> AppendResult | None:
        self.check_open()
        if not queue.batches:
            return None
        last = queue.batches[-1]
        future = last.try_append(*record)
        if future is None:
            last.close_for_appends()
            return None
        return AppendResult(future, len(queue.batches) > 1 or last.is_full, False, False)

    def allocate(self, memory: Memory, size: int, max_block_ms: int) -> None:
        """Allocate *memory* for a batch that has *size* bytes now.

        :raises BufferExhaustedError: if no memory is available within *max_block_ms*.
        """
        capacity = self.memory.capacity_for(size)
        if not self.pool.try_allocate(memory, capacity):
            self.calls.check_may_wait(APPEND)
            self.pool.allocate(memory, capacity, max_block_ms)

    def give_up(self, queue: PartitionQueue, memory: Memory, opened: Sequence[ProducerBatch]) -> None:
        """Clean up after an exception while a batch was *opened*: deallocate *memory*, unless the batch is queued."""
        with queue.lock:
            # A batch that is queued, and may be in flight or done already, owns its memory.
            if not any(batch in self._incomplete or batch.is_done for batch in opened):
                self.pool.deallocate(memory)
        release_left(queue.lock)

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The partition's queue, which is created at the first call and never removed."""
        found = self.queues.get(topic_partition)
        if found is None:
            found = self.queues.setdefault(topic_partition, PartitionQueue(topic_partition))
            self.queues_by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = found
        return found

    def new_batch(self, topic_partition: TopicPartition, memory: Memory) -> ProducerBatch:
        limit = max(self._batch_size_bytes, len(memory))
        now_ms = self._clock.monotonic_ms()
        return ProducerBatch(topic_partition, memory, limit, self.memory, self._compression, self._clock, now_ms)

    def add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Make *batch* the newest of its partition. The caller holds the queue's lock."""
        if self._transactions is not None:
            self._transactions.add_partition(queue.topic_partition)
        try:
            # The order matters: a batch that is only in a queue could be sent without a flush waiting for it, and a
            # batch that is in no queue would never be sent.
            self._incomplete[batch] = None
            queue.batches.append(batch)
        except BaseException:
            if batch not in queue.batches:
                self._incomplete.pop(batch, None)
            raise

    @property
    def batch_room_bytes(self) -> int:
        """Bytes of records that fit into a batch; only a single record may be larger."""
        return self._batch_size_bytes - HEADER_BYTES

    def check_may_append(self) -> None:
        """Check the transaction, once at the beginning of an append: from then on the transaction cannot end before the
        append.

        :raises TransactionStateError: if a transaction is needed and none is open.
        :raises TransactionAbortableError: if the open transaction can only be aborted.
        """
        if self._transactions is not None:
            self._transactions.check_can_send()

    def check_open(self) -> None:
        """:raises KafkaError: if the producer was closed."""
        if self._closed:
            raise KafkaError("producer closed while send in progress")

    # --- the batches that have no outcome yet ------------------------------------------------------------------------

    @property
    def has_incomplete(self) -> bool:
        """Whether any batch is queued or in flight."""
        return bool(self._incomplete)

    @property
    def has_incomplete_or_appends(self) -> bool:
        """Whether any batch is queued or in flight, or an append is in progress that may add one."""
        # The order matters: an append ends after it has added its batch.
        return self.calls.has(APPEND) or self.has_incomplete

    def replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Replace *batch* by *pieces*, which hold its records; they take over its memory."""
        # The order matters: a thread that reads in between waits for one batch too many, never for one too few.
        self._incomplete.update(dict.fromkeys(pieces))
        self._incomplete.pop(batch, None)
        batch.forget_wire()
        self.pool.exchange(batch.memory, [piece.memory for piece in pieces])

    def deallocate(self, batch: ProducerBatch) -> None:
        """Remove a batch that is done, and deallocate its memory unless an unanswered request still refers to it.

        In that case the buffer is kept, and the caller calls again when the request has been answered. So bytes that
        are being sent are never overwritten with another partition's records.
        """
        self._incomplete.pop(batch, None)
        if batch.unanswered_sends == 0:
            batch.forget_wire()
            self.pool.deallocate(batch.memory)

    # --- flush and close ---------------------------------------------------------------------------------------------

    def flush(self, timeout_ms: int, wake_sender: Callable[[], None]) -> None:
        """Make every batch sendable, and wait for the batches that are incomplete now.

        :raises KafkaTimeoutError: if they are not all done after *timeout_ms*.
        """
        self.calls.check_may_wait(FLUSH)
        self.calls.during(FLUSH, self._flush, timeout_ms, wake_sender)

    def _flush(self, timeout_ms: int, wake_sender: Callable[[], None]) -> None:
        deadline = self._clock.monotonic_ms() + timeout_ms
        wake_sender()
        for batch in self._incomplete_snapshot():
            if not batch.result.wait(max(deadline - self._clock.monotonic_ms(), 0)):
                raise KafkaTimeoutError(f"flush did not end within {timeout_ms} ms")

    @property
    def is_urgent(self) -> bool:
        """Whether batches are sent before they are full or have lingered."""
        return self.pool.queued > 0 or self._closed or self.calls.has(FLUSH)

    def close(self) -> None:
        """Refuse further appends, and wake the threads that wait for memory."""
        self._closed = True
        self.pool.close()

    def await_appends(self) -> None:
        """Wait for the appends that were in progress at :meth:`close`. The batches that they added are incomplete
        afterwards.

        These appends end without a wait, because the pool is closed too.
        """
        pause = threading.Condition()
        while self.calls.has(APPEND):
            with pause:
                self._clock.wait(pause, _STRAGGLER_CHECK_MS)

    def abort_incomplete(self, reason_for: Callable[[ProducerBatch], Exception]) -> list[ProducerBatch]:
        """Fail every batch, including those of appends that were in progress at the close, and return them."""
        self.await_appends()
        return self.abort_batches(reason_for)

    def abort_batches(self, reason_for: Callable[[ProducerBatch], Exception]) -> list[ProducerBatch]:
        """Fail every batch that is queued or in flight now, and return them."""
        aborted = self._incomplete_snapshot()
        for batch in aborted:
            queue = self.queue(batch.topic_partition)
            with queue.lock:
                if batch in queue.batches:
                    queue.batches.remove(batch)
            self._abort(batch, reason_for(batch))
        return aborted

    def abort_undrained(self, reason: Exception) -> list[ProducerBatch]:
        """Fail the batches that have no sequence yet, which were never sent, and return them."""
        aborted: list[ProducerBatch] = []
        for batch in self._incomplete_snapshot():
            queue = self.queue(batch.topic_partition)
            with queue.lock:
                if batch.has_sequence or batch not in queue.batches:
                    continue
                queue.batches.remove(batch)
            self._abort(batch, reason)
            aborted.append(batch)
        return aborted

    def _abort(self, batch: ProducerBatch, reason: Exception) -> None:
        batch.abort(reason)
        self.deallocate(batch)

    def _incomplete_snapshot(self) -> list[ProducerBatch]:
        return list(self._incomplete)
