"""BufferPool: the hard limit of the memory that unsent and unacknowledged batches hold.

Appending threads allocate from the pool and may wait; the sender thread deallocates. Buffers of exactly *poolable_size*
are kept and reused; buffers of any other size are created and dropped. The pool never hands out more than
*total_memory*, and serves its waiters in order.

A ledger records which :class:`Memory` holds how many bytes, in one step for each; the number of available bytes is
derived from it. So a KeyboardInterrupt between any two lines of an allocation neither loses nor duplicates memory: the
ledger is authoritative, and the number is computed again from it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import BufferExhaustedError, KafkaError
from kafka_sink.common.locks import is_held, is_nested, release_left
from kafka_sink.common.metrics import Sampled
from kafka_sink.producer.batching.calls_in_progress import APPEND, refuse

#: The initial capacity of a batch when batch.size is larger.
LEAST_CAPACITY_BYTES: Final = 16384

_NS_PER_MS: Final = 1_000_000


class Memory:
    """Some of a pool's memory, or none yet. It is created before anything is allocated, so that memory always has an
    owner; batches pass it on as a whole.
    """

    __slots__ = ("buffer",)

    def __init__(self, buffer: bytearray | None = None) -> None:
        #: None before the allocation and after the deallocation.
        self.buffer = buffer

    def __len__(self) -> int:
        return 0 if self.buffer is None else len(self.buffer)

    def view(self) -> memoryview:
        """:raises RuntimeError: if there is no memory."""
        if self.buffer is None:
            raise RuntimeError("this memory has been released")
        return memoryview(self.buffer)


class PoolMetrics:
    """What one pool records: each wait for memory, ms, and each wait that failed."""

    def __init__(self, samples: int = 2, window_ms: int = 30_000) -> None:
        self.waits_ms = Sampled(samples, window_ms)
        self.exhausted = Sampled(samples, window_ms)


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
        metrics: PoolMetrics | None = None,
        option_prefix: str = "",
    ) -> None:
        self.total_memory = total_memory
        self.poolable_size = poolable_size
        self._clock = clock
        self._on_wait = on_wait
        self._lock = threading.RLock()
        self._free: deque[bytearray] = deque()
        # The ledger: the bytes that each memory holds, or has gathered so far while it waits.
        self._out: dict[Memory, int] = {}
        # In order of arrival.
        self._waiters: dict[Memory, threading.Condition] = {}
        self._non_pooled_available = total_memory
        self._closed = False
        self._option_prefix = option_prefix
        self._metrics = metrics or PoolMetrics()

    def allocate(self, memory: Memory, size: int, max_block_ms: int) -> None:
        """Allocate *size* bytes (contents undefined) for *memory*, waiting at most *max_block_ms*.

        After any exception *memory* is empty.

        :raises ValueError: if *size* is larger than the pool.
        :raises BufferExhaustedError: if not enough memory is available within *max_block_ms*.
        :raises KafkaError: if the pool was closed, or if a signal handler interrupted a change of the pool.
        """
        if size > self.total_memory:
            raise ValueError(f"cannot allocate {size} bytes: buffer.memory is {self.total_memory} bytes")
        if self._is_changing_on_this_thread():
            refuse(APPEND, "call")
        try:
            with self._lock:
                self._check_open()
                if not self._take(memory, size):
                    self._wait_for(memory, size, max_block_ms)
            self._make(memory, size)
        except BaseException:
            self._undo(memory)
            raise

    def try_allocate(self, memory: Memory, size: int) -> bool:
        """Like :meth:`allocate`, but return False instead of waiting, and also while other threads wait: they come
        first. Also return False in a signal handler that interrupted a change of the pool.
        """
        if self._is_changing_on_this_thread():
            return False
        try:
            with self._lock:
                # No return statement here: CPython 3.11 puts a NOP behind a conditional return, and no exception
                # handler covers it.
                is_taken = not self._closed and not self._waiters and self._take(memory, size)
            if is_taken:
                self._make(memory, size)
        except BaseException:
            self._undo(memory)
            raise
        return is_taken

    def _is_changing_on_this_thread(self) -> bool:
        """Whether a signal handler calls the pool in the middle of a change that its own thread makes. The lock admits
        this thread again, and the interrupted change would overwrite what the handler's call changed.
        """
        if not is_held(self._lock):
            return False
        if is_nested():
            return True
        release_left(self._lock)
        return False

    def _take(self, memory: Memory, size: int) -> bool:
        """Take *size* bytes if they are available, lock held. A buffer for them may have to be created afterwards."""
        if size == self.poolable_size and self._free:
            memory.buffer = self._free.popleft()
            self._out[memory] = size
            return True
        if self._available() < size:
            return False
        self._free_up(size)
        self._out[memory] = size
        self._non_pooled_available -= size
        return True

    @staticmethod
    def _make(memory: Memory, size: int) -> None:
        # Outside the lock, because creating a buffer takes time. If the machine has no memory, the bytes are released.
        if memory.buffer is None:
            memory.buffer = bytearray(size)

    def _undo(self, memory: Memory) -> None:
        """Clean up after an exception: *memory* gets nothing and stops waiting, and all numbers are computed from the
        ledger.
        """
        with self._lock:
            self._waiters.pop(memory, None)
            self._out.pop(memory, None)
            memory.buffer = None
            kept = len(self._free) * self.poolable_size
            self._non_pooled_available = self.total_memory - sum(self._out.values()) - kept
            if self._available() > 0:
                self._signal_first()
        release_left(self._lock)

    def _exhausted_text(self, size: int, max_block_ms: int) -> str:
        prefix = self._option_prefix
        return (
            f"could not allocate {size} bytes within {max_block_ms} ms: {prefix}buffer.memory ({self.total_memory} "
            "bytes) is full of batches that the brokers have not acknowledged; check the brokers' health, or raise "
            f"{prefix}buffer.memory or {prefix}max.block.ms"
        )

    def _wait_for(self, memory: Memory, size: int, max_block_ms: int) -> None:
        """Gather *size* bytes as others deallocate, lock held: a pooled buffer, or enough bytes to create one."""
        deadline = self._clock.monotonic_ms() + max_block_ms
        started = self._clock.monotonic_ms()
        more_memory = threading.Condition(self._lock)
        self._waiters[memory] = more_memory
        try:
            self._on_wait()
            while True:
                remaining = deadline - self._clock.monotonic_ms()
                signalled = remaining > 0 and self._clock.wait(more_memory, remaining)
                self._check_open()
                if not signalled and self._clock.monotonic_ms() >= deadline:
                    self._metrics.exhausted.record(1, self._clock.monotonic_ms())
                    raise BufferExhaustedError(self._exhausted_text(size, max_block_ms))
                if self._gather(memory, size):
                    break
        finally:
            now_ms = self._clock.monotonic_ms()
            self._metrics.waits_ms.record(now_ms - started, now_ms)
        del self._waiters[memory]
        if self._available() > 0:
            self._signal_first()

    def _gather(self, memory: Memory, size: int) -> bool:
        """Take the available part of the *size* bytes that *memory* waits for; True when it has all of them."""
        gathered = self._out.get(memory, 0)
        if size == self.poolable_size and self._free:
            memory.buffer = self._free.popleft()
            self._out[memory] = size
            self._non_pooled_available += gathered
            return True
        self._free_up(size - gathered)
        got = min(size - gathered, max(self._non_pooled_available, 0))
        if got:
            self._out[memory] = gathered + got
            self._non_pooled_available -= got
        return gathered + got == size

    def deallocate(self, memory: Memory) -> None:
        """Release what *memory* holds, and wake the first waiter. Does nothing if *memory* is empty."""
        try:
            with self._lock:
                size = self._out.pop(memory, None)
                if size is None:
                    return
                buffer, memory.buffer = memory.buffer, None
                if buffer is not None and size == self.poolable_size:
                    self._free.append(buffer)
                else:
                    self._non_pooled_available += size
                self._signal_first()
        except BaseException:
            self._undo(memory)
            raise

    def exchange(self, memory: Memory, pieces: Iterable[Memory]) -> None:
        """Release *memory* and account for *pieces* instead, which its holder created to replace it.

        Never waits: if the pieces are larger, the next allocation waits for the difference.
        """
        with self._lock:
            self._non_pooled_available += self._out.pop(memory, 0)
            memory.buffer = None
            for piece in pieces:
                self._out[piece] = len(piece)
                self._non_pooled_available -= len(piece)
            if self._available() > 0:
                self._signal_first()

    def release_kept(self) -> None:
        """Release the buffers that are kept for later batches."""
        try:
            with self._lock:
                self._free_up(self.total_memory)
        except BaseException:
            release_left(self._lock)
            raise

    def close(self) -> None:
        """Refuse further allocations and wake every waiter with an error."""
        try:
            with self._lock:
                for waiter in self._waiters.values():
                    waiter.notify()
                # The last statement, because CPython 3.11 puts a NOP behind a loop, and no exception handler covers it.
                self._closed = True
        except BaseException:
            release_left(self._lock)
            raise

    @property
    def available_memory(self) -> int:
        """Bytes not in use, including kept buffers."""
        # Without the lock: a slightly outdated value does no harm.
        return self._available()

    @property
    def queued(self) -> int:
        """Number of threads that wait for memory."""
        return len(self._waiters)

    def figures(self, now_ms: int) -> Iterator[tuple[str, float]]:
        """The pool's part of ``producer-metrics``: names and values."""
        exhausted, waits_ms = self._metrics.exhausted, self._metrics.waits_ms
        yield "buffer-total-bytes", self.total_memory
        yield "buffer-available-bytes", self.available_memory
        yield "buffer-exhausted-rate", exhausted.rate(now_ms)
        yield "buffer-exhausted-total", exhausted.count
        yield "waiting-threads", self.queued
        yield "bufferpool-wait-ratio", waits_ms.rate(now_ms) / 1000
        yield "bufferpool-wait-time-ns-total", waits_ms.total * _NS_PER_MS

    def _available(self) -> int:
        return self._non_pooled_available + len(self._free) * self.poolable_size

    def _free_up(self, size: int) -> None:
        while self._free and self._non_pooled_available < size:
            self._non_pooled_available += len(self._free.pop())

    def _signal_first(self) -> None:
        if self._waiters:
            next(iter(self._waiters.values())).notify()

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

    def limit_for(self, memory: Memory) -> int:
        """Bytes that a batch in *memory* may grow to: batch.size, or more for a single large record."""
        return max(self.batch_size_bytes, len(memory))

    def allocate_larger(self, larger: Memory, needed: int) -> bool:
        """Allocate *larger* for *needed* bytes; False when there is no memory for it now."""
        return self._pool.try_allocate(larger, self.capacity_for(needed))

    def give_back(self, memory: Memory) -> None:
        """Deallocate the memory that a batch has outgrown."""
        self._pool.deallocate(memory)
