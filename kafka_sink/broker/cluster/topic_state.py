"""The state of one topic in the cluster image, and the validation rules for topics.

The cluster state creates these objects under its lock; every thread reads them without a lock, as all are immutable.
This module must not depend on the running nodes or on the content of the disk.

Source: apache/kafka ``Topic`` (names), ``PartitionRegistration``, ``ReplicationControlManager`` (assignments).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from kafka_sink.broker.cluster.topic_config import TopicSettings
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TopicPartition

NO_LEADER: Final = -1
MAX_TOPIC_NAME_LENGTH: Final = 249
#: More than any test needs; a request for 2·10⁹ partitions must not exhaust the memory.
MAX_PARTITIONS_PER_TOPIC: Final = 10_000
#: New partitions of all topics of a request together (apache/kafka ``ReplicationControlManager``).
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The replicas of a partition, its leader (:data:`NO_LEADER` if it has none), and its leader epoch."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int

    def led_by(self, leader: int) -> PartitionState:
        """The partition with another leader and a new leader epoch; NO_LEADER keeps the epoch."""
        if leader == self.leader:
            return self
        return replace(self, leader=leader, leader_epoch=self.leader_epoch + (leader != NO_LEADER))

    def elected(self, running: Collection[int]) -> PartitionState:
        """The partition with a running leader: the present leader if it runs, else the first replica that runs."""
        if self.leader in running:
            return self
        return self.led_by(next((replica for replica in self.replicas if replica in running), NO_LEADER))


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic. *configs* are its topic-level settings, *settings* its effective settings."""

    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    settings: TopicSettings
    partitions: tuple[PartitionState, ...]

    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(len(self.partitions))]

    def partition(self, index: int) -> PartitionState:
        """:raises ApiError: UNKNOWN_TOPIC_OR_PARTITION."""
        if not 0 <= index < len(self.partitions):
            raise ApiError(f"{self.name} has no partition {index}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[index]

    def with_partition(self, index: int, state: PartitionState) -> TopicState:
        return replace(self, partitions=(*self.partitions[:index], state, *self.partitions[index + 1 :]))

    def elected(self, running: Collection[int]) -> TopicState:
        """The topic with running leaders for its partitions; the same object if nothing changes."""
        partitions = tuple(partition.elected(running) for partition in self.partitions)
        return self if partitions == self.partitions else replace(self, partitions=partitions)


def validate_topic_name(name: str) -> None:
    """:raises ApiError: INVALID_TOPIC_EXCEPTION, with the reason."""
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "a directory cannot have this name"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"it is longer than {MAX_TOPIC_NAME_LENGTH} characters"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = "only ASCII letters and digits, '.', '_' and '-' are legal"
    else:
        return
    raise ApiError(f"illegal topic name {name[:300]!r}: {reason}", ErrorCode.INVALID_TOPIC_EXCEPTION)


def validate_partition_count(partitions: int) -> None:
    """:raises ApiError: INVALID_PARTITIONS, POLICY_VIOLATION."""
    if partitions < 1:
        raise ApiError("a topic needs at least one partition", ErrorCode.INVALID_PARTITIONS)
    if partitions > MAX_PARTITIONS_PER_TOPIC:
        text = f"a topic may have {MAX_PARTITIONS_PER_TOPIC} partitions at most"
        raise ApiError(text, ErrorCode.POLICY_VIOLATION)


def too_many_partitions() -> ApiError:
    """The error of each topic in a request for more than :data:`MAX_PARTITIONS_PER_REQUEST`."""
    text = f"a request may create {MAX_PARTITIONS_PER_REQUEST} partitions at most; divide its topics among several"
    return ApiError(text, ErrorCode.POLICY_VIOLATION)


def validate_replication_factor(factor: int, nodes: Sequence[int]) -> None:
    """:raises ApiError: INVALID_REPLICATION_FACTOR."""
    if not 1 <= factor <= len(nodes):
        text = f"replication factor {factor} is not between 1 and {len(nodes)}, the number of nodes"
        raise ApiError(text, ErrorCode.INVALID_REPLICATION_FACTOR)


def validate_assignment(assignment: Sequence[Sequence[int]], nodes: Sequence[int], factor: int | None = None) -> None:
    """Check that each partition has replicas on distinct *nodes*, and all the same number (*factor*, if given).

    :raises ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    for replicas in assignment:
        if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(nodes):
            text = f"replicas {list(replicas)} are not distinct nodes of {list(nodes)}"
            raise ApiError(text, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    factors = {len(replicas) for replicas in assignment} | ({factor} if factor is not None else set())
    if len(factors) > 1:
        raise ApiError("all partitions must have the same number of replicas", ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def spread(nodes: Sequence[int], partitions: int, factor: int, start: int) -> list[tuple[int, ...]]:
    """Assign replicas to *partitions* partitions, leaders round-robin over all *nodes*, beginning at index *start*."""
    return [
        tuple(nodes[(start + partition + replica) % len(nodes)] for replica in range(factor))
        for partition in range(partitions)
    ]
