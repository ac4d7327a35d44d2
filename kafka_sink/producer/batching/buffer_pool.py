"""BufferPool: the hard cap on the memory that unsent and unacknowledged batches hold.

Appending threads allocate from it and may wait; the sender thread gives back. Buffers of exactly *poolable_size* are
kept and reused, any other size is made and dropped. It never hands out more than *total_memory* and never favours a
late comer over the head of its queue of waiters.

What is out is noted by the :class:`Memory` that it was given to, in one step each; the figure of what is available
only follows. So a KeyboardInterrupt between any two lines of an allocation loses and doubles nothing: what the ledger
says holds, and the figure is made anew.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import BufferExhaustedError, KafkaError
from kafka_sink.common.locks import release_left
from kafka_sink.common.metrics import Sampled

#: What a batch begins with where batch.size is larger.
_LEAST_CAPACITY_BYTES: Final = 16384


class Memory:
    """Some of a pool's memory, or none yet. It is made before anything is taken, so that there is an owner at any time;
    batches pass it on as a whole.
    """

    __slots__ = ("buffer",)

    def __init__(self, buffer: bytearray | None = None) -> None:
        #: None before it is allocated and after it was given back.
        self.buffer = buffer

    def __len__(self) -> int:
        return 0 if self.buffer is None else len(self.buffer)

    def view(self) -> memoryview:
        """:raises RuntimeError: there is none."""
        if self.buffer is None:
            raise RuntimeError("this memory was given back")
        return memoryview(self.buffer)


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
        self._lock = threading.RLock()
        self._free: deque[bytearray] = deque()
        # The ledger: bytes by what holds them, or gathers them while it waits.
        self._out: dict[Memory, int] = {}
        # In the order in which they came.
        self._waiters: dict[Memory, threading.Condition] = {}
        self._non_pooled_available = total_memory
        self._closed = False
        self._option_prefix = option_prefix
        #: Each wait for memory, ms, and each that was in vain.
        self.waits_ms = Sampled(samples, window_ms)
        self.exhausted = Sampled(samples, window_ms)

    def allocate(self, memory: Memory, size: int, max_block_ms: int) -> None:
        """Fill *memory* with *size* bytes (contents undefined), waiting at most *max_block_ms* for them.

        Whatever is raised, *memory* has nothing.

        :raises ValueError: *size* is more than the pool will ever have.
        :raises BufferExhaustedError: memory stayed short for *max_block_ms*.
        :raises KafkaError: the pool was closed.
        """
        if size > self.total_memory:
            raise ValueError(f"cannot allocate {size} bytes: buffer.memory is {self.total_memory} bytes")
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
        """Like :meth:`allocate`, but False instead of a wait, also while others wait: they come first."""
        try:
            with self._lock:
                # No return in here: CPython 3.11 puts a NOP behind one that is conditional, which no handler covers.
                is_taken = not self._closed and not self._waiters and self._take(memory, size)
            if is_taken:
                self._make(memory, size)
        except BaseException:
            self._undo(memory)
            raise
        return is_taken

    def _take(self, memory: Memory, size: int) -> bool:
        """Take *size* bytes if they are there, lock held; a buffer for them may have to be made."""
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
        # Outside the lock: it takes time. If the machine has no memory, what was taken goes back.
        if memory.buffer is None:
            memory.buffer = bytearray(size)

    def _undo(self, memory: Memory) -> None:
        """An exception appeared somewhere: *memory* gets nothing, waits no more, and all else is as the ledger says."""
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
            f"no {size} bytes of memory came free within {max_block_ms} ms: {prefix}buffer.memory "
            f"({self.total_memory} bytes) is full of batches that the brokers have not acknowledged; "
            f"look at the brokers' health, or raise {prefix}buffer.memory or {prefix}max.block.ms"
        )

    def _wait_for(self, memory: Memory, size: int, max_block_ms: int) -> None:
        """Gather *size* bytes as others give back, lock held: a pooled buffer, or the right to make one."""
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
                    self.exhausted.record(1, self._clock.monotonic_ms())
                    raise BufferExhaustedError(self._exhausted_text(size, max_block_ms))
                if self._gather(memory, size):
                    break
        finally:
            now_ms = self._clock.monotonic_ms()
            self.waits_ms.record(now_ms - started, now_ms)
        del self._waiters[memory]
        if self._available() > 0:
            self._signal_first()

    def _gather(self, memory: Memory, size: int) -> bool:
        """Take what is there of the *size* bytes that *memory* waits for; True when it has all of them."""
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
        """Take back what *memory* has and wake the first waiter. Nothing happens where it has nothing (any more)."""
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
        """Take *memory* back and account for *pieces* instead, which its holder made to replace it.

        Never waits: the little that the new ones are larger is owed by whoever asks next.
        """
        with self._lock:
            self._non_pooled_available += self._out.pop(memory, 0)
            memory.buffer = None
            for piece in pieces:
                self._out[piece] = len(piece)
                self._non_pooled_available -= len(piece)
            if self._available() > 0:
                self._signal_first()

    def close(self) -> None:
        """Refuse further allocations and wake every waiter with an error."""
        try:
            with self._lock:
                for waiter in self._waiters.values():
                    waiter.notify()
                # Last, for what a loop ends with: CPython 3.11 puts a NOP there that no handler covers.
                self._closed = True
        except BaseException:
            release_left(self._lock)
            raise

    @property
    def available_memory(self) -> int:
        """Bytes not in use, kept buffers included."""
        # Without the lock: a figure that is a little old does no harm.
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
            next(iter(self._waiters.values())).notify()

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaError("producer closed while allocating memory")


class BatchMemory:
    """How much of buffer.memory a batch holds while it fills. Appending threads ask it under the lock of their
    partition, so it never waits.

    Small batches get all of batch.size at once, as in Kafka; large ones begin small and double.

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
