"""Fixtures of tests that run tasks without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.spark.task import task_writer
from kafka_sink.spark.task.kept_producers import KeptProducers


class LeftProducers(KeptProducers):
    """The producers that the tasks of one test leave."""

    def __init__(self) -> None:
        super().__init__(SYSTEM_CLOCK)
        self._left: list[KafkaProducer] = []

    def keep(self, key: bytes, producer: KafkaProducer) -> None:
        self._left.append(producer)
        super().keep(key, producer)

    @property
    def usable(self) -> int:
        """How many a task could continue with."""
        return sum(producer.can_go_on(1_000_000) for producer in set(self._left))

    def close(self) -> None:
        for producer in self._left:
            producer.close(0)


@pytest.fixture(autouse=True)
def left_producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeftProducers]:
    """No other test continues with them."""
    left = LeftProducers()
    monkeypatch.setattr(task_writer, "kept_producers", left)
    yield left
    left.close()
