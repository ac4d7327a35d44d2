"""A whole KafkaProducer in one thread: whenever its caller would wait, its sender takes a step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kafka_sink.common.threads import StartThread
from kafka_sink.producer.kafka_producer import KafkaProducer
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


def standing_thread(name: str, run: Callable[[], None], *, at_exit: Callable[[], None]) -> StandingThread:
    return StandingThread(run)


class DrivenProducer:
    """*producer* and the brokers it speaks to."""

    def __init__(
        self,
        leaders: tuple[int, ...] = (1,),
        *,
        start_thread: StartThread = standing_thread,
        **properties: Any,
    ) -> None:
        self.clock = DrivingClock()
        self.brokers = PlayedBrokers(leaders)
        self.brokers.acknowledge_everything()
        given = named(properties)
        network = network_of(given, self.brokers.attach(self.clock), self.clock, start_thread)
        self.producer = KafkaProducer(given, network=network)
        self.clock.drive = self.producer._sender.run_once

    @property
    def thread(self) -> StandingThread:
        thread = self.producer._thread
        assert isinstance(thread, StandingThread)
        return thread

    @property
    def memory_in_use(self) -> int:
        pool = self.producer._pipeline.pool
        return pool.total_memory - pool.available_memory
