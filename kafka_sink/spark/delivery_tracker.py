"""Counts acknowledgements of one task, and how long they took.

Told by the sender thread once per batch, read by the task's thread. It never blocks the sender.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial

from kafka_sink.common.clock import Clock
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.futures import Delivery
from kafka_sink.spark.ack_times import rounded
from kafka_sink.spark.commit_message import PartitionRange


class DeliveryTracker:
    """Rows and offsets acknowledged so far, and the first failure."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.rows_acked = 0
        self.record_bytes = 0
        self.failed_rows = 0
        self.first_error: Exception | None = None
        self.ranges: dict[TopicPartition, PartitionRange] = {}
        self.ack_ms: Counter[int] = Counter()

    def handing_over(self) -> Callable[[Delivery], None]:
        """The delivery callback for the rows that are given to the producer now."""
        return partial(self._delivered, self._clock.monotonic_ms())

    def _delivered(self, since_ms: int, delivery: Delivery) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if delivery.error is not None:
                self.failed_rows += delivery.count
                if self.first_error is None:
                    self.first_error = delivery.error
                return
            self.rows_acked += delivery.count
            self.ack_ms[rounded(now_ms - since_ms)] += delivery.count
            self.record_bytes += delivery.size_bytes
            last = delivery.base_offset if delivery.base_offset < 0 else delivery.base_offset + delivery.count - 1
            part = PartitionRange(delivery.count, delivery.base_offset, last)
            known = self.ranges.get(delivery.topic_partition)
            self.ranges[delivery.topic_partition] = part if known is None else known.merge(part)
