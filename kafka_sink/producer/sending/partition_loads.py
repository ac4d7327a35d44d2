"""The load of the brokers for the built-in partitioner: queue lengths, and nodes that accept nothing (KIP-794).

The sender thread calls it in every pass. It only reads.
"""

from __future__ import annotations

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.partition_queues import PartitionQueues
from kafka_sink.producer.plugins.built_in_partitioner import BuiltInPartitioner

#: How often the queue lengths are read, ms: with many partitions that takes time.
_LOADS_EVERY_MS = 10


class PartitionLoads:
    """Reports the lengths of *queues* to *partitioner*.

    :param availability_timeout_ms: partitions of a node that has accepted nothing for so long are left out; 0: never.
    """

    def __init__(self, queues: PartitionQueues, partitioner: BuiltInPartitioner, availability_timeout_ms: int) -> None:
        self._queues = queues
        self._partitioner = partitioner
        self._availability_timeout_ms = availability_timeout_ms
        self._due_ms = 0
        # Node id → when there was last something to send to it, and when it could last accept something.
        self._wanted_ms: dict[int, int] = {}
        self._taken_ms: dict[int, int] = {}

    def note_node(self, node_id: int, now_ms: int, *, can_take: bool) -> None:
        """Record that there is something to send to a node, and whether it can accept it now."""
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
