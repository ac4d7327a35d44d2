"""What this worker process knows of its clusters, from one task to the next.

Tasks of a micro-batch take milliseconds, and a quarter of them went into finding the brokers again. Used by the one
thread on which Spark runs a worker's tasks. It holds no connection, and nothing that a task could not find out by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.producer.kafka_producer import KnownCluster

#: After that a task asks anew, so that it sees new partitions as soon as if it had not been told of the old ones.
MOST_AGE_MS: Final = 30_000


class KnownClusters:
    """The newest cluster by the properties of the producer that knew it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[tuple[str, str], ...], KnownCluster] = {}

    def find(self, properties: Mapping[str, str]) -> KnownCluster | None:
        """None where there is nothing, or nothing young enough."""
        known = self._known.get(_key(properties))
        if known is None or self._clock.monotonic_ms() - known.fetched_ms > MOST_AGE_MS:
            return None
        return known

    def keep(self, properties: Mapping[str, str], known: KnownCluster | None) -> None:
        """What a task knew at its end; None after one that failed: what it knew may have been the reason."""
        if known is None:
            self._known.pop(_key(properties), None)
        else:
            self._known[_key(properties)] = known


def _key(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(properties.items()))
