"""RecordAccumulator: the queues between the threads that send records and the one that talks to the brokers.

Calling threads append (:meth:`append`; columns through ``column_append``), flush and close; the sender thread takes
batches out through ``batch_drain``, aborts them, and gives their memory back. Each partition has a deque of batches
under its own lock; no lock is ever held while memory is awaited or columns are encoded, and of a single record only the
headers are encoded under it, since the batch counts every byte before it takes them. It never performs I/O and never
calls user code while holding a lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.model import Header, TopicPartition
from kafka_sink.producer.batch_memory import BatchMemory
from kafka_sink.producer.buffer_pool import BufferPool
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.producer.producer_batch import Compression, ProducerBatch
from kafka_sink.producer.transactions import TransactionManager
from kafka_sink.records import reference
from kafka_sink.records.layout import HEADER_BYTES

#: How often a close looks again for appends that are still under way, ms.
_STRAGGLER_CHECK_MS = 100


class PartitionQueue:
    """The batches of one partition, oldest first; only the last may be open. Every access holds ``lock``."""

    __slots__ = ("batches", "lock", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.Lock()
        self.batches: deque[ProducerBatch] = deque()


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What an append did; ``future`` is None when ``abort_for_new_batch`` asks for another choice of partition."""

    future: FutureRecordMetadata | None
    batch_is_full: bool
    new_batch_created: bool
    abort_for_new_batch: bool


