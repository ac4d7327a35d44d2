"""The drain side of the queues: which batches may be sent, and how failed batches are put back.

Only the sender thread checks which batches are ready, drains them, mutes partitions, expires batches and puts them
back, so the state here needs no lock. The queues belong to the accumulator, and each is accessed under its own lock.
Batches are compressed outside of every lock. This module never waits and never performs I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from kafka_sink.client.cluster import Cluster
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Node, TopicPartition
from kafka_sink.producer.batching.accumulator import PartitionQueue, RecordAccumulator
from kafka_sink.producer.batching.producer_batch import ProducerBatch, sequence_precedes
from kafka_sink.producer.transactions.idempotence import IdempotenceManager
from kafka_sink.producer.transactions.manager import TransactionManager

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadyCheckResult:
    """The result of :meth:`BatchDrain.ready`."""

    ready_nodes: set[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: set[str]


class BatchDrain:
    """Takes batches out of an accumulator's queues (the sender's half of apache/kafka ``RecordAccumulator``).

    :param transactions: None for a producer without a transactional id.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        *,
        linger_ms: int,
        retry_backoff: ExponentialBackoff,
        delivery_timeout_ms: int,
        idempotence: IdempotenceManager | None,
        transactions: TransactionManager | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._linger_ms = linger_ms
        self._retry_backoff = retry_backoff
        self._delivery_timeout_ms = delivery_timeout_ms
        self._idempotence = idempotence
        self._transactions = transactions
        self._muted: set[TopicPartition] = set()
        # Node id → index of the partition where its next drain begins.
        self._drain_index: dict[int, int] = {}

    # --- ready and drained -------------------------------------------------------------------------------------------

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Which nodes have batches to send, when to check again, and which topics have batches but no known leader."""
        urgent = self._accumulator.is_urgent
        if self._transactions is not None:
            urgent = urgent or self._transactions.is_completing
        ready: dict[int, Node] = {}
        delay_ms = FOREVER_MS
        unknown_leader_topics: set[str] = set()
        for topic_partition, queue in tuple(self._accumulator.queues.items()):
            if not queue.batches:
                # Most queues are empty most of the time. An append to an empty queue wakes the sender afterwards.
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

    def _time_left_ms(self, first: ProducerBatch, leader_epoch: int | None, sendable: bool, now_ms: int) -> int:
        """How long *first* must still wait. The backoff has priority over every reason to send, except a new leader."""
        backoff_ms = self._backoff_left_ms(first, leader_epoch, now_ms)
        if backoff_ms > 0 or sendable:
            return backoff_ms
        return max(first.last_attempt_ms + self._linger_ms - now_ms, 0)

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
            queue = self._accumulator.queues.get(topic_partition)
            if queue is None or not queue.batches or topic_partition in self._muted:
                continue
            info = cluster.partition(topic_partition)
            leader_epoch = None if info is None else info.leader_epoch
            with queue.lock:
                if not queue.batches or not self._may_leave(queue.batches[0], leader_epoch, now_ms):
                    continue
                batch = queue.batches.popleft()
            if not self._close(batch):
                continue
            if drained and size + batch.wire_bytes > max_request_bytes:
                # The next drain begins with this partition, so that smaller batches before it do not starve it.
                self._drain_index[node.id] = index
                with queue.lock:
                    queue.batches.appendleft(batch)
                break
            if self._idempotence is not None:
                self._idempotence.assign_sequence(batch)
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

    def _close(self, batch: ProducerBatch) -> bool:
        """Close *batch*, which determines its size. If that fails the batch fails, without a gap in the sequences."""
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
            self._accumulator.deallocate(batch)
            return False
        return True

    def mute(self, topic_partition: TopicPartition) -> None:
        """Do not drain the partition until its batch in flight is answered."""
        self._muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        self._muted.discard(topic_partition)

    # --- expired, and put back ---------------------------------------------------------------------------------------

    def expired_batches(self, now_ms: int) -> tuple[list[ProducerBatch], int]:
        """Remove the batches whose delivery time-out has passed from their queues: (those batches, when the next one
        expires).

        Checks every queue, so it should only be called when a batch may have expired.
        """
        expired: list[ProducerBatch] = []
        next_expiry_ms = FOREVER_MS
        for queue in tuple(self._accumulator.queues.values()):
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
        """Put a failed batch back into its queue, before batches never sent, in the order of sequences or of age."""
        batch.reenqueued(now_ms)
        batch.retry_backoff_ms = self._retry_backoff.backoff_ms(batch.attempts - 1)
        queue = self._accumulator.queue(batch.topic_partition)
        with queue.lock:
            self._put_back(queue, batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Replace a batch that a broker found too large by its two halves; returns how many pieces.

        The pieces have no attempts, keep the batch's age, and take over its memory and its sequences.
        """
        pieces = batch.split()
        if self._idempotence is not None:
            self._idempotence.split(batch, pieces)
        self._accumulator.replace(batch, pieces)
        queue = self._accumulator.queue(batch.topic_partition)
        with queue.lock:
            for piece in reversed(pieces):
                self._put_back(queue, piece)
        return len(pieces)

    def _put_back(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Insert *batch* before batches that were never sent, in the order of sequences if it has one, else by age. The
        caller holds the queue's lock.
        """
        position = 0
        for other in queue.batches:
            if self._stays_behind(batch, other):
                break
            position += 1
        queue.batches.insert(position, batch)

    def _stays_behind(self, batch: ProducerBatch, other: ProducerBatch) -> bool:
        """Whether the queued batch *other* comes after *batch*, which is put back."""
        if self._idempotence is not None:
            return not other.has_sequence or sequence_precedes(batch.base_sequence, other.base_sequence)
        # The oldest batch stays first. Otherwise its time-out would pass unnoticed behind a younger batch.
        return other.created_ms > batch.created_ms or (other.attempts == 0 and other.created_ms == batch.created_ms)
