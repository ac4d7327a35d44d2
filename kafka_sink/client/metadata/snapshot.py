"""Creates the next :class:`~kafka_sink.client.metadata.cluster.Cluster` from a metadata answer.

Pure functions, called by :class:`~kafka_sink.client.metadata.metadata.Metadata` under its lock. They take the previous
snapshot and return the next one, and modify neither.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_sink.client.metadata.cluster import Cluster, PartitionInfo, TopicDetails
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kafka_sink.protocol.schema import ZERO_UUID

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
                # A partition with an error still has its latest epoch, so it is not left out.
                if partition.error_code:
                    self.is_stale |= ErrorCode.of(partition.error_code).is_invalid_metadata
                self.partitions.append(self._partition(name, partition, known.get(partition.partition_index)))

    def _known(self, name: str, topic_id: uuid.UUID | None) -> dict[int, PartitionInfo]:
        """The previously known partitions of the topic with this id."""
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
