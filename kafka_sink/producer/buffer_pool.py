"""BufferPool: the hard cap on the memory that unsent and unacknowledged batches hold.

Appending threads allocate from it and may wait; the sender thread gives back. Buffers of exactly *poolable_size* are
kept and reused, any other size is made and dropped. It never hands out more than *total_memory* and never favours a
late comer over the head of its queue of waiters.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import BufferExhaustedError, KafkaError
from kafka_sink.common.metrics import Sampled


class BufferPool:
    """Bounded pool of byte buffers, fair to waiters (apache/kafka ``BufferPool``).

    :param total_memory: bytes that may be out at any time (``buffer.memory``).
    :param poolable_size: size of the buffers worth keeping (``batch.size``).
    :param on_wait: called when a thread begins to wait, under the pool's lock: wakes the sender, which may be asleep
        although sending what fills the memory is the only way to get some back.
    """

    def __init__(
        self,
        total_memory: int,
        poolable_size: int,
        clock: Clock,
        on_wait: Callable[[], None],
        *,
        samples: int = 2,
        window_ms: int = 30_000,
        option_prefix: str = "",
    ) -> None:
        self.total_memory = total_memory
        self.poolable_size = poolable_size
        self._clock = clock
        self._on_wait = on_wait
        self._lock = threading.Lock()
        self._free: deque[bytearray] = deque()
        self._waiters: deque[threading.Condition] = deque()
        self._non_pooled_available = total_memory
        self._closed = False
        self._option_prefix = option_prefix
        #: Each wait for memory, ms, and each that was in vain.
        self.waits_ms = Sampled(samples, window_ms)
        self.exhausted = Sampled(samples, window_ms)

    def allocate(self, size: int, max_block_ms: int) -> bytearray:
        """A buffer of *size* bytes (contents undefined), waiting at most *max_block_ms* for memory.

        :raises ValueError: *size* is more than the pool will ever have.
        :raises BufferExhaustedError: memory stayed short for *max_block_ms*.
        :raises KafkaError: the pool was closed.
        """
        if size > self.total_memory:
            raise ValueError(f"cannot allocate {size} bytes: buffer.memory is {self.total_memory} bytes")
        with self._lock:
            self._check_open()
            if size == self.poolable_size and self._free:
                return self._free.popleft()
            if self._available() >= size:
                self._free_up(size)
                self._non_pooled_available -= size
                pooled = None
            else:
                pooled = self._wait_for(size, max_block_ms)
        if pooled is not None:
            return pooled
        return self._make(size)

    def try_allocate(self, size: int) -> bytearray | None:
        """Like :meth:`allocate`, but None instead of a wait, also while others wait: they come first."""
        with self._lock:
            if self._closed or self._waiters or self._available() < size:
                return None
            if size == self.poolable_size and self._free:
                return self._free.popleft()
            self._free_up(size)
            self._non_pooled_available -= size
        return self._make(size)

    def _make(self, size: int) -> bytearray:
        """Allocate outside the lock; if the machine has no memory, the reservation goes back."""
        try:
            return bytearray(size)
        except MemoryError:
            with self._lock:
                self._non_pooled_available += size
                self._signal_first()
            raise

    def _exhausted_text(self, size: int, max_block_ms: int) -> str:
        prefix = self._option_prefix
        return (
            f"no {size} bytes of memory came free within {max_block_ms} ms: {prefix}buffer.memory "
            f"({self.total_memory} bytes) is full of batches that the brokers have not acknowledged; "
            f"look at the brokers' health, or raise {prefix}buffer.memory or {prefix}max.block.ms"
        )

    def _wait_for(self, size: int, max_block_ms: int) -> bytearray | None:
        """Gather *size* bytes as others give back, lock held: a pooled buffer, or None when they are reserved."""
        accumulated = 0
        deadline = self._clock.monotonic_ms() + max_block_ms
        started = self._clock.monotonic_ms()
        more_memory = threading.Condition(self._lock)
        self._waiters.append(more_memory)
        try:
            self._on_wait()
            while accumulated < size:
                remaining = deadline - self._clock.monotonic_ms()
                signalled = remaining > 0 and self._clock.wait(more_memory, remaining)
                self._check_open()
                if not signalled and self._clock.monotonic_ms() >= deadline:
                    self.exhausted.record(1, self._clock.monotonic_ms())
                    raise BufferExhaustedError(self._exhausted_text(size, max_block_ms))
                if size == self.poolable_size and self._free:
                    return self._free.popleft()
                self._free_up(size - accumulated)
                got = min(size - accumulated, max(self._non_pooled_available, 0))
                self._non_pooled_available -= got
                accumulated += got
            accumulated = 0
            return None
        finally:
            self._non_pooled_available += accumulated
            self._waiters.remove(more_memory)
            now_ms = self._clock.monotonic_ms()
            self.waits_ms.record(now_ms - started, now_ms)
            if self._available() > 0:
                self._signal_first()

    def deallocate(self, buffer: bytearray) -> None:
        """Give *buffer* back and wake the first waiter."""
        with self._lock:
            if len(buffer) == self.poolable_size:
                self._free.append(buffer)
            else:
                self._non_pooled_available += len(buffer)
            self._signal_first()

    def exchange(self, buffer: bytearray, sizes: Iterable[int]) -> None:
        """Take *buffer* back and account for memory of *sizes* instead, which its holder made to replace it.

        Never waits: the little that the new ones are larger is owed by whoever asks next.
        """
        with self._lock:
            self._non_pooled_available += len(buffer) - sum(sizes)
            if self._available() > 0:
                self._signal_first()

    def close(self) -> None:
        """Refuse further allocations and wake every waiter with an error."""
        with self._lock:
            self._closed = True
            for waiter in self._waiters:
                waiter.notify()

    @property
    def available_memory(self) -> int:
        """Bytes not in use, kept buffers included."""
        with self._lock:
            return self._available()

    @property
    def queued(self) -> int:
        """How many threads wait for memory."""
        return len(self._waiters)

    def _available(self) -> int:
        return self._non_pooled_available + len(self._free) * self.poolable_size

    def _free_up(self, size: int) -> None:
        while self._free and self._non_pooled_available < size:
            self._non_pooled_available += len(self._free.pop())

    def _signal_first(self) -> None:
        if self._waiters:
            self._waiters[0].notify()

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError("producer closed while allocating memory")
