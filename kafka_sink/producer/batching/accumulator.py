"""RecordAccumulator: stages records in batches, which wait for the sender thread.

Calling threads append, flush and close. No lock is held while a thread waits for memory, encodes columns or compresses
a batch. Of a single record only the headers are encoded under the lock of its partition, because the batch counts every
byte before it accepts the record. The accumulator never performs I/O and never calls user code while it holds a lock.
The sender thread takes the batches through :mod:`~kafka_sink.producer.batching.batch_drain`.

``column_append`` plans and encodes columns, and appends them through :meth:`RecordAccumulator.continue_batch` and
:meth:`RecordAccumulator.append_to_new_batch`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from kafka_sink.common.clock import Clock, pause
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.model import Header, TopicPartition
from kafka_sink.producer.batching.buffer_pool import BatchMemory, BufferPool
from kafka_sink.producer.batching.calls_in_progress import APPEND, FLUSH, CallsInProgress
from kafka_sink.producer.batching.partition_queues import IncompleteBatches, PartitionQueue, PartitionQueues
from kafka_sink.producer.batching.producer_batch import BatchSettings, ProducerBatch
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.records import reference
from kafka_sink.records.layout import HEADER_BYTES

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: How often a close checks for appends that are still in progress, ms.
_STRAGGLER_CHECK_MS = 10

#: From this linger.ms on, the sender checks for new batches itself, ms.
_LONG_LINGER_MS = 50


class SerializedRecord(NamedTuple):
    """A record as it is appended."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    callback: DeliveryCallback | None


class EncodedRows(NamedTuple):
    """Rows of a chunk that go into one batch, encoded for their places in it."""

    records: memoryview
    record_count: int
    first_timestamp: int
    newest_timestamp: int
    callback: DeliveryCallback | None


class OpenBatch(NamedTuple):
    """The batch that receives the next rows of a partition: its open batch now, or a new one if ``batch`` is None."""

    batch: ProducerBatch | None
    record_count: int
    base_timestamp: int
    #: Bytes of records that fit. Only a single record may be larger than a new batch.
    room_bytes: int


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The result of an append; ``future`` is None when ``abort_for_new_batch`` asks the caller to choose the partition
    again."""

    future: FutureRecordMetadata | None
    batch_is_full: bool
    new_batch_created: bool
    abort_for_new_batch: bool


class TransactionGate(Protocol):
    """The transactions of a producer with a transactional id, as the accumulator uses them."""

    def check_can_send(self) -> None:
        """:raises TransactionStateError: if no transaction is open. :raises TransactionAbortableError: if it can only
        be aborted. Calling thread."""

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Add the partition of a staged record, after :meth:`check_can_send` and within the same append. Calling
        thread."""

    @property
    def is_completing(self) -> bool:
        """Whether the transaction is being committed or aborted."""


