"""The rows that confluent-kafka reads of each stream, compared with the batches that Spark has committed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.hosts.queries import WAYS, Query
from tests.spark.soak import Ledger

PARTITIONS: Final = 2
#: Topics are read as they grow, so old segments may be deleted to save disk space.
RETENTION: Final = {"retention_bytes": "8000000", "segment_bytes": "4000000", "file_delete_delay_ms": "1000"}


@dataclass(frozen=True, slots=True)
class Count:
    """The counts of the streams of *way*. *extra* counts rows of batches that Spark has not committed."""

    way: str
    batches: int
    rows: int
    missing: int
    twice: int
    extra: int

    def __str__(self) -> str:
        wrong = f"{self.missing:,} missing, {self.twice:,} twice, {self.extra:,} extra"
        return f"{self.way}: {self.batches:,} batches, {self.rows:,} rows, {wrong}"

    @property
    def is_exact(self) -> bool:
        return not (self.missing or self.twice or self.extra)


class Ledgers:
    """One ledger for each of *queries*, whose batches have *rows*; committed records are read from the first offset."""

    def __init__(self, bootstrap_servers: str, queries: Sequence[Query], rows: int) -> None:
        self._queries, self._rows = queries, rows
        self._ledgers = {query.topic: Ledger() for query in queries}
        self._ends = dict.fromkeys(self._ledgers, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "hosts",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                # Without this, rows that retention deleted before they were read would count as missing.
                "auto.offset.reset": "error",
                "check.crcs": True,
                "log_level": 0,
            }
        )
        topics = [TopicPartition(topic, n, OFFSET_BEGINNING) for topic in self._ledgers for n in range(PARTITIONS)]
        self._consumer.assign(topics)

    def __enter__(self) -> Ledgers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.close()

    def read(self, limit_s: float) -> int:
        """Read the rows that arrive within *limit_s*, and return their number.

        :raises RuntimeError: if rows were deleted before they were read.
        """
        found: dict[str, list[int]] = {}
        for message in self._consumer.consume(20_000, timeout=limit_s):
            error, topic, key = message.error(), message.topic(), message.key()
            if error is None:
                assert topic is not None and key is not None
                found.setdefault(topic, []).append(int(key))
            elif error.name() == "_AUTO_OFFSET_RESET":
                raise RuntimeError(f"{topic} cannot be read: {error}")
        for topic, numbers in found.items():
            self._ledgers[topic].add(numbers)
            self._ends[topic] = max(self._ends[topic], max(numbers) + 1)
        return sum(map(len, found.values()))

    def settle(self, settle_s: float, limit_s: float) -> None:
        """Read until nothing is missing and no row arrives for *settle_s*, for *limit_s* at most."""
        deadline = time.monotonic() + limit_s
        news = time.monotonic()
        while time.monotonic() < deadline and (self.missing or time.monotonic() < news + settle_s):
            if self.read(1.0):
                news = time.monotonic()

    @property
    def missing(self) -> int:
        return sum(each.missing for each in self.counts())

    def counts(self) -> list[Count]:
        """Return the counts of each way."""
        return [self._count(way, [query for query in self._queries if query.way == way]) for way in WAYS]

    def _count(self, way: str, queries: Iterable[Query]) -> Count:
        batches = missing = twice = extra = 0
        for query in queries:
            committed, ledger = query.committed, self._ledgers[query.topic]
            batches += committed
            missing += ledger.missing(committed * self._rows)
            twice += ledger.twice
            extra += max(self._ends[query.topic] - committed * self._rows, 0)
        return Count(way, batches, batches * self._rows, missing, twice, extra)
