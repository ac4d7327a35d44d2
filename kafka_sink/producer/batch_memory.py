"""BatchMemory: how much of buffer.memory a batch holds while it fills.

Appending threads ask it under their partition's lock, so it never waits. It knows the pool and nothing else.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.producer.buffer_pool import BufferPool, Memory

#: What a batch begins with where batch.size is larger.
_LEAST_CAPACITY_BYTES: Final = 16384


class BatchMemory:
    """Small batches get all of batch.size at once, as in Kafka; large ones begin small and double.

    Otherwise a thousand partitions with large batches would exhaust the memory with next to nothing in it.
    """

    def __init__(self, pool: BufferPool, batch_size_bytes: int) -> None:
        self._pool = pool
        self._batch_size_bytes = batch_size_bytes

    def capacity_for(self, size: int) -> int:
        """Bytes of memory for a batch that has *size* bytes now; exactly these if it is over batch.size."""
        if size > self._batch_size_bytes:
            return size
        return min(max(2 * size, _LEAST_CAPACITY_BYTES), self._batch_size_bytes)

    def allocate_larger(self, larger: Memory, needed: int) -> bool:
        """Fill *larger* for *needed* bytes; False when there is no memory for it now."""
        return self._pool.try_allocate(larger, self.capacity_for(needed))

    def give_back(self, memory: Memory) -> None:
        """What a batch has outgrown."""
        self._pool.deallocate(memory)