class RecordAccumulator:
    """Bounded staging area for records (apache/kafka ``RecordAccumulator``)."""

    def __init__(
        self,
        *,
        batch_size_bytes: int,
        compression: Compression,
        pool: BufferPool,
        clock: Clock,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._batch_size_bytes = batch_size_bytes
        self._compression = compression
        self._clock = clock
        #: None but for a producer with a transactional id.
        self._transactions = transactions
        self.pool = pool
        self.memory = BatchMemory(pool, batch_size_bytes)
        self._closed = False
        self._counters = threading.Condition()
        self._flushes_in_progress = 0
        # Which threads append just now.
        self._appending: set[int] = set()
        #: Only :meth:`queue` adds to these, and nothing is ever removed.
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.queues_by_topic: dict[str, dict[int, PartitionQueue]] = {}
        self._incomplete_lock = threading.Lock()
        # Keys only: in order, so that what a close gives up is told in the order in which it was opened.
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
        """:meth:`append` for the common case: the partition's newest batch has room. None when it has not.

        Needs no count of appends in progress, nor to know whether the producer was closed: the batch is among the
        incomplete ones, so whoever closes the producer ends it together with this record, and nothing can be added to
        it afterwards. A record that would fill the batch to its last byte is left to :meth:`append`, so that nobody
        needs to be told that the batch can be sent.
        """
        try:
            queue = self.queues_by_topic[topic][partition]
        except KeyError:
            return None
        with queue.lock:
            if self._transactions is not None:
                self._transactions.check_can_send()
            batches = queue.batches
            return batches[-1].try_append(timestamp, key, value, headers, callback, False) if batches else None

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
        now_ms: int,
    ) -> AppendResult:
        """Add one record to its partition's newest batch, opening one where needed.

        :raises BufferExhaustedError: no memory within *max_block_ms*.
        :raises KafkaError: the producer was closed meanwhile, or is outside a transaction that it needs.
        """
        with AppendInProgress(self):
            self.check_may_append()
            queue = self.queue(topic_partition)
            with queue.lock:
                result = self._try_append(queue, timestamp, key, value, headers, callback, now_ms)
            if result is not None:
                return result
            if abort_on_new_batch:
                return AppendResult(None, False, False, True)
            # Exact, because the first record of a batch has no deltas: nothing may follow one that is over batch.size.
            size = HEADER_BYTES + reference.record_size(0, 0, key, value, headers)
            buffer: bytearray | None = self.pool.allocate(self.memory.capacity_for(size), max_block_ms)
            assert buffer is not None
            try:
                now_ms = self._clock.monotonic_ms()
                with queue.lock:
                    # Another thread may have opened a batch meanwhile; two would leave the older one half empty.
                    result = self._try_append(queue, timestamp, key, value, headers, callback, now_ms)
                    if result is not None:
                        return result
                    batch = self.new_batch(topic_partition, buffer, now_ms)
                    future = batch.try_append(timestamp, key, value, headers, callback)
                    if future is None:
                        raise RuntimeError(f"a fresh batch of {size} bytes refused its first record")
                    self.add_batch(queue, batch)
                    buffer = None
                    return AppendResult(future, len(queue.batches) > 1 or batch.is_full, True, False)
            finally:
                if buffer is not None:
                    self.pool.deallocate(buffer)

    def _try_append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        callback: DeliveryCallback | None,
        now_ms: int,
    ) -> AppendResult | None:
        self.check_open()
        if not queue.batches:
            return None
        last = queue.batches[-1]
        future = last.try_append(timestamp, key, value, headers, callback)
        if future is None:
            last.close_for_appends()
            return None
        return AppendResult(future, len(queue.batches) > 1 or last.is_full, False, False)

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The partition's queue, made when first asked for and never removed."""
        found = self.queues.get(topic_partition)
        if found is None:
            found = self.queues.setdefault(topic_partition, PartitionQueue(topic_partition))
            self.queues_by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = found
        return found

    def new_batch(self, topic_partition: TopicPartition, buffer: bytearray, now_ms: int) -> ProducerBatch:
        limit = max(self._batch_size_bytes, len(buffer))
        return ProducerBatch(topic_partition, buffer, limit, self.memory.grow, self._compression, self._clock, now_ms)

    def add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Make *batch* the newest of its partition; the queue's lock is held."""
        if self._transactions is not None:
            self._transactions.add_partition(queue.topic_partition)
        queue.batches.append(batch)
        with self._incomplete_lock:
            self._incomplete[batch] = None

    @property
    def batch_room_bytes(self) -> int:
        """Bytes of records that a batch takes (more only if it is a single one)."""
        return self._batch_size_bytes - HEADER_BYTES

    def check_may_append(self) -> None:
        """Once at the beginning of an append in progress: from here on a transaction cannot end before the append.

        :raises TransactionStateError: a transaction is needed, and none is open.
        :raises TransactionAbortableError: the open transaction can only be aborted.
        """
        if self._transactions is not None:
            self._transactions.check_can_send()

    def check_open(self) -> None:
        """:raises KafkaError: the producer was closed."""
        if self._closed:
            raise KafkaError("producer closed while send in progress")

    # --- the batches that have no outcome yet ------------------------------------------------------------------------

    @property
    def has_incomplete(self) -> bool:
        """Whether any batch is queued or in flight."""
        return bool(self._incomplete)

    @property
    def has_incomplete_or_appends(self) -> bool:
        """Whether any batch is queued or in flight, or an append is under way that may add one."""
        # In this order: an append ends after its batch is there.
        return bool(self._appending) or self.has_incomplete

    def replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """*pieces*, which have the records of *batch*, take its place and its memory."""
        with self._incomplete_lock:
            self._incomplete.pop(batch, None)
            self._incomplete.update(dict.fromkeys(pieces))
        buffer = batch.release_buffer()
        if buffer is not None:
            self.pool.exchange(buffer, [piece.buffer_bytes for piece in pieces])

    def deallocate(self, batch: ProducerBatch) -> None:
        """Forget a batch that is done; its memory goes back unless a request still points into it.

        While one does, the buffer is kept and the caller calls again when that request has been answered, so that bytes
        on their way out are never overwritten by another partition's records.
        """
        with self._incomplete_lock:
            self._incomplete.pop(batch, None)
        if batch.unanswered_sends == 0:
            buffer = batch.release_buffer()
            if buffer is not None:
                self.pool.deallocate(buffer)

    # --- flush and close ---------------------------------------------------------------------------------------------

    def flush(self, timeout_ms: int, wake_sender: Callable[[], None]) -> None:
        """Make every batch sendable, and wait for those that are incomplete now.

        :raises KafkaTimeoutError: they were not all done after *timeout_ms*.
        """
        deadline = self._clock.monotonic_ms() + timeout_ms
        with self._counters:
            self._flushes_in_progress += 1
        try:
            wake_sender()
            for batch in self._incomplete_snapshot():
                if not batch.result.wait(max(deadline - self._clock.monotonic_ms(), 0)):
                    raise KafkaTimeoutError(f"flush did not end within {timeout_ms} ms")
        finally:
            with self._counters:
                self._flushes_in_progress -= 1

    @property
    def is_urgent(self) -> bool:
        """Whether batches are to leave before they are full or have lingered."""
        return self.pool.queued > 0 or self._closed or self._flushes_in_progress > 0

    def close(self) -> None:
        """Refuse further appends and wake those that wait for memory."""
        self._closed = True
        self.pool.close()

    def await_appends(self) -> None:
        """Wait for the appends that were under way at :meth:`close`; what they added is incomplete from then on.

        They end by themselves: the pool is closed too, and lets nobody wait.
        """
        with self._counters:
            while self._appending:
                self._clock.wait(self._counters, _STRAGGLER_CHECK_MS)

    def caller_does_not_append(self) -> None:
        """The calling thread is in no append, whatever a KeyboardInterrupt may have kept it from saying."""
        self._appending.discard(threading.get_ident())

    def abort_incomplete(self, reason_for: Callable[[ProducerBatch], Exception]) -> list[ProducerBatch]:
        """Fail every batch, also of appends that were under way at the close; which those were."""
        self.await_appends()
        return self.abort_batches(reason_for)

    def abort_batches(self, reason_for: Callable[[ProducerBatch], Exception]) -> list[ProducerBatch]:
        """Fail every batch there is now, queued or in flight; which those were."""
        aborted = self._incomplete_snapshot()
        for batch in aborted:
            queue = self.queue(batch.topic_partition)
            with queue.lock:
                if batch in queue.batches:
                    queue.batches.remove(batch)
            self._abort(batch, reason_for(batch))
        return aborted

    def abort_undrained(self, reason: Exception) -> list[ProducerBatch]:
        """Fail the batches that have no sequence yet: they were never sent. Which those were."""
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
        with self._incomplete_lock:
            return list(self._incomplete)


class AppendInProgress:
    """Marks a thread as appending, from the entry to the end, so that a forced close misses no append.

    Without a lock: a KeyboardInterrupt may strike anywhere on the main thread, also between a lock and its release.
    """

    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator

    def __enter__(self) -> None:
        self._accumulator._appending.add(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        self._accumulator._appending.discard(threading.get_ident())
        if self._accumulator._closed:
            with self._accumulator._counters:
                self._accumulator._counters.notify_all()
