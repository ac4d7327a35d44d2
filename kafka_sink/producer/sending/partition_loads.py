"""What the built-in partitioner learns of the brokers: how long the queues are, and who takes nothing (KIP-794).

Called by the sender thread in every pass. It only looks: at the lengths of the queues without their locks, for a figure
that is a little old does no harm.
"""

from __future__ import annotations

from kafka_sink.client.cluster import Cluster
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.plugins.built_in_partitioner import BuiltInPartitioner

#: How often the lengths of the queues are looked at, ms: with many partitions that takes time.
_LOADS_EVERY_MS = 10


class PartitionLoads:
    """Tells *partitioner* of an accumulator's queues.

    :param availability_timeout_ms: partitions of a node that has taken nothing for so long are left out; 0: never.
    """

    def __init__(
        self, accumulator: RecordAccumulator, partitioner: BuiltInPartitioner, availability_timeout_ms: int
    ) -> None:
        self._accumulator = accumulator
        self._partitioner = partitioner
        self._availability_timeout_ms = availability_timeout_ms
        self._due_ms = 0
        # Node id → when it was last found with something to send, and when it last could take it.
        self._wanted_ms: dict[int, int] = {}
        self._taken_ms: dict[int, int] = {}

    def note_node(self, node_id: int, now_ms: int, *, can_take: bool) -> None:
        """There is something to send to a node, and it can or cannot take it now."""
        self._wanted_ms[node_id] = now_ms
        if can_take or node_id not in self._taken_ms:
            self._taken_ms[node_id] = now_ms

    def report(self, cluster: Cluster, now_ms: int) -> None:
        """Tell the partitioner how long the queues are, so that it can spare the slow ones (KIP-794)."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + _LOADS_EVERY_MS
        for topic in self._partitioner.topics:
            queues = self._accumulator.queues_by_topic.get(topic, {})
            partitions: list[int] = []
            # Until every partition has been used once nothing is known about the others.
            if queues and len(queues) >= (cluster.partition_count(topic) or 0):
                partitions = [number for number in tuple(queues) if self._is_available(cluster, topic, number)]
            self._partitioner.update_loads(
                topic, partitions, [len(queues[number].batches) for number in partitions], len(queues)
            )

    def _is_available(self, cluster: Cluster, topic: str, partition: int) -> bool:
        leader = cluster.leader_for(TopicPartition(topic, partition))
        if leader is None:
            return False
        if self._availability_timeout_ms == 0:
            return True
        waiting_ms = self._wanted_ms.get(leader.id, 0) - self._taken_ms.get(leader.id, 0)
        return waiting_ms <= self._availability_timeout_ms
