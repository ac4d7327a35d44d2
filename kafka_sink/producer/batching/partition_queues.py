"""The batches between the calling threads and the sender thread: the queues, one for each partition, each under its
lock; and the batches that have no outcome yet, queued or in flight, with the return of their memory.

Calling threads add batches at the end (:mod:`~kafka_sink.producer.batching.accumulator`), the sender thread takes them
from the front and puts some back (:mod:`~kafka_sink.producer.batching.batch_drain`). No thread waits while it holds a
lock. Every change of the incomplete batches is one operation on a dict, so they need no lock.

Source: apache/kafka ``RecordAccumulator`` (TopicInfo), ``IncompleteBatches``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.batching.producer_batch import ProducerBatch, sequence_precedes


class PartitionQueue:
    """The batches of one partition, oldest first; only the last may be open. Every access holds ``lock``."""

    __slots__ = ("batches", "lock", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.lock = threading.RLock()
        self.batches: deque[ProducerBatch] = deque()

    def put_back(self, batch: ProducerBatch) -> None:
        """Insert *batch* before batches that were never sent, in the order of sequences if it has one, else by age. The
        caller holds the lock."""
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


class PartitionQueues:
    """The queues by partition. A queue is created at its first use, and never removed."""

    def __init__(self) -> None:
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        #: The same queues, by topic and partition, for callers that have no :class:`TopicPartition` yet.
        self.by_topic: dict[str, dict[int, PartitionQueue]] = {}

    def of(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The partition's queue."""
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues.setdefault(topic_partition, PartitionQueue(topic_partition))
            self.by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = queue
        return queue

    def find(self, topic_partition: TopicPartition) -> PartitionQueue | None:
        """The partition's queue, if there is one."""
        return self._queues.get(topic_partition)

    def all(self) -> tuple[PartitionQueue, ...]:
        """All queues; a copy, made in one step, because other threads add queues."""
        return tuple(self._queues.values())

    def lengths(self, topic: str) -> dict[int, int]:
        """The number of batches in each queue of *topic*, by partition. They are read without the locks, because a
        slightly outdated number does no harm."""
        queues = self.by_topic.get(topic, {})
        return {partition: len(queue.batches) for partition, queue in tuple(queues.items())}


class IncompleteBatches:
    """The batches without an outcome, in the order in which they were opened; a close aborts them in this order."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        # Only the keys are used.
        self._batches: dict[ProducerBatch, None] = {}

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: ProducerBatch) -> None:
        """Add a batch that was opened."""
        self._batches[batch] = None

    def snapshot(self) -> list[ProducerBatch]:
        """A copy of the incomplete batches."""
        return list(self._batches)

    def replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Replace *batch* by *pieces*, which hold its records; they take over its memory."""
        # The order matters: a thread that reads in between waits for one batch too many, never for one too few.
        self._batches.update(dict.fromkeys(pieces))
        self._batches.pop(batch, None)
        self._pool.exchange(batch.release_memory(), [piece.memory for piece in pieces])

    def deallocate(self, batch: ProducerBatch) -> None:
        """Remove a batch that is done, and deallocate its memory unless an unanswered request still refers to it.

        In that case the buffer is kept, and the caller calls again when the request has been answered. So bytes that
        are being sent are never overwritten with another partition's records.
        """
        self._batches.pop(batch, None)
        if batch.unanswered_sends == 0:
            self._pool.deallocate(batch.release_memory())
