"""Partitioners for ``partitioner.class``: the interface, and those that come with Kafka.

Several calling threads may use a partitioner at once. Records with a key go to the same partition as with Kafka's Java
client, so that both clients can share a topic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.columns.binary_column import BinaryColumn
from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.plugins import name_of
from kafka_sink.records.murmur2 import murmur2_array

#: What a record adds to its content in most batches: length, attributes and two deltas. If the estimate is slightly too
#: high, batches are not quite full; if it is too low, the rest of every batch is sent as a tiny batch.
_RECORD_OVERHEAD_BYTES = 7


class Partitioner:
    """Chooses partitions for records that do not name one; base class of the classes for ``partitioner.class``.

    A class that is not derived from it only needs :meth:`partition`.
    """

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Called once, before anything is sent, with the producer's properties."""

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: Cluster
    ) -> int:
        """Return the partition of one record, given its key and value before and after serialization."""
        raise NotImplementedError

    def partition_rows(
        self, topic: str, chunk: ColumnChunk, sizes: NDArray[np.int64], cluster: Cluster
    ) -> NDArray[np.int32]:
        """Return the partition of every row of *chunk*; *sizes* int64[rows] are the bytes of its key, value and
        headers.

        Calls :meth:`partition` for each row; partitioners that can compute arrays should override it.
        """
        return row_by_row(self, topic, chunk, cluster)

    def close(self) -> None:
        """Called when the producer is closed."""


class RoundRobinPartitioner(Partitioner):
    """Sends each record to the next partition that has a leader, regardless of its key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: Cluster
    ) -> int:
        return int(self._take_turns(topic, 1, cluster)[0])

    def partition_rows(
        self, topic: str, chunk: ColumnChunk, sizes: NDArray[np.int64], cluster: Cluster
    ) -> NDArray[np.int32]:
        return self._take_turns(topic, chunk.num_rows, cluster)

    def _take_turns(self, topic: str, count: int, cluster: Cluster) -> NDArray[np.int32]:
        with self._lock:
            first = self._next.get(topic, 0)
            self._next[topic] = first + count
        available = [info.partition for info in cluster.available_partitions(topic)]
        choices = np.array(available or range(partition_count(topic, cluster)), dtype=np.int32)
        return choices[(first + np.arange(count)) % len(choices)]


_JAVA: Final = "org.apache.kafka.clients.producer."

#: Of Kafka before 4.0; since 3.3 the partitioner that needs no name has its place.
FORMER_DEFAULT: Final = _JAVA + "internals.DefaultPartitioner"

BUILT_IN: Final[Mapping[str, type[Partitioner]]] = {
    "round-robin": RoundRobinPartitioner,
    _JAVA + "RoundRobinPartitioner": RoundRobinPartitioner,
}


def partition_count(topic: str, cluster: Cluster) -> int:
    count = cluster.partition_count(topic)
    if not count:
        raise RuntimeError(f"the partitions of topic {topic} must be known before one is chosen for a record")
    return count


def key_partitions(key: BinaryColumn, count: int) -> NDArray[np.int32]:
    """The partition of each row by its key, of *count* partitions, as Kafka's Java client computes it; arbitrary for
    null rows.
    """
    hashes = murmur2_array(key)
    partitions: NDArray[np.int32] = (hashes & np.int32(0x7FFFFFFF)) % np.int32(count)
    return partitions


def partitions_by_key(
    topic: str,
    chunk: ColumnChunk,
    sizes: NDArray[np.int64],
    cluster: Cluster,
    stick: Callable[[str, NDArray[np.int64], Cluster], NDArray[np.int32]],
) -> NDArray[np.int32]:
    """The partition of every row of *chunk* by its key, and what *stick* chooses for the rows without one."""
    key = chunk.key
    if key is None or key.null_count == chunk.num_rows:
        return stick(topic, sizes, cluster)
    partitions = key_partitions(key, partition_count(topic, cluster))
    nulls = key.null_mask
    # A slice of a column may have a mask although none of its rows is null.
    if nulls is not None and nulls.any():
        partitions[nulls] = stick(topic, sizes[nulls], cluster)
    return partitions


def cut_turns(sizes: NDArray[np.int64], turn_bytes: int, filled: int) -> tuple[list[int], int]:
    """Split rows into turns of at most *turn_bytes*, the first of which already has *filled* bytes.

    :returns: the number of rows of each turn, and the bytes of the last one.
    """
    ends = np.cumsum(sizes + _RECORD_OVERHEAD_BYTES)
    lengths: list[int] = []
    start = before = 0
    while True:
        end = int(np.searchsorted(ends, before + turn_bytes - filled, side="right"))
        if end == start and not filled:
            # A row that is larger than a batch gets a batch that holds only this row.
            end = start + 1
        lengths.append(end - start)
        if end >= len(sizes):
            return lengths, filled + int(ends[-1]) - before
        start, filled = end, 0
        before = int(ends[start - 1]) if start else 0


def row_by_row(partitioner: Any, topic: str, chunk: ColumnChunk, cluster: Cluster) -> NDArray[np.int32]:
    """The partition that *partitioner* chooses for each row of *chunk*, called as for a record: keys and values are
    bytes.

    :raises ValueError: if it returned something that is not a partition of *topic*.
    """
    chosen = np.empty(chunk.num_rows, dtype=np.int32)
    for row in range(chunk.num_rows):
        key = None if chunk.key is None else chunk.key.value(row)
        value = chunk.value.value(row)
        choice = partitioner.partition(topic, key, key, value, value, cluster)
        check_choice(partitioner, topic, choice, cluster)
        chosen[row] = choice
    return chosen


def check_choice(partitioner: Any, topic: str, partition: Any, cluster: Cluster) -> None:
    """:raises ValueError: if *partition*, the result of *partitioner*, is not an int or not a partition of *topic*."""
    count = cluster.partition_count(topic) or 0
    if not isinstance(partition, int | np.integer) or isinstance(partition, bool):
        raise ValueError(
            f"{name_of(partitioner)} (partitioner.class) chose {type(partition).__name__} ({partition!r:.50}) for "
            f"topic {topic}; a partitioner must return an int from 0 to {count - 1}"
        )
    if not 0 <= partition < count:
        raise ValueError(
            f"{name_of(partitioner)} (partitioner.class) chose partition {partition} of topic {topic}, which has "
            f"{count} partitions"
        )


def check_choices(partitioner: Any, topic: str, partitions: Any, rows: int) -> None:
    """:raises ValueError: if *partitions* is not one partition for each of *rows* rows, because rows would be lost."""
    if not (
        isinstance(partitions, np.ndarray)
        and partitions.shape == (rows,)
        and np.issubdtype(partitions.dtype, np.integer)
    ):
        choice = (
            f"{partitions.dtype}{list(partitions.shape)}"
            if isinstance(partitions, np.ndarray)
            else f"{partitions!r:.50}"
        )
        raise ValueError(
            f"{name_of(partitioner)} (partitioner.class) chose {choice} for {rows} rows of topic {topic}; "
            "partition_rows must return int32[rows]"
        )
