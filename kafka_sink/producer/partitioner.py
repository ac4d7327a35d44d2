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
from kafka_sink.common.model import TopicPartition
from kafka_sink.records.columns import ColumnChunk
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.murmur2 import murmur2, murmur2_array, to_positive

#: No sticky choice was made yet.
_NONE = -1

#: What a record adds to its content in most batches: length, attributes and two deltas. An estimate a little too high
#: leaves a batch not quite full; one too low would send the rest of every batch as a tiny one of its own.
_RECORD_OVERHEAD_BYTES = 7


class Partitioner(Protocol):
    """Chooses partitions for records that do not name one."""

    def partition(self, topic: str, key: bytes | None, cluster: Cluster) -> int:
        """The partition of one record."""
        ...

    def partition_rows(
        self, topic: str, chunk: ColumnChunk, sizes: NDArray[np.int64], cluster: Cluster
    ) -> NDArray[np.int32]:
        """The partition of every row of *chunk*; *sizes* int64[rows] are the bytes of its key, value and headers."""
        ...

    def on_new_batch(self, topic: str, cluster: Cluster, previous: int) -> None:
        """A new batch is about to be opened for a record without key that had been given *previous*."""
        ...


class DefaultPartitioner:
    """Murmur2 of the key; records without key stick to one partition until its batch is full (KIP-480).

    A partition that has lost its leader is left for another one, as long as there is one with a leader.

    :param batch_size_bytes: how many bytes of rows without key go to one partition before the next is chosen.
    """

    def __init__(self, batch_size_bytes: int, rng: random.Random | None = None) -> None:
        self._turn_bytes = max(batch_size_bytes - HEADER_BYTES, 1)
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._sticky: dict[str, int] = {}
        self._sticky_bytes: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, cluster: Cluster) -> int:
        if key is None:
            return self._current(topic, cluster)
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
        partitions: NDArray[np.int32] = (hashes & np.int32(0x7FFFFFFF)) % np.int32(count)
        nulls = key.null_mask
        # A part of a column may have a mask and no null.
        if nulls is not None and nulls.any():
            partitions[nulls] = self._stick(topic, sizes[nulls], cluster)
        return partitions

    def _stick(self, topic: str, sizes: NDArray[np.int64], cluster: Cluster) -> NDArray[np.int32]:
        """Consecutive rows stay together as long as they fit into one batch, then another partition is drawn."""
        rows = len(sizes)
        ends = np.cumsum(sizes + _RECORD_OVERHEAD_BYTES)
        partition = self._current(topic, cluster)
        filled = self._sticky_bytes.get(topic, 0)
        choices: list[int] = []
        lengths: list[int] = []
        start = 0
        while True:
            before = int(ends[start - 1]) if start else 0
            end = int(np.searchsorted(ends, before + self._turn_bytes - filled, side="right"))
            if end == start and not filled:
                # A row that is larger than a batch has one of its own.
                end = start + 1
            choices.append(partition)
            lengths.append(end - start)
            if end >= rows:
                break
            partition = self._next_partition(topic, cluster, partition)
            start, filled = end, 0
        with self._lock:
            self._sticky_bytes[topic] = filled + int(ends[-1]) - before
        return np.repeat(np.array(choices, dtype=np.int32), lengths)

    def _current(self, topic: str, cluster: Cluster) -> int:
        """The sticky choice; another one when it has no leader any more."""
        sticky = self._sticky.get(topic, _NONE)
        if sticky != _NONE and cluster.leader_for(TopicPartition(topic, sticky)) is not None:
            return sticky
        return self._next_partition(topic, cluster, sticky)

    def _next_partition(self, topic: str, cluster: Cluster, previous: int) -> int:
        """Move the sticky choice on from *previous*; whoever comes second finds it moved and takes what is there."""
        with self._lock:
            current = self._sticky.get(topic, _NONE)
            if current == previous:
                current = self._sticky[topic] = self._draw(topic, cluster, previous)
                self._sticky_bytes[topic] = 0
            return current

    def _draw(self, topic: str, cluster: Cluster, old: int) -> int:
        available = cluster.available_partitions(topic)
        if not available:
            return self._rng.randrange(_partition_count(topic, cluster))
        drawn = self._rng.choice(available).partition
        while drawn == old and len(available) > 1:
            drawn = self._rng.choice(available).partition
        return drawn


def _partition_count(topic: str, cluster: Cluster) -> int:
    count = cluster.partition_count(topic)
    if not count:
        raise RuntimeError(f"the partitions of topic {topic} must be known before a record is given one")
    return count
