"""A whole KafkaProducer in one thread: whenever its caller would wait, its sender takes a step."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.client.factory import create_client
from kafka_sink.producer import kafka_producer, pipeline
from kafka_sink.producer.kafka_producer import KafkaProducer
from tests.fakes.manual_clock import ManualClock
from tests.fakes.played_brokers import PlayedBrokers


class DrivingClock(ManualClock):
    """Waits are steps of *drive*, as if the other thread ran just then."""

    def __init__(self) -> None:
        super().__init__()
        self.drive: Callable[[], None] = lambda: None

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        if not self.actions:
            deadline = self.now_ms + timeout_ms
            self.actions.append(self.drive)
            return super().wait(condition, timeout_ms) and self.now_ms < deadline
        return super().wait(condition, timeout_ms)


class DrivenThread:
    """Stands for the sender's thread; joining it runs it to its end."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self.joined_ms: list[float | None] = []
        self.is_stuck = False

    def join(self, timeout: float | None = None) -> None:
        self.joined_ms.append(None if timeout is None else timeout * 1000)
        if self.is_alive() and not (self.is_stuck and timeout is not None):
            self._run()
            self._is_alive = False

    _is_alive = True

    def is_alive(self) -> bool:
        return self._is_alive


class DrivenProducer:
    """*producer* and the brokers it speaks to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, leaders: tuple[int, ...] = (1,), **properties: Any) -> None:
        self.clock = DrivingClock()
        self.brokers = PlayedBrokers(leaders, self.clock)
        self.brokers.acknowledge_everything()
        given = {"linger.ms": 0, **{name.replace("_", "."): value for name, value in properties.items()}}
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "create_client", functools.partial(create_client, selectable=self.brokers.network))
            patch.setattr(kafka_producer, "start_thread", lambda name, run, at_exit: DrivenThread(run))
            self.producer = KafkaProducer({"bootstrap.servers": "127.0.0.1:9000", **given}, clock=self.clock)
        self.clock.drive = self.producer._sender.run_once

    @property
    def thread(self) -> DrivenThread:
        thread: Any = self.producer._thread
        assert isinstance(thread, DrivenThread)
        return thread

    @property
    def memory_in_use(self) -> int:
        pool = self.producer._accumulator.pool
        return pool.total_memory - pool.available_memory
