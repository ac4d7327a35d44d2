"""BuiltInPartitioner: chooses partitions when no partitioner.class is set (KIP-794).

Several calling threads may use it at once; the sender thread updates the queue lengths. Records with a key go to the
same partition as with Kafka's Java client. Records without a key stick to one partition for about ``batch.size`` bytes,
then switch: to any partition with equal probability, or preferably to partitions with short queues. It never waits. Its
byte counts are estimates when threads call at once; they only decide when to switch. The sender thread reports the load
of the brokers in every pass: queue lengths, and nodes that accept nothing.

Source: KIP-794, apache/kafka ``BuiltInPartitioner``.
"""

from __future__ import annotations

import itertools
import random
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.locks import Lock
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.partition_queues import PartitionQueues
from kafka_sink.producer.plugins.partitioner import cut_turns, key_partitions, partition_count
from kafka_sink.records.layout import HEADER_BYTES


class _Turn:
    """The current partition of the records without a key, and the bytes that it received."""

    __slots__ = ("partition", "size_bytes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.size_bytes = 0


class BuiltInPartitioner:
    """Strictly uniform sticky partitioning that adapts to the queue lengths.

    :param batch_size_bytes: about how many bytes of records without a key go to one partition before it switches.
    :param ignore_keys: treat records with a key like records without one (``partitioner.ignore.keys``).
    """

    def __init__(self, batch_size_bytes: int, *, ignore_keys: bool = False, rng: random.Random | None = None) -> None:
        self._turn_bytes = max(batch_size_bytes - HEADER_BYTES, 1)
        self.ignore_keys = ignore_keys
        self._rng = rng or random.Random()
        self._lock = threading.RLock()
        self._turns: dict[str, _Turn] = {}
        #: Topic → partitions, and the running sums of their weights.
        self._loads: dict[str, tuple[Sequence[int], list[int]]] = {}

    @property
    def lock(self) -> Lock:
        """The lock under which a turn begins."""
        return self._lock

    # --- single records ----------------------------------------------------------------------------------------------

    def sticky_partition(self, topic: str, cluster: Cluster) -> int:
        """The partition of one record whose key is not hashed; the caller reports its append with :meth:`appended`."""
        return self._current(topic, cluster).partition

    def appended(self, topic: str, partition: int, size_bytes: int, cluster: Cluster) -> None:
        """Count *size_bytes* of a record without a key. After the bytes of two batches the partition switches in any
        case."""
        turn = self._turns[topic]
        if turn.partition == partition:
            turn.size_bytes += size_bytes
            if turn.size_bytes >= 2 * self._turn_bytes:
                self._next_turn(topic, cluster, turn)

    def needs_new_batch(self, topic: str, partition: int, size_bytes: int, cluster: Cluster) -> None:
        """Switch the partition if it has received its bytes, because a record of *size_bytes* without a key would open
        a batch.

        Switching only then avoids leaving half-filled batches behind.
        """
        turn = self._turns[topic]
        if turn.partition == partition and turn.size_bytes and turn.size_bytes + size_bytes > self._turn_bytes:
            self._next_turn(topic, cluster, turn)

    # --- columns -----------------------------------------------------------------------------------------------------

    def partition_rows(
        self, topic: str, chunk: ColumnChunk, sizes: NDArray[np.int64], cluster: Cluster
    ) -> NDArray[np.int32]:
        """The partition of every row of *chunk*; *sizes* int64[rows] are the bytes of its key, value and headers."""
        key = chunk.key
        if self.ignore_keys or key is None or key.null_count == chunk.num_rows:
            return self._stick(topic, sizes, cluster)
        partitions = key_partitions(key, partition_count(topic, cluster))
        nulls = key.null_mask
        # A slice of a column may have a mask although none of its rows is null.
        if nulls is not None and nulls.any():
            partitions[nulls] = self._stick(topic, sizes[nulls], cluster)
        return partitions

    def _stick(self, topic: str, sizes: NDArray[np.int64], cluster: Cluster) -> NDArray[np.int32]:
        turn = self._current(topic, cluster)
        lengths, filled = cut_turns(sizes, self._turn_bytes, turn.size_bytes)
        choices = [turn.partition]
        for _ in lengths[1:]:
            turn = self._next_turn(topic, cluster, turn)
            choices.append(turn.partition)
        turn.size_bytes = filled
        return np.repeat(np.array(choices, dtype=np.int32), lengths)

    # --- turns -------------------------------------------------------------------------------------------------------

    def _current(self, topic: str, cluster: Cluster) -> _Turn:
        """The current turn; a new one if its partition has no leader any more."""
        turn = self._turns.get(topic)
        if turn is not None and cluster.leader_for(TopicPartition(topic, turn.partition)) is not None:
            return turn
        return self._next_turn(topic, cluster, turn)

    def _next_turn(self, topic: str, cluster: Cluster, ended: _Turn | None) -> _Turn:
        """Begin the turn after *ended*; if another thread has begun it already, return that one."""
        with self._lock:
            turn = self._turns.get(topic)
            if turn is None or turn is ended:
                turn = self._turns[topic] = _Turn(self._draw(topic, cluster))
            return turn

    def _draw(self, topic: str, cluster: Cluster) -> int:
        loads = self._loads.get(topic)
        if loads is not None:
            partitions, ends = loads
            return partitions[bisect_right(ends, self._rng.randrange(ends[-1]))]
        available = cluster.available_partitions(topic)
        if available:
            return self._rng.choice(available).partition
        return self._rng.randrange(partition_count(topic, cluster))

    # --- loads (sender thread) ---------------------------------------------------------------------------------------

    @property
    def topics(self) -> Iterable[str]:
        """Topics that received records without a key."""
        return tuple(self._turns)

    def update_loads(self, topic: str, partitions: Sequence[int], lengths: Sequence[int], count: int) -> None:
        """Set the queue lengths, so that short queues are preferred: *lengths* of the queues of *partitions*, which are
        the available ones of *count* partitions.

        If all queues are equal, all partitions with a leader have the same probability again.
        """
        if not partitions or count < 2 or (len(partitions) == count and min(lengths) == max(lengths)):
            self._loads.pop(topic, None)
        else:
            longest = max(lengths) + 1
            self._loads[topic] = partitions, list(itertools.accumulate(longest - length for length in lengths))


#: How often the queue lengths are read, ms: with many partitions that takes time.
_LOADS_EVERY_MS = 10


class PartitionLoads:
    """Reports the lengths of *queues* to *partitioner*.

    :param availability_timeout_ms: partitions of a node that accepted no batch for this time are left out; 0: never.
    """

    def __init__(self, queues: PartitionQueues, partitioner: BuiltInPartitioner, availability_timeout_ms: int) -> None:
        self._queues = queues
        self._partitioner = partitioner
        self._availability_timeout_ms = availability_timeout_ms
        self._due_ms = 0
        # Node id → the last time when batches were ready for it, and the last time when it could accept them.
        self._wanted_ms: dict[int, int] = {}
        self._taken_ms: dict[int, int] = {}

    def note_node(self, node_id: int, now_ms: int, *, can_take: bool) -> None:
        """Record that batches are ready for a node, and whether it can accept them now."""
        self._wanted_ms[node_id] = now_ms
        if can_take or node_id not in self._taken_ms:
            self._taken_ms[node_id] = now_ms

    def report(self, cluster: Cluster, now_ms: int) -> None:
        """Report the queue lengths to the partitioner, so that it avoids slow partitions (KIP-794)."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + _LOADS_EVERY_MS
        for topic in self._partitioner.topics:
            lengths = self._queues.lengths(topic)
            partitions: list[int] = []
            # Until every partition has been used once, the loads of the others are unknown.
            if lengths and len(lengths) >= (cluster.partition_count(topic) or 0):
                partitions = [number for number in lengths if self._is_available(cluster, topic, number)]
            self._partitioner.update_loads(topic, partitions, [lengths[number] for number in partitions], len(lengths))

    def _is_available(self, cluster: Cluster, topic: str, partition: int) -> bool:
        leader = cluster.leader_for(TopicPartition(topic, partition))
        if leader is None:
            return False
        if self._availability_timeout_ms == 0:
            return True
        waiting_ms = self._wanted_ms.get(leader.id, 0) - self._taken_ms.get(leader.id, 0)
        return waiting_ms <= self._availability_timeout_ms
