"""The producers that tasks leave for the next task of their worker, which a test can count and close."""

from __future__ import annotations

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.producer.task_producer import TaskProducer
from kafka_sink.spark.task.task_writer import KeptProducers

_ANY_AGE_MS = 10**9


class LeftProducers(KeptProducers):
    """Those of one worker."""

    def __init__(self) -> None:
        super().__init__(SYSTEM_CLOCK)
        self._left: set[TaskProducer] = set()

    def keep(self, key: bytes, producer: TaskProducer) -> None:
        self._left.add(producer)
        super().keep(key, producer)

    @property
    def usable(self) -> int:
        """How many a task could continue with."""
        return sum(producer.can_go_on(_ANY_AGE_MS) for producer in self._left)

    def close(self) -> None:
        for producer in self._left:
            producer.close(timeout=0)
