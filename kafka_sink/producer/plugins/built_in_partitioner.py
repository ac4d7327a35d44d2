"""BuiltInPartitioner: where records go when no partitioner.class is named (KIP-794).

Asked on the calling threads, several at once; told of the queues' lengths by the sender thread. Keyed records go where
Kafka's Java client sends them. Records without key stay with one partition for about ``batch.size`` bytes, then move
on: to any with equal chance, or rather to those whose queues are short. It never waits; its counts of bytes are
estimates where threads meet, and nothing but the moment of the next move depends on them.

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

from kafka_sink.client.cluster import Cluster
from kafka_sink.common.locks import leaves
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.plugins.partitioner import cut_turns, key_partitions, partition_count
from kafka_sink.records.columns import ColumnChunk
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.murmur2 import murmur2, to_positive


class _Turn:
    """A partition's turn to take the records without key, and the bytes that it was given."""

    __slots__ = ("partition", "size_bytes")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.size_bytes = 0


class _Loads:
    """Partitions and how much each should be preferred: ``ends`` are running sums of their weights."""

    __slots__ = ("ends", "partitions")

    def __init__(self, partitions: Sequence[int], lengths: Sequence[int]) -> None:
        longest = max(lengths) + 1
        self.partitions = partitions
        self.ends = list(itertools.accumulate(longest - length for length in lengths))


class BuiltInPartitioner:
    """Strictly uniform sticky partitioning, adaptive to the queues' lengths.

    :param batch_size_bytes: about how many bytes of records without key go to a partition before the next is chosen.
    :param ignore_keys: treat records with a key like those without (``partitioner.ignore.keys``).
    """

    def __init__(self, batch_size_bytes: int, *, ignore_keys: bool = False, rng: random.Random | None = None) -> None:
        self._turn_bytes = max(batch_size_bytes - HEADER_BYTES, 1)
        self.ignore_keys = ignore_keys
        self._rng = rng or random.Random()
        self._lock = threading.RLock()
        self._turns: dict[str, _Turn] = {}
        self._loads: dict[str, _Loads] = {}

    # --- single records ----------------------------------------------------------------------------------------------

    def partition(self, topic: str, key: bytes | None, cluster: Cluster) -> int:
        """The partition of one record, whose append is to be told to :meth:`appended`."""
        if key is not None and not self.ignore_keys:
            return to_positive(murmur2(key)) % partition_count(topic, cluster)
        return self._current(topic, cluster).partition

    def appended(self, topic: str, partition: int, size_bytes: int, cluster: Cluster) -> None:
        """A record without key took *size_bytes* of a batch. Two batches' worth end a turn in any case."""
        turn = self._turns[topic]
        if turn.partition == partition:
            turn.size_bytes += size_bytes
            if turn.size_bytes >= 2 * self._turn_bytes:
                self._next_turn(topic, cluster, turn)

    def needs_new_batch(self, topic: str, partition: int, size_bytes: int, cluster: Cluster) -> None:
        """A record of *size_bytes* without key would open a batch: the moment to move on, if the turn is used up.

        Moving on at no other moment keeps half-filled batches from being left behind.
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
        # A part of a column may have a mask and no null.
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
        """The turn that is on; another one when its partition has no leader any more."""
        turn = self._turns.get(topic)
        if turn is not None and cluster.leader_for(TopicPartition(topic, turn.partition)) is not None:
            return turn
        return self._next_turn(topic, cluster, turn)

    @leaves("_lock")
    def _next_turn(self, topic: str, cluster: Cluster, ended: _Turn | None) -> _Turn:
        """Begin the turn after *ended*; whoever comes second finds it begun and takes what is there."""
        with self._lock:
            turn = self._turns.get(topic)
            if turn is None or turn is ended:
                turn = self._turns[topic] = _Turn(self._draw(topic, cluster))
            return turn

    def _draw(self, topic: str, cluster: Cluster) -> int:
        loads = self._loads.get(topic)
        if loads is not None:
            return loads.partitions[bisect_right(loads.ends, self._rng.randrange(loads.ends[-1]))]
        available = cluster.available_partitions(topic)
        if available:
            return self._rng.choice(available).partition
        return self._rng.randrange(partition_count(topic, cluster))

    # --- loads (sender thread) ---------------------------------------------------------------------------------------

    @property
    def topics(self) -> Iterable[str]:
        """Topics that got records without key."""
        return tuple(self._turns)

    def update_loads(self, topic: str, partitions: Sequence[int], lengths: Sequence[int], count: int) -> None:
        """Prefer short queues from now on: *lengths* of the queues of *partitions*, the available ones of *count*.

        With nothing to choose between them, all that have a leader are equal again.
        """
        if not partitions or count < 2 or (len(partitions) == count and min(lengths) == max(lengths)):
            self._loads.pop(topic, None)
        else:
            self._loads[topic] = _Loads(partitions, lengths)
