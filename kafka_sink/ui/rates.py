"""Records per second of partitions, from end offsets that were seen one after another.

Owned by the view of the cluster, under its lock. It asks nobody: offsets and times are given to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from kafka_sink.common.model import TopicPartition

#: Rates are those of this time; shorter ones flicker between the batches of a producer.
_WINDOW_MS: Final = 10_000


class Rates:
    """Records per second over the last ten seconds."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, deque[tuple[int, int]]] = {}

    def note(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """The partitions have the end offsets *ends* at *now_ms*."""
        for place, end in ends.items():
            seen = self._seen.setdefault(place, deque())
            if seen and end < seen[-1][1]:
                # The topic was deleted and created again.
                seen.clear()
            seen.append((now_ms, end))
            while len(seen) > 2 and seen[1][0] <= now_ms - _WINDOW_MS:
                seen.popleft()

    def keep(self, places: Iterable[TopicPartition]) -> None:
        """Forget all partitions but *places*."""
        self._seen = {place: self._seen[place] for place in places if place in self._seen}

    def per_s(self, places: Iterable[TopicPartition]) -> float | None:
        """Records per second of all *places* together; None before each was seen twice."""
        total = 0.0
        for place in places:
            seen = self._seen.get(place, deque())
            if len(seen) < 2 or seen[-1][0] == seen[0][0]:
                return None
            total += (seen[-1][1] - seen[0][1]) * 1000 / (seen[-1][0] - seen[0][0])
        return total
