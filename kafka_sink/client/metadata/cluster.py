"""The cluster as described by one metadata answer, or by several merged ones.

Built by :class:`~kafka_sink.client.metadata.metadata.Metadata` on the network thread and read by every thread without a
lock, because it is immutable. The next one is created from an answer by pure functions, which ``Metadata`` calls under
its lock.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from kafka_sink.common.errors import ApiError, ErrorCode, InvalidTopicError, error_for
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kafka_sink.protocol.schema import ZERO_UUID


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
    """The metadata of topics besides their partitions."""

    ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    unauthorized: frozenset[str] = frozenset()
    invalid: frozenset[str] = frozenset()
    internal: frozenset[str] = frozenset()


NO_DETAILS = TopicDetails()


class Cluster:
    """Immutable snapshot. Lookups of unknown items return None or an empty result."""

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
        return self._available.get(topic, ())

    def partitions_for_node(self, node_id: int) -> tuple[TopicPartition, ...]:
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


def invalid_topic(topic: str) -> InvalidTopicError:
    """The error for a topic in :attr:`Cluster.invalid_topics`."""
    return InvalidTopicError(f"topic name {topic!r} is not legal: expected 1 to 249 letters, digits, '.', '_' and '-'")


def not_visible(topic: str) -> ApiError:
    """The error for a topic in :attr:`Cluster.unauthorized_topics`."""
    return error_for(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"this principal may not see the topic {topic!r}; grant DESCRIBE on it, which WRITE and READ imply",
    )


#: Answers of older versions may contain leader epochs that go backwards during a controller failover.
_RELIABLE_EPOCHS_FROM_VERSION: Final = 9

_LAST_PORT: Final = 65_535


def has_address(host: str, port: int) -> bool:
    """Whether *host* and *port* are a valid address. A broker without a valid address is not used."""
    return bool(host) and 0 < port <= _LAST_PORT


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The next cluster, and whether the answer reports that it is stale (for example during an election)."""

    cluster: Cluster
    is_stale: bool


@dataclass(frozen=True, slots=True)
class LostTopic:
    """The last known state of a topic that is missing from the latest cluster, after an error or a rebootstrap.

    Kafka's Java client keeps the leader epochs (``Metadata.lastSeenLeaderEpochs``) for the same reason: an answer of a
    broker with outdated metadata must not restore a previous leader. It is only kept for topics with an id: the id
    distinguishes a recreated topic, whose epochs start again, from the previous one.
    """

    topic_id: uuid.UUID
    partitions: tuple[PartitionInfo, ...]


NOTHING_LOST: Final[Mapping[str, LostTopic]] = {}


def lost_topics(previous: Cluster, following: Cluster | None, lost: Mapping[str, LostTopic]) -> dict[str, LostTopic]:
    """*lost* and the topics of *previous*, without the topics of *following*."""
    present = frozenset() if following is None else frozenset(following.topics)
    by_name = {name: topic for name, topic in lost.items() if name not in present}
    for name in previous.topics:
        topic_id = previous.topic_id(name)
        if topic_id is not None and name not in present:
            by_name[name] = LostTopic(topic_id, previous.partitions_for_topic(name))
    return by_name


