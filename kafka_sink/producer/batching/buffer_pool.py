"""BufferPool: the hard limit of the memory that unsent and unacknowledged batches hold.

Appending threads allocate from the pool and may wait; the sender thread deallocates. Buffers of exactly *poolable_size*
are kept and reused; buffers of any other size are created and dropped. The pool never hands out more than
*total_memory*, and serves its waiters in order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import BufferExhaustedError, KafkaError
from kafka_sink.common.locks import Lock, is_held
from kafka_sink.common.metrics import Sampled

#: The initial capacity of a batch when batch.size is larger.
LEAST_CAPACITY_BYTES: Final = 16384

_NS_PER_MS: Final = 1_000_000


class BufferPool:
    """Bounded pool of byte buffers that serves waiters in order (apache/kafka ``BufferPool``).

    :param total_memory: bytes that may be allocated at any time (``buffer.memory``).
    :param poolable_size: size of the buffers that are kept (``batch.size``).
    :param on_wait: called under the pool's lock when a thread begins to wait. It wakes the sender, because only sending
        the batches that fill the memory frees some.
    """

    def __init__(
        self,
        total_memory: int,
        poolable_size: int,
        clock: Clock,
        on_wait: Callable[[], None],
        option_prefix: str = "",
        samples: int = 2,
        window_ms: int = 30_000,
    ) -> None:
        self.total_memory = total_memory
        self.poolable_size = poolable_size
        self._clock = clock
        self.wake_sender = on_wait
        self._lock = threading.RLock()
        self._free: deque[bytearray] = deque()
        # In order of arrival.
        self._waiters: deque[threading.Condition] = deque()
        self._non_pooled_available = total_memory
        self._closed = False
        self._option_prefix = option_prefix
        # Each wait for memory, ms, and each wait that failed.
        self._waits_ms = Sampled(samples, window_ms)
        self._exhausted = Sampled(samples, window_ms)

    @property
    def lock(self) -> Lock:
        """The lock that every step needs."""
        return self._lock

    def allocate(self, size: int, max_block_ms: int) -> bytearray:
        """Allocate *size* bytes (contents undefined), waiting at most *max_block_ms*.

        :raises ValueError: if *size* is larger than the pool.
        :raises BufferExhaustedError: if not enough memory is available within *max_block_ms*.
        :raises KafkaError: if the pool was closed.
        """
        if size > self.total_memory:
            raise ValueError(f"cannot allocate {size} bytes: buffer.memory is {self.total_memory} bytes")
        with self._lock:
            self._check_open()
            kept = self._kept(size)
            if kept is None and not self._reserve(size):
                kept = self._wait_for(size, max_block_ms)
        return self._create(size) if kept is None else kept

    def try_allocate(self, size: int) -> bytearray | None:
        """Like :meth:`allocate`, but return None instead of waiting, and also while other threads wait: they come
        first. Also return None in a signal handler that interrupted a change of the pool."""
        if is_held(self._lock):
            # The lock admits this thread again, and the interrupted change would overwrite this one.
            return None
        with self._lock:
            if self._closed or self._waiters:
                return None
            kept = self._kept(size)
            if kept is None and not self._reserve(size):
                return None
        return self._create(size) if kept is None else kept

    def _kept(self, size: int) -> bytearray | None:
        """A kept buffer of *size* bytes, lock held; None if there is none."""
        return self._free.popleft() if size == self.poolable_size and self._free else None

    def _reserve(self, size: int) -> bool:
        """Take *size* bytes if they are available, lock held. The buffer for them is created afterwards."""
        if self.available_memory < size:
            return False
        self._free_up(size)
        self._non_pooled_available -= size
        return True

    def _create(self, size: int) -> bytearray:
        # Outside the lock, because creating a buffer takes time. If the machine has no memory, the bytes are released.
        try:
            return bytearray(size)
        except MemoryError:
            with self._lock:
                self._non_pooled_available += size
                self._signal_first()
            raise

    def _wait_for(self, size: int, max_block_ms: int) -> bytearray | None:
        """Wait until others have deallocated *size* bytes, lock held: a kept buffer, or None if one can be created."""
        started = self._clock.monotonic_ms()
        deadline = started + max_block_ms
        more_memory = threading.Condition(self._lock)
        self._waiters.append(more_memory)
        gathered = 0
        try:
            self.wake_sender()
            while True:
                remaining = deadline - self._clock.monotonic_ms()
                signalled = remaining > 0 and self._clock.wait(more_memory, remaining)
                self._check_open()
                if not signalled and self._clock.monotonic_ms() >= deadline:
                    self._exhausted.record(1, self._clock.monotonic_ms())
                    memory = f"{self._option_prefix}buffer.memory"
                    raise BufferExhaustedError(
                        f"could not allocate {size} bytes within {max_block_ms} ms: {memory} ({self.total_memory} "
                        "bytes) is full of batches that the brokers have not acknowledged; check the brokers' health, "
                        f"or raise {memory} or {self._option_prefix}max.block.ms"
                    ).of_option(memory)
                kept = self._kept(size)
                if kept is not None:
                    return kept
                self._free_up(size - gathered)
                more = min(size - gathered, max(self._non_pooled_available, 0))
                self._non_pooled_available -= more
                gathered += more
                if gathered == size:
                    gathered = 0
                    return None
        finally:
            # Without the memory, or with a kept buffer: the next waiter gets these bytes.
            self._non_pooled_available += gathered
            self._waiters.remove(more_memory)
            if self.available_memory > 0:
                self._signal_first()
            now_ms = self._clock.monotonic_ms()
            self._waits_ms.record(now_ms - started, now_ms)

    def deallocate(self, buffer: bytearray) -> None:
        """Take *buffer* back, and wake the first waiter."""
        with self._lock:
            if len(buffer) == self.poolable_size:
                self._free.append(buffer)
            else:
                self._non_pooled_available += len(buffer)
            self._signal_first()

    def exchange(self, buffer: bytearray, pieces: Iterable[bytearray]) -> None:
        """Drop *buffer* and account for *pieces* instead, which its holder created to replace it.

        Never waits: if the pieces are larger, the next allocation waits for the difference.
        """
        with self._lock:
            self._non_pooled_available += len(buffer) - sum(map(len, pieces))
            if self.available_memory > 0:
                self._signal_first()

    def release_kept(self) -> None:
        """Release the buffers that are kept for later batches."""
        with self._lock:
            self._free_up(self.total_memory)

    def close(self) -> None:
        """Refuse further allocations and wake every waiter with an error."""
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.notify()

    @property
    def available_memory(self) -> int:
        """Bytes not in use, including kept buffers; read without the lock, a slightly outdated value does no harm."""
        return self._non_pooled_available + len(self._free) * self.poolable_size

    @property
    def queued(self) -> int:
        """Number of threads that wait for memory."""
        return len(self._waiters)

    def figures(self, now_ms: int) -> Iterator[tuple[str, float]]:
        """The pool's part of ``producer-metrics``: names and values."""
        exhausted, waits_ms = self._exhausted, self._waits_ms
        yield "buffer-total-bytes", self.total_memory
        yield "buffer-available-bytes", self.available_memory
        yield "buffer-exhausted-rate", exhausted.rate(now_ms)
        yield "buffer-exhausted-total", exhausted.count
        yield "waiting-threads", self.queued
        yield "bufferpool-wait-ratio", waits_ms.rate(now_ms) / 1000
        yield "bufferpool-wait-time-ns-total", waits_ms.total * _NS_PER_MS

    def _free_up(self, size: int) -> None:
        while self._free and self._non_pooled_available < size:
            self._non_pooled_available += len(self._free.pop())

    def _signal_first(self) -> None:
        if self._waiters:
            self._waiters[0].notify()

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError("producer closed while allocating memory")


