"""The cluster as described by one metadata answer, or by several merged ones.

Built by :class:`~kafka_sink.client.metadata.metadata.Metadata` on the network thread and read by every thread without a
lock, because it is immutable.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from kafka_sink.common.errors import ApiError, ErrorCode, error_for
from kafka_sink.common.model import Node, TopicPartition


class PartitionInfo(NamedTuple):
    """A partition: its leader (None = none now), the leader epoch (None = unknown), and its replicas.

    It is a tuple, because a topic may have 100,000 partitions and each metadata update creates all of them again.
    """

    topic: str
    partition: int
    leader: Node | None
    leader_epoch: int | None = None
    replicas: tuple[Node, ...] = ()
    isr: tuple[Node, ...] = ()
    offline_replicas: tuple[Node, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """What is known of topics besides their partitions."""

    ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    unauthorized: frozenset[str] = frozenset()
    invalid: frozenset[str] = frozenset()
    internal: frozenset[str] = frozenset()


NO_DETAILS = TopicDetails()


class Cluster:
    """Immutable snapshot. Lookups of unknown items return None or an empty result."""

    __slots__ = (
        "_available",
        "_by_node",
        "_by_partition",
        "_by_topic",
        "_nodes_by_id",
        "cluster_id",
        "controller",
        "internal_topics",
        "invalid_topics",
        "is_bootstrap",
        "nodes",
        "topic_details",
        "topic_ids",
        "unauthorized_topics",
    )

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        partitions: Iterable[PartitionInfo] = (),
        *,
        cluster_id: str | None = None,
        controller: Node | None = None,
        topic_details: TopicDetails = NO_DETAILS,
        is_bootstrap: bool = False,
    ) -> None:
        shuffled = list(nodes)
        # Clients that use the first node must not all use the same one.
        random.shuffle(shuffled)
        self.nodes = tuple(shuffled)
        self.cluster_id = cluster_id
        self.controller = controller
        self.topic_details = topic_details
        self.topic_ids = topic_details.ids
        self.unauthorized_topics = topic_details.unauthorized
        self.invalid_topics = topic_details.invalid
        self.internal_topics = topic_details.internal
        #: Only bootstrap addresses are known so far.
        self.is_bootstrap = is_bootstrap
        self._nodes_by_id = {node.id: node for node in shuffled}
        self._index(partitions)

    def _index(self, partitions: Iterable[PartitionInfo]) -> None:
        # In one loop without a call, because every metadata update indexes all partitions again.
        self._by_partition: dict[TopicPartition, PartitionInfo] = {}
        by_topic: dict[str, list[PartitionInfo]] = {}
        by_node: dict[int, list[TopicPartition]] = {}
        for info in sorted(partitions, key=itemgetter(0, 1)):
            topic, partition, leader = info[:3]
            topic_partition = TopicPartition(topic, partition)
            self._by_partition[topic_partition] = info
            of_topic = by_topic.get(topic)
            if of_topic is None:
                of_topic = by_topic[topic] = []
            of_topic.append(info)
            if leader is not None:
                led = by_node.get(leader.id)
                if led is None:
                    led = by_node[leader.id] = []
                led.append(topic_partition)
        self._by_topic = {topic: tuple(infos) for topic, infos in by_topic.items()}
        self._available = {
            topic: infos if all(info.leader for info in infos) else tuple(info for info in infos if info.leader)
            for topic, infos in self._by_topic.items()
        }
        self._by_node = {node_id: tuple(led) for node_id, led in by_node.items()}

    @classmethod
    def bootstrap(cls, addresses: Iterable[tuple[str, int]]) -> Cluster:
        """The cluster before any broker has answered: the bootstrap addresses, with ids −1, −2, …"""
        return cls([Node(-number, host, port) for number, (host, port) in enumerate(addresses, 1)], is_bootstrap=True)

    def node(self, node_id: int) -> Node | None:
        return self._nodes_by_id.get(node_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        return self._by_partition.get(topic_partition)

    def leader_for(self, topic_partition: TopicPartition) -> Node | None:
        """The leader of *topic_partition*; None if it has no leader or is unknown."""
        info = self._by_partition.get(topic_partition)
        return None if info is None else info.leader

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose partitions are known, sorted by name."""
        return tuple(self._by_topic)

    def partition_count(self, topic: str) -> int | None:
        """The number of partitions; None for an unknown topic."""
        infos = self._by_topic.get(topic)
        return None if infos is None else len(infos)

    def partitions_for_topic(self, topic: str) -> tuple[PartitionInfo, ...]:
        """All partitions sorted by number, including those without a leader."""
        return self._by_topic.get(topic, ())

    def available_partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions that have a leader."""
        return self._available.get(topic, ())

    def partitions_for_node(self, node_id: int) -> tuple[TopicPartition, ...]:
        """The partitions that the node leads."""
        return self._by_node.get(node_id, ())

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of *topic*; None if it is unknown, or if the brokers are older than topic ids (2.8)."""
        return self.topic_ids.get(topic)

    @property
    def partitions(self) -> Iterable[PartitionInfo]:
        return self._by_partition.values()

    def __repr__(self) -> str:
        return (
            f"Cluster(id={self.cluster_id}, nodes={self.nodes}, topics={self.topics}, is_bootstrap={self.is_bootstrap})"
        )


def not_visible(topic: str) -> ApiError:
    """The error for a topic in :attr:`Cluster.unauthorized_topics`."""
    return error_for(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"this principal may not see the topic {topic!r}; grant DESCRIBE on it, which WRITE and READ imply",
    )
