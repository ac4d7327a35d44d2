"""RecordAccumulator: the queues between the threads that send records and the one that talks to the brokers.

Calling threads append (:meth:`append`, :meth:`append_columns`); the sender thread asks what is ready, drains,
re-enqueues, expires and gives memory back. Each partition has a deque of batches under its own lock; no lock is ever
held while memory is awaited, columns or a batch are encoded, or a batch is compressed: of a single record only the
headers are encoded under the lock, since the batch counts every byte before it takes them. It never performs I/O and
never calls user code while holding a lock.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kafka_sink.client.cluster import Cluster
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Header, Node, TopicPartition
from kafka_sink.producer.batch_memory import BatchMemory
from kafka_sink.producer.buffer_pool import BufferPool
from kafka_sink.producer.built_in_partitioner import BuiltInPartitioner
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.producer.idempotence import IdempotenceManager
from kafka_sink.producer.producer_batch import Compression, ProducerBatch, sequence_precedes
from kafka_sink.producer.transactions import TransactionManager
from kafka_sink.records import reference
from kafka_sink.records.layout import HEADER_BYTES

_log = logging.getLogger(__name__)

#: How often the lengths of the queues are looked at for the partitioner, ms: with many partitions that takes time.
_LOADS_EVERY_MS = 10

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


@dataclass(frozen=True, slots=True)
class ReadyCheckResult:
    """Answer of :meth:`RecordAccumulator.ready`."""

    ready_nodes: set[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: set[str]


class RecordAccumulator:
    """Bounded staging area for records (apache/kafka ``RecordAccumulator``)."""

    def __init__(
        self,
        *,
        batch_size_bytes: int,
        compression: Compression,
        linger_ms: int,
        retry_backoff: ExponentialBackoff,
        delivery_timeout_ms: int,
        pool: BufferPool,
        clock: Clock,
        idempotence: IdempotenceManager | None,
        transactions: TransactionManager | None = None,
        adaptive: BuiltInPartitioner | None = None,
        availability_timeout_ms: int = 0,
    ) -> None:
        self._batch_size_bytes = batch_size_bytes
        self._compression = compression
        self._linger_ms = linger_ms
        self._retry_backoff = retry_backoff
        self._delivery_timeout_ms = delivery_timeout_ms
        self._clock = clock
        self._idempotence = idempotence
        #: None but for a producer with a transactional id.
        self._transactions = transactions
        self.pool = pool
        self.memory = BatchMemory(pool, batch_size_bytes)
        # Shared by all threads.
        self._closed = False
        self._counters = threading.Condition()
        self._flushes_in_progress = 0
        # Which threads append just now.
        self._appending: set[int] = set()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._topics: dict[str, dict[int, PartitionQueue]] = {}
        self._incomplete_lock = threading.Lock()
        # Keys only: in order, so that what a close gives up is told in the order in which it was opened.
        self._incomplete: dict[ProducerBatch, None] = {}
        # Sender thread only.
        self._muted: set[TopicPartition] = set()
        self._drain_index: dict[int, int] = {}
        self._adaptive = adaptive
        self._availability_timeout_ms = availability_timeout_ms
        self._loads_due_ms = 0
        # Node id → when it was last found with something to send, and when it last could take it.
        self._wanted_ms: dict[int, int] = {}
        self._taken_ms: dict[int, int] = {}

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
            queue = self._topics[topic][partition]
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
        found = self._queues.get(topic_partition)
        if found is None:
            found = self._queues.setdefault(topic_partition, PartitionQueue(topic_partition))
            self._topics.setdefault(topic_partition.topic, {})[topic_partition.partition] = found
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

    # --- readiness and draining (sender thread) ----------------------------------------------------------------------

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Which nodes have something to send, when to look again, and which topics have data but no known leader."""
        urgent = self.pool.queued > 0 or self._closed or self._flushes_in_progress > 0
        if self._transactions is not None:
            urgent = urgent or self._transactions.is_completing
        ready: dict[int, Node] = {}
        delay_ms = FOREVER_MS
        unknown_leader_topics: set[str] = set()
        for topic_partition, queue in tuple(self._queues.items()):
            if not queue.batches:
                # Most queues, most of the time. An append that fills one just now wakes the sender afterwards.
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

    def note_ready_node(self, node_id: int, now_ms: int, *, can_take: bool) -> None:
        """There is something to send to a node, and it can or cannot take it now."""
        self._wanted_ms[node_id] = now_ms
        if can_take or node_id not in self._taken_ms:
            self._taken_ms[node_id] = now_ms

    def report_loads(self, cluster: Cluster, now_ms: int) -> None:
        """Tell the partitioner how long the queues are, so that it can spare the slow ones (KIP-794)."""
        if self._adaptive is None or now_ms < self._loads_due_ms:
            return
        self._loads_due_ms = now_ms + _LOADS_EVERY_MS
        for topic in self._adaptive.topics:
            queues = self._topics.get(topic, {})
            partitions: list[int] = []
            # Until every partition has been used once nothing is known about the others.
            if queues and len(queues) >= (cluster.partition_count(topic) or 0):
                partitions = [number for number in tuple(queues) if self._is_available(cluster, topic, number)]
            self._adaptive.update_loads(
                topic, partitions, [len(queues[number].batches) for number in partitions], len(queues)
            )

    def _is_available(self, cluster: Cluster, topic: str, partition: int) -> bool:
        leader = cluster.leader_for(TopicPartition(topic, partition))
        if leader is None:
            return False
        if self._availability_timeout_ms == 0:
            return True
        waiting_ms = self._wanted_ms.get(leader.id, 0) - self._taken_ms.get(leader.id, 0)
        return waiting_ms <= self._availability_timeout_ms

    def _time_left_ms(self, first: ProducerBatch, leader_epoch: int | None, sendable: bool, now_ms: int) -> int:
        """How long *first* must still wait; backing off beats every reason to send, but a new leader."""
        backoff_ms = self._backoff_left_ms(first, leader_epoch, now_ms)
        if backoff_ms > 0 or sendable:
            return backoff_ms
        return max(first.last_attempt_ms + self._linger_ms - now_ms, 0)

    def _backoff_left_ms(self, batch: ProducerBatch, leader_epoch: int | None, now_ms: int) -> int:
        """How long a batch that failed must still wait before it is tried again; a newer leader is not waited for."""
        if batch.attempts == 0:
            return 0
        if leader_epoch is not None and batch.leader_epoch is not None and leader_epoch > batch.leader_epoch:
            return 0
        return max(batch.retry_backoff_ms - (now_ms - batch.last_attempt_ms), 0)

    def drain(
        self, cluster: Cluster, nodes: Collection[Node], max_request_bytes: int, now_ms: int
    ) -> dict[int, list[ProducerBatch]]:
        """Take what fits into one request per node: at most one batch of each partition, closed for the wire."""
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
            with queue.lock:
                if not queue.batches or not self._may_leave(queue.batches[0], leader_epoch, now_ms):
                    continue
                if drained and size + queue.batches[0].wire_bytes > max_request_bytes:
                    # It comes first next time, so that no partition is starved by smaller ones before it.
                    self._drain_index[node.id] = index
                    break
                batch = queue.batches.popleft()
            if self._make_sendable(batch):
                size += batch.wire_bytes
                batch.drained_ms = now_ms
                batch.leader_epoch = leader_epoch
                drained.append(batch)
        return drained

    def _may_leave(self, first: ProducerBatch, leader_epoch: int | None, now_ms: int) -> bool:
        if self._backoff_left_ms(first, leader_epoch, now_ms) > 0:
            return False
        if self._transactions is not None and not self._transactions.is_send_allowed(first.topic_partition):
            return False
        return self._idempotence is None or not self._idempotence.must_wait(first)

    def _make_sendable(self, batch: ProducerBatch) -> bool:
        """Compress *batch* and give it its sequence; one that cannot be compressed fails here, and leaves no gap."""
        try:
            batch.close()
        except Exception as error:
            _log.exception("a batch of %s could not be closed", batch.topic_partition)
            reason = KafkaError(
                f"{batch.record_count} record(s) for {batch.topic_partition} could not be made a batch: {error!r}"
            )
            reason.__cause__ = error
            if self._transactions is not None:
                self._transactions.batch_failed(reason)
            batch.done(NO_OFFSET, NO_TIMESTAMP, reason)
            self.deallocate(batch)
            return False
        if self._idempotence is not None:
            self._idempotence.assign_sequence(batch)
        return True

    def mute(self, topic_partition: TopicPartition) -> None:
        """Keep the partition back until its batch in flight is answered."""
        self._muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        self._muted.discard(topic_partition)

    # --- expiry, retry, end (sender thread) --------------------------------------------------------------------------

    def expired_batches(self, now_ms: int) -> tuple[list[ProducerBatch], int]:
        """Take the batches whose delivery time-out has passed out of their queues: (those, when the next one expires).

        Looks at every queue, so it is for when something may have expired, not for every pass.
        """
        expired: list[ProducerBatch] = []
        next_expiry_ms = FOREVER_MS
        for queue in tuple(self._queues.values()):
            if not queue.batches:
                continue
            with queue.lock:
                while queue.batches:
                    first = queue.batches[0]
                    if not first.has_reached_delivery_timeout(self._delivery_timeout_ms, now_ms):
                        next_expiry_ms = min(next_expiry_ms, first.created_ms + self._delivery_timeout_ms)
                        break
                    expired.append(queue.batches.popleft())
        return expired, next_expiry_ms

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Put a batch that failed back, before those not yet sent; with sequences, in their order."""
        batch.reenqueued(now_ms)
        batch.retry_backoff_ms = self._retry_backoff.backoff_ms(batch.attempts - 1)
        queue = self.queue(batch.topic_partition)
        with queue.lock:
            self._put_back(queue, batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Put two halves of a batch that a broker found too large in its place; returns how many pieces.

        They have spent no attempt, keep the batch's age, and take over its memory and its sequences.
        """
        pieces = batch.split()
        if self._idempotence is not None:
            self._idempotence.split(batch, pieces)
        with self._incomplete_lock:
            self._incomplete.pop(batch, None)
            self._incomplete.update(dict.fromkeys(pieces))
        buffer = batch.release_buffer()
        if buffer is not None:
            self.pool.exchange(buffer, [piece.buffer_bytes for piece in pieces])
        queue = self.queue(batch.topic_partition)
        with queue.lock:
            for piece in reversed(pieces):
                self._put_back(queue, piece)
        return len(pieces)

    def _put_back(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Before those not yet sent; with sequences in their order, else by age. The queue's lock is held."""
        position = 0
        for other in queue.batches:
            if self._stays_behind(batch, other):
                break
            position += 1
        queue.batches.insert(position, batch)

    def _stays_behind(self, batch: ProducerBatch, other: ProducerBatch) -> bool:
        """Whether *other*, which is queued, comes after *batch*, which is put back."""
        if self._idempotence is not None:
            return not other.has_sequence or sequence_precedes(batch.base_sequence, other.base_sequence)
        # The oldest stays first, or its time would run out unseen behind a younger one.
        return other.created_ms > batch.created_ms or (other.attempts == 0 and other.created_ms == batch.created_ms)

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
    def has_incomplete(self) -> bool:
        """Whether any batch is queued or in flight."""
        return bool(self._incomplete)

    @property
    def has_incomplete_or_appends(self) -> bool:
        """Whether any batch is queued or in flight, or an append is under way that may add one."""
        # In this order: an append ends after its batch is there.
        return bool(self._appending) or self.has_incomplete

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
