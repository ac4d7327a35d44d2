"""RecordAccumulator: the queues between the calling threads and the sender thread, and the memory of their batches.

Calling threads append, flush and close. The sender thread asks which batches are ready, drains, expires, aborts and
puts back batches, and deallocates their memory. Each partition has a queue of batches under its own lock. No lock is
held while a thread waits for memory, encodes columns or compresses a batch. Of a single record only the headers are
encoded under the lock, because the batch counts every byte before it accepts the record. The accumulator never performs
I/O and never calls user code while it holds a lock.

Nothing else touches a queue. ``column_append`` plans and encodes columns, and appends them through
:meth:`RecordAccumulator.continue_batch` and :meth:`RecordAccumulator.append_to_new_batch`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.locks import release_left
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Header, Node, TopicPartition
from kafka_sink.producer.batching.buffer_pool import BatchMemory, BufferPool, Memory
from kafka_sink.producer.batching.calls_in_progress import APPEND, FLUSH, CallsInProgress
from kafka_sink.producer.batching.producer_batch import Compression, ProducerBatch, sequence_precedes
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.records import reference
from kafka_sink.records.layout import HEADER_BYTES

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: How often a close checks for appends that are still in progress, ms.
_STRAGGLER_CHECK_MS = 10

#: From this linger.ms on, the sender looks for new batches itself, ms.
_LONG_LINGER_MS = 50


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """How large batches become, how they are compressed, and how long they wait."""

    batch_size_bytes: int
    compression: Compression
    linger_ms: int
    delivery_timeout_ms: int
    retry_backoff: ExponentialBackoff


class _Record(NamedTuple):
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
    """Where the next rows of a partition go: its open batch as it is now, or a new batch if ``batch`` is None."""

    batch: ProducerBatch | None
    record_count: int
    base_timestamp: int
    #: Bytes of records that fit. Only a single record may be larger than a new batch.
    room_bytes: int


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The result of an append; ``future`` is None when ``abort_for_new_batch`` asks the caller to choose the partition
    again.
    """

    future: FutureRecordMetadata | None
    batch_is_full: bool
    new_batch_created: bool
    abort_for_new_batch: bool


