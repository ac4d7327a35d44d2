"""A producer on a thread that is interrupted, its sender on another one, and brokers that store what they are sent."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.client.factory import create_client
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError
from kafka_sink.producer import kafka_producer, pipeline
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.kafka_producer import KafkaProducer
from tests.fakes.selectable import FakeSelectable
from tests.fakes.transacting import TRANSACTIONAL_ID, TransactionalBrokers

#: Real seconds after which the sender waits for something that the interrupted thread keeps.
_PATIENCE_S = 30.0

#: ms of the clock that one call may take, and all of an episode.
_EPISODE_MS = 3_600_000


class HangError(BaseException):
    """Something waits for ever. Not an Exception: nothing in the code under test may catch it."""


class _SenderThread:
    """Steps of the sender, on one thread that is no caller's."""

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


class SteppingClock:
    """Whoever waits has the sender take one step; nothing else makes time pass but the network's polls."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.step: Callable[[], None] = lambda: None
        self.ends_ms = self.now_ms + _EPISODE_MS

    def monotonic_ms(self) -> int:
        if self.now_ms > self.ends_ms:
            raise HangError("an hour has passed")
        return self.now_ms

    def wall_ms(self) -> int:
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

    def __init__(self, run: Callable[[], None], sender: _SenderThread) -> None:
        self._run, self._sender, self._alive = run, sender, True

    def join(self, timeout: float | None = None) -> None:
        if self._alive:
            self._sender.run(self._run)
            self._alive = False

    def is_alive(self) -> bool:
        return self._alive


class InterruptedProducer:
    """*producer*, what its brokers have stored, and what was told of each delivery."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        transactional: bool = False,
        interceptors: Any = None,
        **properties: Any,
    ) -> None:
        self.clock = SteppingClock()
        self.brokers = TransactionalBrokers(leaders=(1, 1, 1))
        self.brokers.clock = self.clock  # type: ignore[assignment]
        self.network = FakeSelectable(self.clock, self.brokers)  # type: ignore[arg-type]
        self.sender = _SenderThread()
        given = {name.replace("_", "."): value for name, value in properties.items()}
        given = {"linger.ms": 0, "bootstrap.servers": "127.0.0.1:9001", "max.block.ms": 20_000, **given}
        if transactional:
            given["transactional.id"] = TRANSACTIONAL_ID
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "create_client", functools.partial(create_client, selectable=self.network))
            patch.setattr(kafka_producer, "start_thread", lambda name, run, at_exit: _Thread(run, self.sender))
            self.producer = KafkaProducer(given, clock=self.clock, interceptors=interceptors)
        self.clock.step = lambda: self.sender.run(self.producer._sender.run_once)
        self.acked: list[tuple[int, int, int]] = []
        self.mistaken = 0

    def on_delivery(self, delivery: Delivery) -> None:
        if delivery.error is None:
            self.acked.append((delivery.topic_partition.partition, delivery.base_offset, delivery.count))

    def told(self, value: bytes, delivery: Delivery) -> None:
        self.on_delivery(delivery)
        if delivery.error is None:
            stored = self.brokers.stored[delivery.topic_partition.partition][delivery.base_offset].value
            self.mistaken += stored != value

    def step(self, times: int = 1) -> None:
        """Let the sender go on for a while."""
        for _ in range(times):
            self.clock.step()

    @property
    def memory_in_use(self) -> int:
        pool = self.producer._accumulator.pool
        return pool.total_memory - pool.available_memory

    def check_owners(self) -> None:
        """No buffer belongs to two batches, or to a batch and the pool; nobody holds a lock."""
        accumulator = self.producer._accumulator
        batches = [batch for each in accumulator.queues.values() for batch in each.batches]
        buffers = [id(batch.memory.buffer) for batch in batches] + [id(buffer) for buffer in accumulator.pool._free]
        assert len(set(buffers)) == len(buffers), "a buffer has two owners"
        assert all(batch in accumulator._incomplete for batch in batches), "a batch that nobody waits for"
        assert not accumulator.calls._calls, "a call that has ended is still in progress"
        assert not accumulator.pool._waiters, "somebody who has left still waits for memory"

    def check_stored(self, values: set[bytes]) -> None:
        """What was acknowledged is stored where it was said to be, and nothing is stored that was never sent."""
        for partition, records in self.brokers.stored.items():
            assert {record.value for record in records} <= values, f"partition {partition} has what nobody sent"
        assert not self.mistaken, "another record is stored where it was said to be"
        for partition, base, count in self.acked:
            assert base + count <= len(self.brokers.stored[partition]), "acknowledged, and not stored"

    def end(self) -> None:
        """Close, and see that nothing is left."""
        self.producer.close(10_000)
        self.check_owners()
        assert self.memory_in_use == 0, f"{self.memory_in_use} bytes never came back"
        assert not self.producer._accumulator.has_incomplete
        self.sender.end()


def settled(call: Callable[[], object]) -> KafkaError | None:
    """What *call* raises, where that is an error of ours."""
    try:
        call()
    except KafkaError as error:
        return error
    return None