class BatchMemory:
    """The share of buffer.memory that a batch holds while it fills. Appending threads call it under the lock of their
    partition, so it never waits.

    Small batches get all of batch.size at once, as in Kafka. Large batches start small and double.

    Otherwise a thousand partitions with large batches would exhaust the memory while nearly empty.
    """

    def __init__(self, pool: BufferPool, batch_size_bytes: int) -> None:
        self._pool = pool
        self.batch_size_bytes = batch_size_bytes

    def capacity_for(self, size: int) -> int:
        """Bytes of memory for a batch that has *size* bytes now; exactly *size* if that is over batch.size."""
        if size > self.batch_size_bytes:
            return size
        return min(max(2 * size, LEAST_CAPACITY_BYTES), self.batch_size_bytes)

    def limit_for(self, memory: bytearray) -> int:
        """Bytes that a batch in *memory* may grow to: batch.size, or more for a single large record."""
        return max(self.batch_size_bytes, len(memory))

    def allocate_larger(self, needed: int) -> bytearray | None:
        """Memory for *needed* bytes; None when there is none now."""
        return self._pool.try_allocate(self.capacity_for(needed))

    def give_back(self, memory: bytearray) -> None:
        """Deallocate the memory that a batch has outgrown."""
        self._pool.deallocate(memory)