class RecordAccumulator:
    """Bounded staging area for records (apache/kafka ``RecordAccumulator``).

    :param transactions: None for a producer without a transactional id.
    """

    def __init__(
        self,
        settings: BatchSettings,
        pool: BufferPool,
        queues: PartitionQueues,
        incomplete: IncompleteBatches,
        calls: CallsInProgress,
        clock: Clock,
        transactions: TransactionGate | None = None,
    ) -> None:
        self._settings = settings
        #: Whether every new batch of rows wakes the sender. With a long linger.ms the sender checks for new batches
        #: itself, once within that time: waking a thread takes longer than staging a few rows.
        self.tells_of_new_batches = settings.linger_ms < _LONG_LINGER_MS
        self._pool = pool
        self._memory = BatchMemory(pool, settings.batch_size_bytes)
        #: The memory of batches of the topics for which batch.size is too large.
        self._smaller: dict[str, BatchMemory] = {}
        self._queues = queues
        self._queues_by_topic = queues.by_topic
        self._incomplete = incomplete
        self._calls = calls
        self._clock = clock
        self._transactions = transactions
        self._closed = False
        calls.sender_needs(lambda: [pool.lock, *(queue.lock for queue in queues.all())])

    # --- records -----------------------------------------------------------------------------------------------------

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
            queue = self._queues_by_topic[topic][partition]
        except KeyError:
            return None
        try:
            with queue.lock:
                if self._transactions is not None:
                    self._transactions.check_can_send()
                batches = queue.batches
                return batches[-1].try_append(timestamp, key, value, headers, callback, False) if batches else None
        except KafkaError:
            raise
        except BaseException as error:
            self._calls.interrupted(APPEND, error)
            raise

    def append(
        self, topic_partition: TopicPartition, record: SerializedRecord, max_block_ms: int, *, abort_on_new_batch: bool
    ) -> AppendResult:
        """Append *record* to the newest batch of its partition, opening a new batch if necessary.

        :raises BufferExhaustedError: if no memory is available within *max_block_ms*.
        :raises KafkaError: if the producer was closed during the call, or needs a transaction and none is open.
        """
        return self.appending(self._append, topic_partition, record, max_block_ms, abort_on_new_batch)

    def appending(self, append: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *append*, which may add batches, and return its result. Until it returns, no transaction ends and a
        close waits; then the sender is woken if a thread waits for it, even if no batch was added.

        :raises KafkaError: if this thread is inside another call of the producer.
        """
        try:
            return self._calls.during(APPEND, append, *args, **kwargs)
        finally:
            if self.is_urgent():
                self._pool.wake_sender()

    def _append(
        self, topic_partition: TopicPartition, record: SerializedRecord, max_block_ms: int, abort_on_new_batch: bool
    ) -> AppendResult:
        self.check_may_append()
        queue = self._queues.of(topic_partition)
        with queue.lock:
            result = self._try_append(queue, record)
        if result is not None:
            return result
        if abort_on_new_batch:
            return AppendResult(None, False, False, True)
        # The size is exact, because the first record of a batch has no deltas. Nothing may follow a record that is
        # larger than batch.size.
        size = HEADER_BYTES + reference.record_size(0, 0, record.key, record.value, record.headers)
        memory = self._allocate(topic_partition.topic, size, max_block_ms)
        try:
            with queue.lock:
                # Another thread may have opened a batch during the allocation; two would leave the older half empty.
                result = self._try_append(queue, record)
                if result is None:
                    batch = self._new_batch(topic_partition, memory)
                    future = batch.try_append(*record)
                    if future is None:
                        raise RuntimeError(f"a new batch of {size} bytes has no room for its first record")
                    self._add_batch(queue, batch)
                    return AppendResult(future, len(queue.batches) > 1 or batch.is_full, True, False)
        except KafkaError:
            self._pool.deallocate(memory)
            raise
        self._pool.deallocate(memory)
        return result

    def _try_append(self, queue: PartitionQueue, record: SerializedRecord) -> AppendResult | None:
        self.check_open()
        if not queue.batches:
            return None
        last = queue.batches[-1]
        future = last.try_append(*record)
        if future is None:
            last.close_for_appends()
            return None
        return AppendResult(future, len(queue.batches) > 1 or last.is_full, False, False)

    def check_may_append(self) -> None:
        """Check the transaction, once at the beginning of an append: from then on the transaction cannot end before the
        append. Raises as :meth:`TransactionGate.check_can_send`."""
        if self._transactions is not None:
            self._transactions.check_can_send()

    def check_open(self) -> None:
        """:raises KafkaError: if the producer was closed."""
        if self._closed:
            raise KafkaError(f"producer closed while send in progress{self._calls.reason}")

    # --- columns (through ColumnAppender) ----------------------------------------------------------------------------

    def new_batch(self, topic: str) -> OpenBatch:
        """An :class:`OpenBatch` that stands for a new batch of *topic*, even if one is open."""
        return OpenBatch(None, 0, 0, self._memory_of(topic).batch_size_bytes - HEADER_BYTES)

    def open_batch(self, topic_partition: TopicPartition, otherwise: OpenBatch) -> OpenBatch:
        """The open batch of the partition for a plan, or *otherwise* if none has room. The batch may have changed when
        the rows are appended."""
        queue = self._queues.of(topic_partition)
        with queue.lock:
            if queue.batches:
                last = queue.batches[-1]
                if last.room_bytes > 0:
                    return OpenBatch(last, last.record_count, last.base_timestamp, last.room_bytes)
        return otherwise

    def continue_batch(self, batch: ProducerBatch, records_before: int, rows: EncodedRows) -> bool:
        """Append *rows* to *batch*, the open batch of its partition at the time of the plan, which had *records_before*
        records. Returns False, and appends nothing, if it has changed since, or cannot grow."""
        queue = self._queues.of(batch.topic_partition)
        with queue.lock:
            self.check_open()
            if not queue.batches or queue.batches[-1] is not batch or batch.record_count != records_before:
                return False
            if batch.append_encoded(*rows, records_before=records_before):
                return True
            # There is no memory to let the batch grow: the rows wait for memory for a batch that holds only them.
            batch.close_for_appends()
            return False

    def append_to_new_batch(self, topic_partition: TopicPartition, rows: EncodedRows, max_block_ms: int) -> bool:
        """Open a batch with *rows*, after the open batch of the partition, which is closed. Returns whether the sender
        has to be woken.

        :raises BufferExhaustedError: if no memory is available within *max_block_ms*.
        :raises KafkaError: if the producer was closed during the call.
        """
        queue = self._queues.of(topic_partition)
        memory = self._allocate(topic_partition.topic, HEADER_BYTES + len(rows.records), max_block_ms)
        with queue.lock:
            if self._closed:
                self._pool.deallocate(memory)
            self.check_open()
            if queue.batches:
                queue.batches[-1].close_for_appends()
            batch = self._new_batch(topic_partition, memory)
            batch.append_encoded(*rows)
            self._add_batch(queue, batch)
            return self.tells_of_new_batches or len(queue.batches) > 1 or batch.is_full

    # --- new batches -------------------------------------------------------------------------------------------------

    def limit_batches(self, topic: str, size_bytes: int) -> int:
        """Make the batches of *topic* that are opened from now on at most *size_bytes* large, before compression, or as
        large as a single record; returns their size, which may be smaller already. Any thread."""
        if size_bytes < self._memory_of(topic).batch_size_bytes:
            self._smaller[topic] = BatchMemory(self._pool, size_bytes)
        return self._memory_of(topic).batch_size_bytes

    def _memory_of(self, topic: str) -> BatchMemory:
        return self._smaller.get(topic, self._memory)

    def _allocate(self, topic: str, size: int, max_block_ms: int) -> bytearray:
        """Memory for a batch of *topic* that has *size* bytes now."""
        capacity = self._memory_of(topic).capacity_for(size)
        memory = self._pool.try_allocate(capacity)
        if memory is None:
            self._calls.check_may_wait(APPEND)
            memory = self._pool.allocate(capacity, max_block_ms)
        return memory

    def _new_batch(self, topic_partition: TopicPartition, memory: bytearray) -> ProducerBatch:
        now_ms = self._clock.monotonic_ms()
        larger = self._memory_of(topic_partition.topic)
        return ProducerBatch(
            topic_partition, memory, larger, self._settings.compression, self._clock, now_ms, self._calls.check_may_wait
        )

    def _add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Make *batch* the newest of its partition. The caller holds the queue's lock."""
        if self._transactions is not None:
            self._transactions.add_partition(queue.topic_partition)
        # The order matters: no thread may wait for a batch that is in no queue, because it is never sent.
        queue.batches.append(batch)
        self._incomplete.add(batch)

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def has_incomplete(self) -> bool:
        """Whether any batch is queued or in flight."""
        return bool(self._incomplete)

    @property
    def has_incomplete_or_appends(self) -> bool:
        """Whether any batch is queued or in flight, or an append is in progress that may add one."""
        # The order matters: an append ends after it has added its batch.
        return self._calls.has(APPEND) or self.has_incomplete

    def is_urgent(self) -> bool:
        """Whether batches are sent before they are full or have lingered."""
        if self._pool.queued > 0 or self._closed or self._calls.has(FLUSH):
            return True
        return self._transactions is not None and self._transactions.is_completing

    # --- flush and close ---------------------------------------------------------------------------------------------

    def flush(self, timeout_ms: int, wake_sender: Callable[[], None]) -> None:
        """Make every batch sendable, and wait for the batches that are incomplete now.

        :raises KafkaTimeoutError: if they are not all done after *timeout_ms*.
        """
        self._calls.check_may_wait(FLUSH)
        self._calls.during(FLUSH, self._flush, timeout_ms, wake_sender)

    def _flush(self, timeout_ms: int, wake_sender: Callable[[], None]) -> None:
        deadline = self._clock.monotonic_ms() + timeout_ms
        wake_sender()
        # Newest first: when its outcome is known, most of the older batches are done, too.
        for batch in reversed(self._incomplete.snapshot()):
            if not batch.result.wait(max(deadline - self._clock.monotonic_ms(), 0)):
                raise KafkaTimeoutError(f"flush did not complete within {timeout_ms} ms")

    def close(self) -> None:
        """Refuse further appends, and wake the threads that wait for memory."""
        self._closed = True
        self._pool.close()

    def await_appends(self) -> None:
        """Wait for the appends that were in progress at :meth:`close`. The batches that they added are incomplete
        afterwards.

        These appends end without a wait, because the pool is closed too.
        """
        while self._calls.has(APPEND):
            pause(self._clock, _STRAGGLER_CHECK_MS)
