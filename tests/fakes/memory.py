"""A pool's memory, taken in one expression."""

from __future__ import annotations

from kafka_sink.producer.batching.buffer_pool import BufferPool, Memory


def allocate(pool: BufferPool, size: int, max_block_ms: int) -> Memory:
    memory = Memory()
    pool.allocate(memory, size, max_block_ms)
    return memory


def try_allocate(pool: BufferPool, size: int) -> Memory | None:
    memory = Memory()
    return memory if pool.try_allocate(memory, size) else None
