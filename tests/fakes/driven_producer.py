"""A whole KafkaProducer in one thread: whenever its caller would wait, its sender takes a step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kafka_sink.common.threads import Loop
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.task_producer import TaskProducer
from tests.fakes.brokers import PlayedBrokers
from tests.fakes.clock import FakeClock
from tests.fakes.sender_world import StandingThread, named, network_of


class DrivingClock(FakeClock):
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


class DrivenProducer:
    """*producer*, its *pipeline*, and the brokers it speaks to."""

    def __init__(self, leaders: tuple[int, ...] = (1,), **properties: Any) -> None:
        self.clock = DrivingClock()
        self.brokers = PlayedBrokers(leaders)
        self.brokers.acknowledge_everything()
        given = named(properties)
        self.network = network_of(given, self.brokers.attach(self.clock), self.clock, self._start_thread)
        self.producer = TaskProducer(producer_config.read(given), network=self.network)
        self.pipeline = self.thread.pipeline
        self.clock.drive = self.pipeline.sender.run_once

    def _start_thread(self, name: str, loop: Loop) -> StandingThread:
        self.thread = StandingThread(loop)
        return self.thread

    @property
    def memory_in_use(self) -> int:
        pool = self.pipeline.pool
        return pool.total_memory - pool.available_memory
