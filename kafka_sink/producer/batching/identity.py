"""What the accumulator asks of the producer's identity: the sequences of its batches, and its open transaction.

Implemented in ``transactions``, which knows batches and not the accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.producer_batch import ProducerBatch


class Sequences(Protocol):
    """The sequences of an idempotent producer. Sender thread."""

    def must_wait(self, first: ProducerBatch) -> bool:
        """Whether the oldest batch of a partition must not be drained now."""

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assign the next sequence of its partition to a drained batch, unless it has one."""

    def split(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Replace *batch* by *pieces*, with consecutive sequences."""


class TransactionGate(Protocol):
    """The transactions of a producer with a transactional id."""

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
