"""From a metadata answer to the next :class:`~kafka_sink.client.cluster.Cluster`.

Pure: called by :class:`~kafka_sink.client.metadata.Metadata` under its lock with the snapshot before, it returns the
one after and changes neither.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kafka_sink.client.cluster import Cluster, PartitionInfo
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from kafka_sink.protocol.schema import ZERO_UUID

#: Answers of older versions may carry leader epochs that go backwards while a controller fails over.
_RELIABLE_EPOCHS_FROM_VERSION: Final = 9

_LAST_PORT: Final = 65_535


def has_address(host: str, port: int) -> bool:
    """Whether a broker can be where an answer says it is; where it cannot, nobody is asked to connect to it."""
    return bool(host) and 0 < port <= _LAST_PORT


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The next cluster, and whether the answer itself says that it is not the last word (an election, say)."""

    cluster: Cluster
    is_stale: bool


class _Draft:
    """Collects what the next cluster is made of."""

    def __init__(self, previous: Cluster, response: MetadataResponse, version: int) -> None:
        self.previous = previous
        self.response = response
        self.nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
            if has_address(broker.host, broker.port)
        }
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
            is_same_topic = topic_id is None or topic_id == self.previous.topic_id(name)
            for partition in topic.partitions:
                # A partition in trouble still tells its newest epoch, so errors do not keep it out.
                self.is_stale |= ErrorCode.of(partition.error_code).is_invalid_metadata
                self.partitions.append(self._partition(name, partition, is_same_topic))

    def _partition(self, topic: str, partition: MetadataResponsePartition, is_same_topic: bool) -> PartitionInfo:
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
        known = self.previous.partition(info.topic_partition)
        if is_same_topic and known is not None and known.leader_epoch is not None and epoch is not None:
            # A broker that lags behind must not take us back to a leader that was replaced.
            return info if epoch >= known.leader_epoch else self._on_current_nodes(known)
        return info

    def _nodes(self, ids: Iterable[int]) -> tuple[Node, ...]:
        return tuple(self.nodes.get(node_id) or Node(node_id, "", -1) for node_id in ids)

    def keep(self, topic: str) -> None:
        """Take over what was known about *topic*; its brokers may have moved meanwhile."""
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
        return info if leader == info.leader else replace(info, leader=leader)

    def finish(self) -> Cluster:
        return Cluster(
            self.nodes.values(),
            self.partitions,
            cluster_id=self.response.cluster_id,
            controller=self.nodes.get(self.response.controller_id),
            topic_ids=self.topic_ids,
            unauthorized_topics=self.unauthorized,
            invalid_topics=self.invalid,
            internal_topics=self.internal,
        )


@dataclass(frozen=True, slots=True)
class NewLeader:
    """Who leads a partition, and under which epoch, as a broker told that does not lead it (any more)."""

    leader_id: int
    leader_epoch: int


def with_leaders(previous: Cluster, leaders: Mapping[TopicPartition, NewLeader], nodes: Iterable[Node]) -> Cluster:
    """*previous* with those of *leaders* that are news: of a later epoch, and of a node that is known or in *nodes*.

    It is *previous* itself when nothing is news.
    """
    by_id = {node.id: node for node in previous.nodes} | {
        node.id: node for node in nodes if has_address(node.host, node.port)
    }
    changed: dict[TopicPartition, PartitionInfo] = {}
    for topic_partition, told in leaders.items():
        known = previous.partition(topic_partition)
        leader = by_id.get(told.leader_id)
        if known is None or leader is None:
            continue
        if known.leader_epoch is None or told.leader_epoch > known.leader_epoch:
            changed[topic_partition] = replace(known, leader=leader, leader_epoch=told.leader_epoch)
    if not changed:
        return previous
    return Cluster(
        by_id.values(),
        [changed.get(info.topic_partition, info) for info in previous.partitions],
        cluster_id=previous.cluster_id,
        controller=previous.controller,
        topic_ids=previous.topic_ids,
        unauthorized_topics=previous.unauthorized_topics,
        invalid_topics=previous.invalid_topics,
        internal_topics=previous.internal_topics,
    )


def next_snapshot(
    previous: Cluster, response: MetadataResponse, *, version: int, is_partial: bool, retain: Callable[[str], bool]
) -> Snapshot:
    """*previous* after *response* (of *version*): merged into it when *is_partial*, replacing it otherwise.

    *retain* says of each topic whether anybody is still interested in it.
    """
    draft = _Draft(previous, response, version)
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