@dataclass(frozen=True, slots=True)
class ReadyCheckResult:
    """The result of :meth:`RecordAccumulator.ready`."""

    ready_nodes: set[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: set[str]


class Sequences(Protocol):
    """What the accumulator asks of the sequences of an idempotent producer. Sender thread."""

    def must_wait(self, first: ProducerBatch) -> bool:
        """Whether the oldest batch of a partition must not be drained now."""

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assign the next sequence of its partition to a drained batch, unless it has one."""

    def split(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Replace *batch* by *pieces*, with consecutive sequences."""


class TransactionGate(Protocol):
    """What the accumulator asks of the transactions of a producer with a transactional id."""

    def check_can_send(self) -> None:
        """Calling thread.

        :raises TransactionStateError: if no transaction is open.
        :raises TransactionAbortableError: if the open transaction can only be aborted.
        """

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Add the partition of a staged record, after :meth:`check_can_send` and within the same append. Calling
        thread.
        """

    @property
    def is_completing(self) -> bool:
        """Whether the transaction is being committed or aborted."""

    def is_send_allowed(self, topic_partition: TopicPartition) -> bool:
        """Whether batches of the partition may be sent now."""

    def batch_failed(self, error: Exception) -> None:
        """Handle the failure of a batch. Sender thread."""


class PartitionQueue:
    """The batches of one partition, oldest first; only the last may be open. Every access holds ``lock``."""

    __slots__ = ("batches", "lock", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.RLock()
        self.batches: deque[ProducerBatch] = deque()

    def put_back(self, batch: ProducerBatch) -> None:
        """Insert *batch* before batches that were never sent, in the order of sequences if it has one, else by age. The
        caller holds the lock.
        """
        position = 0
        for other in self.batches:
            if _stays_behind(batch, other):
                break
            position += 1
        self.batches.insert(position, batch)


def _stays_behind(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether the queued batch *other* comes after *batch*, which is put back."""
    if batch.has_sequence:
        return not other.has_sequence or sequence_precedes(batch.base_sequence, other.base_sequence)
    # The oldest batch stays first. Otherwise its time-out would pass unnoticed behind a younger batch.
    return other.created_ms > batch.created_ms or (other.attempts == 0 and other.created_ms == batch.created_ms)


class RecordAccumulator:
    """Bounded staging area for records (apache/kafka ``RecordAccumulator``).

    :param sequences: None for a producer that is not idempotent.
    :param transactions: None for a producer without a transactional id.
    """

    def __init__(
        self,
        settings: BatchSettings,
        pool: BufferPool,
        calls: CallsInProgress,
        clock: Clock,
        sequences: Sequences | None = None,
        transactions: TransactionGate | None = None,
    ) -> None:
        self._settings = settings
        #: Whether the sender is told of every new batch of rows. With a long linger.ms it looks for new batches itself,
        #: once within that time: waking a thread takes longer than staging a few rows.
        self.tells_of_new_batches = settings.linger_ms < _LONG_LINGER_MS
        self._pool = pool
        self._memory = BatchMemory(pool, settings.batch_size_bytes)
        self._calls = calls
        self._clock = clock
        self._sequences = sequences
        self._transactions = transactions
        self._closed = False
        # Only `_queue` adds to these dicts; nothing is ever removed.
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._queues_by_topic: dict[str, dict[int, PartitionQueue]] = {}
        calls.sender_needs(lambda: [queue.lock for queue in tuple(self._queues.values())])
        # Only the keys are used. They are in order, so that a close aborts batches in the order in which they were
        # opened. Every change is one operation on the dict, so no lock is needed.
        self._incomplete: dict[ProducerBatch, None] = {}
        # Sender thread only.
        self._muted: set[TopicPartition] = set()
        # Node id → index of the partition where its next drain begins.
        self._drain_index: dict[int, int] = {}

    # --- records (calling threads) -----------------------------------------------------------------------------------

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
        return self._calls.during(APPEND, append, *args, **kwargs)

    def _append(
        self, topic_partition: TopicPartition, record: _Record, max_block_ms: int, abort_on_new_batch: bool
    ) -> AppendResult:
        self.check_may_append()
        queue = self._queue(topic_partition)
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
            self._allocate(memory, size, max_block_ms)
            with queue.lock:
                # Another thread may have opened a batch meanwhile; two would leave the older one half empty.
                result = self._try_append(queue, record)
                if result is None:
                    batch = self._new_batch(topic_partition, memory)
                    opened.append(batch)
                    future = batch.try_append(*record)
                    if future is None:
                        raise RuntimeError(f"a new batch of {size} bytes has no room for its first record")
                    self._add_batch(queue, batch)
                    return AppendResult(future, len(queue.batches) > 1 or batch.is_full, True, False)
            self._pool.deallocate(memory)
            return result
        except BaseException:
            self._give_up(queue, memory, opened)
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

    # --- columns (calling threads, through ColumnAppender) -----------------------------------------------------------

    @property
    def new_batch(self) -> OpenBatch:
        """For rows that go into a new batch, whether one is open or not."""
        return OpenBatch(None, 0, 0, self._settings.batch_size_bytes - HEADER_BYTES)

    def open_batch(self, topic_partition: TopicPartition) -> OpenBatch:
        """Where rows of the partition go, as a plan needs it. It may have changed when they are appended."""
        queue = self._queue(topic_partition)
        try:
            with queue.lock:
                if queue.batches:
                    last = queue.batches[-1]
                    if last.room_bytes > 0:
                        return OpenBatch(last, last.record_count, last.base_timestamp, last.room_bytes)
        except BaseException:
            release_left(queue.lock)
            raise
        return self.new_batch

    def continue_batch(self, batch: ProducerBatch, records_before: int, rows: EncodedRows) -> bool:
        """Append *rows* to *batch*, the open batch of its partition when they were planned, which had *records_before*
        records. Returns False, and appends nothing, when it has changed since, or cannot grow.
        """
        queue = self._queue(batch.topic_partition)
        try:
            with queue.lock:
                self.check_open()
                if not queue.batches or queue.batches[-1] is not batch or batch.record_count != records_before:
                    return False
                if batch.append_encoded(*rows):
                    return True
                # There is no memory to let the batch grow: the rows wait for memory for a batch that holds only them.
                batch.close_for_appends()
                return False
        except BaseException:
            release_left(queue.lock)
            raise

    def append_to_new_batch(self, topic_partition: TopicPartition, rows: EncodedRows, max_block_ms: int) -> bool:
        """Open a batch with *rows*, behind the open batch of the partition, which is closed. Returns whether the sender
        has to be told.

        :raises BufferExhaustedError: if no memory is available within *max_block_ms*.
        :raises KafkaError: if the producer was closed meanwhile.
        """
        queue = self._queue(topic_partition)
        memory = Memory()
        opened: list[ProducerBatch] = []
        try:
            self._allocate(memory, HEADER_BYTES + len(rows.records), max_block_ms)
            with queue.lock:
                self.check_open()
                if queue.batches:
                    queue.batches[-1].close_for_appends()
                batch = self._new_batch(topic_partition, memory)
                opened.append(batch)
                batch.append_encoded(*rows)
                self._add_batch(queue, batch)
                needs_sender = self.tells_of_new_batches or len(queue.batches) > 1 or batch.is_full
        except BaseException:
            self._give_up(queue, memory, opened)
            raise
        return needs_sender

    # --- queues and batches (calling threads) ------------------------------------------------------------------------

    def _queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The partition's queue, which is created at the first call and never removed."""
        found = self._queues.get(topic_partition)
        if found is None:
            found = self._queues.setdefault(topic_partition, PartitionQueue(topic_partition))
            self._queues_by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = found
        return found

    def _allocate(self, memory: Memory, size: int, max_block_ms: int) -> None:
        """Allocate *memory* for a batch that has *size* bytes now.

        :raises BufferExhaustedError: if no memory is available within *max_block_ms*.
        """
        capacity = self._memory.capacity_for(size)
        if not self._pool.try_allocate(memory, capacity):
            self._calls.check_may_wait(APPEND)
            self._pool.allocate(memory, capacity, max_block_ms)

    def _new_batch(self, topic_partition: TopicPartition, memory: Memory) -> ProducerBatch:
        now_ms = self._clock.monotonic_ms()
        return ProducerBatch(topic_partition, memory, self._memory, self._settings.compression, self._clock, now_ms)

    def _add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
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

    def _give_up(self, queue: PartitionQueue, memory: Memory, opened: Sequence[ProducerBatch]) -> None:
        """Clean up after an exception while a batch was *opened*: deallocate *memory*, unless the batch is queued."""
        with queue.lock:
            # A batch that is queued, and may be in flight or done already, owns its memory.
            if not any(batch in self._incomplete or batch.is_done for batch in opened):
                self._pool.deallocate(memory)
        release_left(queue.lock)

    # --- ready and drained (sender thread) ---------------------------------------------------------------------------

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Which nodes have batches to send, when to check again, and which topics have batches but no known leader."""
        urgent = self._is_urgent
        ready: dict[int, Node] = {}
        delay_ms = FOREVER_MS
        unknown_leader_topics: set[str] = set()
        for topic_partition, queue in tuple(self._queues.items()):
            if not queue.batches:
                # Most queues are empty most of the time. After an append to an empty queue the sender looks again.
                continue
            with queue.lock:
                first = queue.batches[0]
                is_full = first.is_full
            info = cluster.partition(topic_partition)
            if info is None or info.leader is None:
                unknown_leader_topics.add(topic_partition.topic)
            elif topic_partition not in self._muted:
                left_ms = self._time_left_ms(first, info.leader_epoch, is_full or urgent, now_ms)
                if left_ms == 0:
                    ready[info.leader.id] = info.leader
                elif left_ms < delay_ms:
                    delay_ms = left_ms
        return ReadyCheckResult(set(ready.values()), delay_ms, unknown_leader_topics)

    @property
    def _is_urgent(self) -> bool:
        """Whether batches are sent before they are full or have lingered."""
        if self._pool.queued > 0 or self._closed or self._calls.has(FLUSH):
            return True
        return self._transactions is not None and self._transactions.is_completing

    def _time_left_ms(self, first: ProducerBatch, leader_epoch: int | None, sendable: bool, now_ms: int) -> int:
        """How long *first* must still wait. The backoff has priority over every reason to send, except a new leader."""
        backoff_ms = self._backoff_left_ms(first, leader_epoch, now_ms)
        if backoff_ms > 0 or sendable:
            return backoff_ms
        return max(first.last_attempt_ms + self._settings.linger_ms - now_ms, 0)

    def _backoff_left_ms(self, batch: ProducerBatch, leader_epoch: int | None, now_ms: int) -> int:
        """How long a failed batch must still wait before its retry. A retry to a newer leader does not wait."""
        if batch.attempts == 0:
            return 0
        if leader_epoch is not None and batch.leader_epoch is not None and leader_epoch > batch.leader_epoch:
            return 0
        return max(batch.retry_backoff_ms - (now_ms - batch.last_attempt_ms), 0)

    def drain(
        self, cluster: Cluster, nodes: Collection[Node], max_request_bytes: int, now_ms: int
    ) -> dict[int, list[ProducerBatch]]:
        """Drain what fits into one request per node: at most one batch of each partition, closed for sending."""
        return {node.id: self._drain_node(cluster, node, max_request_bytes, now_ms) for node in nodes}

    def _drain_node(self, cluster: Cluster, node: Node, max_request_bytes: int, now_ms: int) -> list[ProducerBatch]:
        partitions = cluster.partitions_for_node(node.id)
        drained: list[ProducerBatch] = []
        if not partitions:
            return drained
        size = 0
        start = self._drain_index.get(node.id, 0)
        for step in range(len(partitions)):
            index = (start + step) % len(partitions)
            topic_partition = partitions[index]
            queue = self._queues.get(topic_partition)
            if queue is None or not queue.batches or topic_partition in self._muted:
                continue
            info = cluster.partition(topic_partition)
            leader_epoch = None if info is None else info.leader_epoch
            batch = self._take_first(queue, leader_epoch, now_ms)
            if batch is None:
                continue
            if drained and size + batch.wire_bytes > max_request_bytes:
                # The next drain begins with this partition, so that smaller batches before it do not starve it.
                self._drain_index[node.id] = index
                with queue.lock:
                    queue.batches.appendleft(batch)
                break
            if self._sequences is not None:
                self._sequences.assign_sequence(batch)
            size += batch.wire_bytes
            batch.drained_ms = now_ms
            batch.leader_epoch = leader_epoch
            drained.append(batch)
        return drained

    def _take_first(self, queue: PartitionQueue, leader_epoch: int | None, now_ms: int) -> ProducerBatch | None:
        """The oldest batch of *queue*, removed and closed; None if it must stay, or if it could not be closed."""
        with queue.lock:
            if not queue.batches or not self._may_leave(queue.batches[0], leader_epoch, now_ms):
                return None
            batch = queue.batches.popleft()
        return batch if self._close(batch) else None

    def _may_leave(self, first: ProducerBatch, leader_epoch: int | None, now_ms: int) -> bool:
        if self._backoff_left_ms(first, leader_epoch, now_ms) > 0:
            return False
        if self._transactions is not None and not self._transactions.is_send_allowed(first.topic_partition):
            return False
        return self._sequences is None or not self._sequences.must_wait(first)

    def _close(self, batch: ProducerBatch) -> bool:
        """Close *batch*, which determines its size. If that fails the batch fails, without a gap in the sequences."""
        try:
            batch.close()
        except Exception as error:
            _log.exception("a batch of %s could not be closed", batch.topic_partition)
            reason = KafkaError(
                f"could not build a batch of {batch.record_count} record(s) for {batch.topic_partition}: {error!r}"
            )
            reason.__cause__ = error
            if self._transactions is not None:
                self._transactions.batch_failed(reason)
            batch.done(NO_OFFSET, NO_TIMESTAMP, reason)
            self.deallocate(batch)
            return False
        return True

    def mute(self, topic_partition: TopicPartition) -> None:
        """Do not drain the partition until its batch in flight is answered."""
        self._muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        self._muted.discard(topic_partition)

    # --- expired, and put back (sender thread) -----------------------------------------------------------------------

    def expired_batches(self, now_ms: int) -> tuple[list[ProducerBatch], int]:
        """Remove the batches whose delivery time-out has passed from their queues: (those batches, when the next one
        expires).

        Checks every queue, so it should only be called when a batch may have expired.
        """
        expired: list[ProducerBatch] = []
        next_expiry_ms = FOREVER_MS
        for queue in tuple(self._queues.values()):
            if not queue.batches:
                continue
            with queue.lock:
                while queue.batches:
                    first = queue.batches[0]
                    if not first.has_reached_delivery_timeout(self._settings.delivery_timeout_ms, now_ms):
                        next_expiry_ms = min(next_expiry_ms, first.created_ms + self._settings.delivery_timeout_ms)
                        break
                    expired.append(queue.batches.popleft())
        return expired, next_expiry_ms

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Put a failed batch back into its queue, before batches never sent, in the order of sequences or of age."""
        batch.reenqueued(now_ms)
        batch.retry_backoff_ms = self._settings.retry_backoff.backoff_ms(batch.attempts - 1)
        queue = self._queue(batch.topic_partition)
        with queue.lock:
            queue.put_back(batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Replace a batch that a broker found too large by its two halves; returns how many pieces.

        The pieces have no attempts, keep the batch's age, and take over its memory and its sequences.
        """
        pieces = batch.split()
        if self._sequences is not None:
            self._sequences.split(batch, pieces)
        self._replace(batch, pieces)
        queue = self._queue(batch.topic_partition)
        with queue.lock:
            for piece in reversed(pieces):
                queue.put_back(piece)
        return len(pieces)

    def queue_lengths(self, topic: str) -> dict[int, int]:
        """The number of batches in each queue of *topic*, by partition. They are read without the locks, because a
        slightly outdated number does no harm.
        """
        queues = self._queues_by_topic.get(topic, {})
        return {partition: len(queue.batches) for partition, queue in tuple(queues.items())}

    # --- the batches that have no outcome yet ------------------------------------------------------------------------

    @property
    def has_incomplete(self) -> bool:
        """Whether any batch is queued or in flight."""
        return bool(self._incomplete)

    @property
    def has_incomplete_or_appends(self) -> bool:
        """Whether any batch is queued or in flight, or an append is in progress that may add one."""
        # The order matters: an append ends after it has added its batch.
        return self._calls.has(APPEND) or self.has_incomplete

    def _replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Replace *batch* by *pieces*, which hold its records; they take over its memory."""
        # The order matters: a thread that reads in between waits for one batch too many, never for one too few.
        self._incomplete.update(dict.fromkeys(pieces))
        self._incomplete.pop(batch, None)
        batch.forget_wire()
        self._pool.exchange(batch.memory, [piece.memory for piece in pieces])

    def deallocate(self, batch: ProducerBatch) -> None:
        """Remove a batch that is done, and deallocate its memory unless an unanswered request still refers to it.

        In that case the buffer is kept, and the caller calls again when the request has been answered. So bytes that
        are being sent are never overwritten with another partition's records.
        """
        self._incomplete.pop(batch, None)
        if batch.unanswered_sends == 0:
            batch.forget_wire()
            self._pool.deallocate(batch.memory)

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
        # From the last one on: when its outcome is known, those before it mostly have theirs, too.
        for batch in reversed(self._incomplete_snapshot()):
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
        pause = threading.Condition()
        while self._calls.has(APPEND):
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
            queue = self._queue(batch.topic_partition)
            with queue.lock:
                if batch in queue.batches:
                    queue.batches.remove(batch)
            self._abort(batch, reason_for(batch))
        return aborted

    def abort_undrained(self, reason: Exception) -> list[ProducerBatch]:
        """Fail the batches that have no sequence yet, which were never sent, and return them."""
        aborted: list[ProducerBatch] = []
        for batch in self._incomplete_snapshot():
            queue = self._queue(batch.topic_partition)
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
