"""Numbered records, and the check that each is stored once, and in the order of its key.

One thread writes a load, partly record by record and partly as columns; the check uses records read by librdkafka.
"""

from __future__ import annotations

import collections
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk
from kafka_sink.producer.futures import Delivery
from tests.support.readback import Message

KEYS = 64


@dataclass(frozen=True)
class Verdict:
    """The faults of the records that were read back; all counts are 0 if there are none."""

    missing: int
    duplicates: int
    out_of_order: int
    foreign: int

    @property
    def is_clean(self) -> bool:
        return self == Verdict(0, 0, 0, 0)


class OrderedLoad:
    """Counts sent records and reported outcomes. :meth:`send` is for one thread; callbacks run on the producer's."""

    def __init__(self, producer: KafkaProducer, topic: str, padding: int = 60) -> None:
        self._producer = producer
        self._topic = topic
        self._padding = "." * padding
        self._next = [0] * KEYS
        self._turn = 0
        self._lock = threading.Lock()
        self.sent = 0
        self.acknowledged = 0
        self.errors: list[Exception] = []
        self._last_told: float | None = None
        self.longest_stall_s = 0.0

    def send(self, count: int) -> None:
        """Send *count* records, alternately as columns and one by one, with keys of all partitions."""
        rows = [self._row(self.sent + number) for number in range(count)]
        self.sent += count
        self._turn += 1
        with self._lock:
            # Time without records in flight is no stall.
            if self.acknowledged + len(self.errors) >= self.sent - count:
                self._last_told = time.monotonic()
        if self._turn % 2:
            chunk = ColumnChunk(
                key=BinaryColumn.from_arrow(pa.array([key for key, _ in rows])),
                value=BinaryColumn.from_arrow(pa.array([value for _, value in rows])),
            )
            self._producer.send_columns(self._topic, chunk, on_delivery=self._told)
        else:
            for key, value in rows:
                self._producer.send(ProducerRecord(self._topic, value, key), on_delivery=self._told)

    def _row(self, number: int) -> tuple[bytes, bytes]:
        key = number % KEYS
        self._next[key] += 1
        return b"key-%d" % key, f"{self._next[key] - 1} {self._padding}".encode()

    def _told(self, delivery: Delivery) -> None:
        now = time.monotonic()
        with self._lock:
            if delivery.error is None:
                self.acknowledged += delivery.count
            else:
                self.errors.extend([delivery.error] * delivery.count)
            if self._last_told is not None:
                self.longest_stall_s = max(self.longest_stall_s, now - self._last_told)
            self._last_told = now

    @property
    def outstanding(self) -> int:
        """The number of records whose outcome was not yet reported."""
        with self._lock:
            return self.sent - self.acknowledged - len(self.errors)

    def judge(self, found: Sequence[Message]) -> Verdict:
        """Compare the records that were read, in order of partition and offset, with those that were sent."""
        by_key: dict[bytes, list[int]] = collections.defaultdict(list)
        for message in found:
            by_key[message.key or b""].append(int((message.value or b"-1").split()[0]))
        missing = duplicates = out_of_order = foreign = 0
        for key in range(KEYS):
            numbers = by_key.pop(b"key-%d" % key, [])
            expected = set(range(self._next[key]))
            missing += len(expected - set(numbers))
            foreign += len(set(numbers) - expected)
            duplicates += len(numbers) - len(set(numbers))
            first_seen = list(dict.fromkeys(numbers))
            out_of_order += sum(later < earlier for earlier, later in itertools.pairwise(first_seen))
        foreign += sum(map(len, by_key.values()))
        return Verdict(missing, duplicates, out_of_order, foreign)
