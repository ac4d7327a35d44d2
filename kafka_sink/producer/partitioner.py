"""Which partition a record goes to.

Called on the sending threads, several at once. Keyed records go where Kafka's Java client sends them, so that both
kinds of producer can share a topic.
"""

from __future__ import annotations

import random
import threading
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kafka_sink.client.cluster import Cluster
from kafka_sink.records.columns import ColumnChunk
from kafka_sink.records.murmur2 import murmur2, murmur2_array, to_positive


class Partitioner(Protocol):
    """Chooses partitions for records that do not name one."""

    def partition(self, topic: str, key: bytes | None, cluster: Cluster) -> int:
        """The partition of one record."""
        ...

    def partition_rows(
        self, topic: str, chunk: ColumnChunk, sizes: NDArray[np.int64], cluster: Cluster
    ) -> NDArray[np.int32]:
        """The partition of every row of *chunk*; *sizes* are the rows' bytes."""
        ...

    def on_new_batch(self, topic: str, cluster: Cluster, previous: int) -> None:
        """A new batch is about to be opened for a record without key that had been given *previous*."""
        ...


class DefaultPartitioner:
    """Murmur2 of the key; records without key stick to one partition until its batch is full (KIP-480).

    :param batch_size_bytes: how many bytes of rows without key go to one partition before the next is chosen.
    """

    def __init__(self, batch_size_bytes: int, rng: random.Random | None = None) -> None:
        self._batch_size_bytes = max(batch_size_bytes, 1)
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._sticky: dict[str, int] = {}
        self._sticky_bytes: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, cluster: Cluster) -> int:
        if key is None:
            sticky = self._sticky.get(topic)
            return sticky if sticky is not None else self._next_partition(topic, cluster, -1)
        return to_positive(murmur2(key)) % _partition_count(topic, cluster)

    def on_new_batch(self, topic: str, cluster: Cluster, previous: int) -> None:
        self._next_partition(topic, cluster, previous)

    def partition_rows(
        self, topic: str, chunk: ColumnChunk, sizes: NDArray[np.int64], cluster: Cluster
    ) -> NDArray[np.int32]:
        key = chunk.key
        if key is None or key.null_count == chunk.num_rows:
            return self._stick(topic, sizes, cluster)
        count = _partition_count(topic, cluster)
        hashes = murmur2_array(key)
        partitions = np.asarray((hashes & np.int32(0x7FFFFFFF)) % np.int32(count), dtype=np.int32)
        nulls = key.null_mask
        if nulls is not None:
            partitions[nulls] = self._stick(topic, sizes[nulls], cluster)
        return partitions

    def _stick(self, topic: str, sizes: NDArray[np.int64], cluster: Cluster) -> NDArray[np.int32]:
        """Consecutive rows stay together until they fill a batch, then another partition is drawn."""
        with self._lock:
            carried = self._sticky_bytes.get(topic, 0)
        filled = (np.cumsum(sizes) - sizes + carried) // self._batch_size_bytes
        turns = int(filled[-1]) + 1
        current = self._sticky.get(topic)
        if current is None:
            current = self._next_partition(topic, cluster, -1)
        choices = [current]
        for _ in range(turns - 1):
            choices.append(self._next_partition(topic, cluster, choices[-1]))
        with self._lock:
            self._sticky_bytes[topic] = int(carried + sizes.sum()) - (turns - 1) * self._batch_size_bytes
        return np.array(choices, dtype=np.int32)[filled]

    def _next_partition(self, topic: str, cluster: Cluster, previous: int) -> int:
        """Move the sticky choice on from *previous*; whoever comes second finds it moved and takes what is there."""
        with self._lock:
            current = self._sticky.get(topic)
            if current is None or current == previous:
                self._sticky[topic] = self._draw(topic, cluster, current)
            return self._sticky[topic]

    def _draw(self, topic: str, cluster: Cluster, old: int | None) -> int:
        available = [info.partition for info in cluster.available_partitions(topic)]
        if not available:
            return self._rng.randrange(_partition_count(topic, cluster))
        others = [partition for partition in available if partition != old]
        return self._rng.choice(others or available)


def _partition_count(topic: str, cluster: Cluster) -> int:
    count = cluster.partition_count(topic)
    if not count:
        raise RuntimeError(f"the partitions of topic {topic} must be known before a record is given one")
    return count
