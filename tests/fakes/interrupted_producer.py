"""A producer on a thread that is interrupted, its sender on another one, and brokers that store every record."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.threads import Loop
from kafka_sink.producer.batching.calls_in_progress import APPEND, FLUSH
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.pipeline import Pipeline
from tests.fakes.clock import FakeClock
from tests.fakes.sender_world import named, network_of
from tests.fakes.transacting import TRANSACTIONAL_ID, TransactionalBrokers

#: Real seconds after which the sender is taken to wait for something that the interrupted thread holds.
_PATIENCE_S = 30.0

#: ms of the clock that one call may take, and all of an episode.
_EPISODE_MS = 3_600_000


#: Everything that counts as a call in progress.
_CALLS = (
    *(APPEND, FLUSH, "close", "init_transactions", "send_offsets_to_transaction"),
    *("commit_transaction", "abort_transaction"),
)


class HangError(BaseException):
    """A wait without end. No subclass of Exception, so that the code under test does not catch it."""


class _SenderThread:
    """Runs the steps of the sender on a thread of its own."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        threading.Thread(target=self._loop, daemon=True).start()

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException as error:
                self._done.put(error)
            else:
                self._done.put(None)

    def run(self, work: Callable[[], object]) -> None:
        self._work.put(work)
        try:
            error = self._done.get(timeout=_PATIENCE_S)
        except queue.Empty:
            raise HangError("the sender waits for what the interrupted thread keeps") from None
        if error is not None:
            raise error

    def end(self) -> None:
        self._work.put(None)


class SteppingClock(FakeClock):
    """A clock on which every wait runs one step of the sender; apart from that, only network polls advance it."""

    def __init__(self) -> None:
        super().__init__()
        self.step: Callable[[], None] = lambda: None
        self.ends_ms = self.now_ms + _EPISODE_MS

    def monotonic_ms(self) -> int:
        if self.now_ms > self.ends_ms:
            raise HangError("an hour has passed")
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += min(ms, _EPISODE_MS)

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        deadline = self.now_ms + min(timeout_ms, FOREVER_MS)
        condition.release()
        try:
            self.step()
        finally:
            condition.acquire()
        return self.monotonic_ms() < deadline


class _Thread:
    """Stands for the sender's thread; joining it runs it to its end."""

    def __init__(self, pipeline: Pipeline, sender: _SenderThread) -> None:
        self._pipeline, self._sender, self._alive = pipeline, sender, True

    def join(self, timeout: float | None = None) -> None:
        if self._alive:
            self._sender.run(self._pipeline.run)
            self._alive = False

    def is_alive(self) -> bool:
        return self._alive


class InterruptedProducer:
    """*producer*, the records that its brokers have stored, and the reported outcome of each delivery."""

    def __init__(
        self,
        *,
        transactional: bool = False,
        interceptors: Any = None,
        brokers: TransactionalBrokers | None = None,
        **properties: Any,
    ) -> None:
        self.clock = SteppingClock()
        self.brokers = brokers or TransactionalBrokers(leaders=(1, 1, 1))
        self.network = self.brokers.attach(self.clock)
        self.sender = _SenderThread()
        given = named({"max_block_ms": 20_000, **properties})
        if transactional:
            given["transactional.id"] = TRANSACTIONAL_ID
        network = network_of(given, self.network, self.clock, self._start_thread)
        self.producer = KafkaProducer(given, network=network, interceptors=interceptors)
        self.clock.step = lambda: self.sender.run(self.pipeline.sender.run_once)
        self.acked: list[tuple[int, int, int]] = []
        self.mistaken = 0

    def _start_thread(self, name: str, loop: Loop) -> _Thread:
        assert isinstance(loop, Pipeline)
        self.pipeline = loop
        return _Thread(loop, self.sender)

    def on_delivery(self, delivery: Delivery) -> None:
        if delivery.error is None:
            self.acked.append((delivery.topic_partition.partition, delivery.base_offset, delivery.count))

    def told(self, value: bytes, delivery: Delivery) -> None:
        self.on_delivery(delivery)
        if delivery.error is None:
            stored = self.brokers.stored[delivery.topic_partition.partition][delivery.base_offset].value
            self.mistaken += stored != value

    def step(self, times: int = 1) -> None:
        """Run *times* steps of the sender."""
        for _ in range(times):
            self.clock.step()

    @property
    def memory_in_use(self) -> int:
        pool = self.pipeline.pool
        return pool.total_memory - pool.available_memory

    def check_left(self) -> None:
        """Check that no call is in progress."""
        assert not any(map(self.pipeline.calls.has, _CALLS)), "a call that has ended is still in progress"

    def check_stored(self, values: set[bytes]) -> None:
        """Check that acknowledged records are stored at the reported offsets, and that only sent records are stored."""
        for partition, records in self.brokers.stored.items():
            assert {record.value for record in records} <= values, f"partition {partition} has what nobody sent"
        assert not self.mistaken, "another record is stored where it was said to be"
        for partition, base, count in self.acked:
            assert base + count <= len(self.brokers.stored[partition]), "acknowledged, and not stored"

    def end(self) -> None:
        """Close the producer, and check that nothing is left."""
        refused = settled(lambda: self.producer.close(timeout=10))
        # Only a close that was interrupted may have given up records.
        assert refused is None or str(self.pipeline.calls.interruption).endswith("ended close half-way"), refused
        self.check_left()
        assert not self.pipeline.accumulator.has_incomplete
        self.sender.end()


def settled(call: Callable[[], object]) -> KafkaError | None:
    """Return the :class:`KafkaError` that *call* raises, if any."""
    try:
        call()
    except KafkaError as error:
        return error
    return None
