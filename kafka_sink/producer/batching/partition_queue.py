"""The queue of one partition: its batches from the first append to the drain, and again before a retry.

Calling threads append to the newest batch, and the sender thread takes the oldest one and puts failed batches back.
Only the accumulator knows the queues. It holds the lock of a queue for every access, and never two of them at once.
"""

from __future__ import annotations

import threading
from collections import deque

from kafka_sink.common.model import TopicPartition
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