class _Draft:
    """Collects the parts of the next cluster."""

    def __init__(
        self, previous: Cluster, response: MetadataResponse, version: int, lost: Mapping[str, LostTopic]
    ) -> None:
        self.previous = previous
        self.lost = lost
        self.response = response
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
            if has_address(broker.host, broker.port)
        }
        #: Replica ids of a partition → their nodes; most partitions share a few combinations.
        self._known_nodes: dict[tuple[int, ...], tuple[Node, ...]] = {}
        self.epochs_are_reliable = version >= _RELIABLE_EPOCHS_FROM_VERSION
        self.partitions: list[PartitionInfo] = []
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.unauthorized: set[str] = set()
        self.invalid: set[str] = set()
        self.internal: set[str] = set()
        self.is_stale = False

    def add_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        if topic.is_internal:
            self.internal.add(name)
        topic_id = None if topic.topic_id == ZERO_UUID else topic.topic_id
        if topic_id is not None:
            self.topic_ids[name] = topic_id
        code = ErrorCode.of(topic.error_code)
        self.is_stale |= code.is_invalid_metadata
        if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
            self.invalid.add(name)
        elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.unauthorized.add(name)
        elif code is ErrorCode.NONE:
            known = self._known(name, topic_id)
            for partition in topic.partitions:
                # A partition with an error still has its latest epoch, so it is not omitted.
                if partition.error_code:
                    self.is_stale |= ErrorCode.of(partition.error_code).is_invalid_metadata
                self.partitions.append(self._partition(name, partition, known.get(partition.partition_index)))

    def _known(self, name: str, topic_id: uuid.UUID | None) -> dict[int, PartitionInfo]:
        infos: tuple[PartitionInfo, ...] = ()
        if topic_id is None or topic_id == self.previous.topic_id(name):
            infos = self.previous.partitions_for_topic(name)
        if not infos and name in self.lost and topic_id == self.lost[name].topic_id:
            infos = self.lost[name].partitions
        return {info.partition: info for info in infos}

    def _partition(
        self, topic: str, partition: MetadataResponsePartition, known: PartitionInfo | None
    ) -> PartitionInfo:
        epoch = partition.leader_epoch if self.epochs_are_reliable and partition.leader_epoch >= 0 else None
        info = PartitionInfo(
            topic,
            partition.partition_index,
            self.nodes.get(partition.leader_id),
            epoch,
            self._nodes(partition.replica_nodes),
            self._nodes(partition.isr_nodes),
            self._nodes(partition.offline_replicas),
        )
        if known is not None and known.leader_epoch is not None and epoch is not None:
            # A broker with outdated metadata must not restore a previous leader.
            return info if epoch >= known.leader_epoch else self._on_current_nodes(known)
        return info

    def _nodes(self, ids: Iterable[int]) -> tuple[Node, ...]:
        key = tuple(ids)
        nodes = self._known_nodes.get(key)
        if nodes is None:
            nodes = tuple(self.nodes.get(node_id) or Node(node_id, "", -1) for node_id in key)
            self._known_nodes[key] = nodes
        return nodes

    def keep(self, topic: str) -> None:
        """Keep the known state of *topic*; its brokers may have moved in the meantime."""
        before = self.previous
        self.partitions.extend(self._on_current_nodes(info) for info in before.partitions_for_topic(topic))
        topic_id = before.topic_id(topic)
        if topic_id is not None:
            self.topic_ids[topic] = topic_id
        for known, kept in (
            (before.unauthorized_topics, self.unauthorized),
            (before.invalid_topics, self.invalid),
            (before.internal_topics, self.internal),
        ):
            if topic in known:
                kept.add(topic)

    def _on_current_nodes(self, info: PartitionInfo) -> PartitionInfo:
        leader = None if info.leader is None else self.nodes.get(info.leader.id)
        return info if leader == info.leader else info._replace(leader=leader)

    def finish(self) -> Cluster:
        return Cluster(
            self.nodes.values(),
            self.partitions,
            cluster_id=self.response.cluster_id,
            controller=self.nodes.get(self.response.controller_id),
            topic_details=TopicDetails(
                self.topic_ids, frozenset(self.unauthorized), frozenset(self.invalid), frozenset(self.internal)
            ),
        )


@dataclass(frozen=True, slots=True)
class NewLeader:
    """The leader of a partition and its epoch, as reported by a broker that does not lead it (any more)."""

    leader_id: int
    leader_epoch: int


def with_leaders(previous: Cluster, leaders: Mapping[TopicPartition, NewLeader], nodes: Iterable[Node]) -> Cluster:
    """*previous* with the *leaders* that have a later epoch and a node that is known or in *nodes*.

    Returns *previous* itself if nothing has changed.
    """
    by_id = {node.id: node for node in previous.nodes} | {
        node.id: node for node in nodes if has_address(node.host, node.port)
    }
    changed: dict[TopicPartition, PartitionInfo] = {}
    for topic_partition, new_leader in leaders.items():
        known = previous.partition(topic_partition)
        leader = by_id.get(new_leader.leader_id)
        if known is None or leader is None:
            continue
        if known.leader_epoch is None or new_leader.leader_epoch > known.leader_epoch:
            changed[topic_partition] = known._replace(leader=leader, leader_epoch=new_leader.leader_epoch)
    if not changed:
        return previous
    return Cluster(
        by_id.values(),
        [changed.get(info.topic_partition, info) for info in previous.partitions],
        cluster_id=previous.cluster_id,
        controller=previous.controller,
        topic_details=previous.topic_details,
    )


def next_snapshot(
    previous: Cluster,
    response: MetadataResponse,
    *,
    version: int,
    is_partial: bool,
    retain: Callable[[str], bool],
    lost: Mapping[str, LostTopic] = NOTHING_LOST,
) -> Snapshot:
    """The snapshot after *response* (in *version*): merged into *previous* if *is_partial*, otherwise replacing it.

    *retain* returns whether a topic is still needed; *lost* contains topics that *previous* lacks.
    """
    draft = _Draft(previous, response, version, lost)
    answered = set()
    for topic in response.topics:
        if topic.name is not None and retain(topic.name):
            answered.add(topic.name)
            draft.add_topic(topic.name, topic)
    if is_partial:
        known = {*previous.topics, *previous.topic_ids, *previous.unauthorized_topics, *previous.invalid_topics}
        for name in known - answered:
            if retain(name):
                draft.keep(name)
    return Snapshot(draft.finish(), draft.is_stale)
