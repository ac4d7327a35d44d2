"""BatchDrain: selects the batches that the sender thread takes from the queues, and puts failed ones back.

Runs on the sender thread only. A partition's lock is held for one step at its queue, never while a batch is closed
(encoded and compressed). It performs no I/O.

Source: apache/kafka ``RecordAccumulator``, whose methods of the sender thread these are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Node, TopicPartition
from kafka_sink.producer.batching.partition_queues import IncompleteBatches, PartitionQueue, PartitionQueues
from kafka_sink.producer.batching.producer_batch import BatchSettings, ProducerBatch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadyCheckResult:
    """The result of :meth:`BatchDrain.ready`."""

    ready_nodes: set[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: set[str]


class Sequences(Protocol):
    """The sequences of an idempotent producer, as the drain uses them."""

    def must_wait(self, first: ProducerBatch) -> bool:
        """Whether the oldest batch of a partition must not be drained now."""

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assign the next sequence of its partition to a drained batch, unless it has one."""

    def split(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Replace *batch* by *pieces*, with consecutive sequences."""


class SendGate(Protocol):
    """The transactions of a producer with a transactional id, as the drain uses them."""

    def is_send_allowed(self, topic_partition: TopicPartition) -> bool:
        """Whether batches of the partition may be sent now."""

    def batch_failed(self, error: Exception) -> None:
        """Handle the failure of a batch."""


class BatchDrain:
    """The sender's side of the queues.

    :param is_urgent: whether batches are sent before they are full or have lingered.
    :param sequences: None for a producer that is not idempotent.
    :param transactions: None for a producer without a transactional id.
    """

    def __init__(
        self,
        settings: BatchSettings,
        queues: PartitionQueues,
        incomplete: IncompleteBatches,
        is_urgent: Callable[[], bool],
        sequences: Sequences | None = None,
        transactions: SendGate | None = None,
    ) -> None:
        self._settings = settings
        self._queues = queues
        self._incomplete = incomplete
        self._is_urgent = is_urgent
        self._sequences = sequences
        self._transactions = transactions
        self._muted: set[TopicPartition] = set()
        # Node id → index of the partition where its next drain begins.
        self._drain_index: dict[int, int] = {}

    def ready(self, cluster: Cluster, now_ms: int) -> ReadyCheckResult:
        """Which nodes have batches to send, when to check again, and which topics have batches but no known leader."""
        urgent = self._is_urgent()
        ready: dict[int, Node] = {}
        delay_ms = FOREVER_MS
        unknown_leader_topics: set[str] = set()
        for queue in self._queues.all():
            if not queue.batches:
                # Most queues are empty most of the time. After an append to an empty queue the sender checks again.
                continue
            topic_partition = queue.topic_partition
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
    def has_queued(self) -> bool:
        """Whether a batch waits in any queue."""
        return any(queue.batches for queue in self._queues.all())

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
        size = 0
        start = self._drain_index.get(node.id, 0)
        for step in range(len(partitions)):
            index = (start + step) % len(partitions)
            topic_partition = partitions[index]
            queue = self._queues.find(topic_partition)
            if queue is None or not queue.batches or topic_partition in self._muted:
                continue
            info = cluster.partition(topic_partition)
            leader_epoch = None if info is None else info.leader_epoch
            if (batch := self._take_first(queue, leader_epoch, now_ms)) is None:
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
        """The oldest batch of *queue* that can be closed, removed and closed; None if it must stay."""
        while True:
            with queue.lock:
                if not queue.batches or not self._may_leave(queue.batches[0], leader_epoch, now_ms):
                    return None
                batch = queue.batches.popleft()
            if self._close(batch):
                return batch

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
            self._incomplete.deallocate(batch)
            return False
        return True

    def mute(self, topic_partition: TopicPartition) -> None:
        """Do not drain the partition until its batch in flight is answered."""
        self._muted.add(topic_partition)

    def unmute(self, topic_partition: TopicPartition) -> None:
        self._muted.discard(topic_partition)

    def expired_batches(self, now_ms: int) -> tuple[list[ProducerBatch], int]:
        """Remove the batches whose delivery time-out has passed from their queues: (those batches, when the next one
        expires).

        Checks every queue, so it should only be called when a batch may have expired.
        """
        expired: list[ProducerBatch] = []
        next_expiry_ms = FOREVER_MS
        for queue in self._queues.all():
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
        queue = self._queues.of(batch.topic_partition)
        with queue.lock:
            queue.put_back(batch)

    def split_and_reenqueue(self, batch: ProducerBatch, most_bytes: int) -> None:
        """Replace a batch that a broker found too large by its halves, and those by theirs until none with several
        records is much larger than *most_bytes* before compression. A half that cannot be split is sent as it is.

        The pieces have no attempts, keep the batch's age, and take over its memory and its sequences.
        """
        # One half of a batch of twice that size has a header and a part of a record more.
        enough_bytes = most_bytes + most_bytes // 4
        pieces: list[ProducerBatch] = []
        whole = [batch]
        while whole:
            larger = whole.pop()
            if larger is not batch and (larger.record_count < 2 or larger.size_bytes <= enough_bytes):
                pieces.append(larger)
                continue
            try:
                halves = larger.split()
            except Exception:
                if larger is batch:
                    raise
                pieces.append(larger)
                continue
            if self._sequences is not None:
                self._sequences.split(larger, halves)
            self._incomplete.replace(larger, halves)
            whole += reversed(halves)
        queue = self._queues.of(batch.topic_partition)
        with queue.lock:
            for piece in reversed(pieces):
                queue.put_back(piece)

    def abort_batches(self, reason_for: Callable[[ProducerBatch], Exception]) -> list[ProducerBatch]:
        """Fail every batch that is queued or in flight now, and return them."""
        aborted = self._incomplete.snapshot()
        for batch in aborted:
            queue = self._queues.of(batch.topic_partition)
            with queue.lock:
                if batch in queue.batches:
                    queue.batches.remove(batch)
            self._abort(batch, reason_for(batch))
        return aborted

    def abort_undrained(self, reason: Exception) -> list[ProducerBatch]:
        """Fail the batches that have no sequence yet, which were never sent, and return them."""
        aborted: list[ProducerBatch] = []
        for batch in self._incomplete.snapshot():
            queue = self._queues.of(batch.topic_partition)
            with queue.lock:
                if batch.has_sequence or batch not in queue.batches:
                    continue
                queue.batches.remove(batch)
            self._abort(batch, reason)
            aborted.append(batch)
        return aborted

    def _abort(self, batch: ProducerBatch, reason: Exception) -> None:
        batch.abort(reason)
        self._incomplete.deallocate(batch)
