"""Kills a part of a job while the job writes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition


class Killer:
    """As a context manager: calls *kill* as soon as rows of a topic have arrived, until it has killed something."""

    def __init__(self, bootstrap_servers: str, topic: str, kill: Callable[[], bool]) -> None:
        self.killed = 0
        self._stopped = threading.Event()
        self._bootstrap, self._topic, self._kill = bootstrap_servers, topic, kill
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "killer", "isolation.level": "read_uncommitted"}
        )
        while not self.killed and not self._stopped.wait(0.2):
            if self._has_rows(consumer) and self._kill():
                self.killed += 1
        consumer.close()

    def _has_rows(self, consumer: Consumer) -> bool:
        partitions = consumer.list_topics(timeout=60).topics.get(self._topic)
        try:
            return any(
                consumer.get_watermark_offsets(TopicPartition(self._topic, number), timeout=60)[1]
                for number in (partitions.partitions if partitions else ())
            )
        except KafkaException:
            # Of a topic that is just created.
            return False

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
