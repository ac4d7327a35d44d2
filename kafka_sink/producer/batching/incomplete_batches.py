"""The batches that have no outcome yet, queued or in flight, and the return of their memory.

Calling threads add a batch when they open it, and wait for those that are there; the sender thread takes a batch out
when it is done. Every change is one operation on a dict, so no lock is needed.

Source: apache/kafka ``IncompleteBatches``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.batching.producer_batch import ProducerBatch


class IncompleteBatches:
    """In the order in which they were opened, so that a close aborts them in this order."""

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
        """Those that are there now."""
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
