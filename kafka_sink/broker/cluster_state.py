"""What the cluster knows: its nodes, topics, leaders and producer ids.

One object for all nodes of a process. Handlers read it without a lock (everything they get is immutable), and change
it under one. What has to outlive the process is in one file that is replaced as a whole before anybody is told: a topic
that was answered for is there after a crash, and a producer id is never given out twice.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.topic_config import TopicSettings, topic_settings
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.common.model import TopicPartition

NO_LEADER: Final = -1
MAX_TOPIC_NAME_LENGTH: Final = 249
#: More than anybody tests with; a request for 2·10⁹ must not fill the memory.
MAX_PARTITIONS_PER_TOPIC: Final = 10_000
#: Producer ids reserved on the disk at a time, as in Kafka.
_PRODUCER_ID_BLOCK: Final = 1000
_FORMAT: Final = 1
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who may lead a partition, who does (:data:`NO_LEADER` = nobody), and how often that changed."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic. *configs* are the settings it was created with, *settings* what follows from them."""

    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    settings: TopicSettings
    partitions: tuple[PartitionState, ...]

    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in range(len(self.partitions))]


def validate_topic_name(name: str) -> None:
    """:raises ApiError: INVALID_TOPIC_EXCEPTION, with the reason."""
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "it is a directory's name"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"it is longer than {MAX_TOPIC_NAME_LENGTH} characters"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = "only ASCII letters and digits, '.', '_' and '-' are legal"
    else:
        return
    raise ApiError(f"illegal topic name {name[:300]!r}: {reason}", ErrorCode.INVALID_TOPIC_EXCEPTION)


class ClusterState:
    """Nodes, topics and producer ids of one cluster."""

    def __init__(self, directory: Path, filesystem: FileSystem, config: BrokerConfig, node_ids: Sequence[int]) -> None:
        """Load what *directory* holds, or begin a new cluster.

        :raises ConfigError: the file is not one of ours, or is missing where there is data.
        """
        self._path = directory / "cluster.json"
        self._filesystem = filesystem
        self._config = config
        self._node_ids = tuple(node_ids)
        self._lock = threading.Lock()
        # Replaced as a whole under the lock, read without it.
        self._nodes: Mapping[int, Mapping[str, EndPoint]] = {}
        self._topics: Mapping[str, TopicState] = {}
        self._names: Mapping[UUID, str] = {}
        # Guarded by the lock.
        self._first_replica = random.randrange(len(self._node_ids))
        self._next_producer_id = 0
        self._producer_ids_end = 0
        filesystem.make_directories(directory)
        data = filesystem.read_file(self._path)
        if data is None:
            self.cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
            self._persist()
        else:
            self._load(data)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[int, Mapping[str, EndPoint]]:
        """Running nodes: id → listener name → where clients connect to."""
        return self._nodes

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """Topics by name."""
        return self._topics

    @property
    def controller_id(self) -> int:
        """The running node with the lowest id, -1 while there is none."""
        return min(self._nodes, default=-1)

    def topic(self, name: str) -> TopicState | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        name = self._names.get(topic_id)
        return self._topics.get(name) if name is not None else None

    def coordinator_for(self, key: str) -> int:
        """The node that looks after a group or a transactional id; -1 while no node runs.

        Each node draws a number for the key and the highest wins, so a node that comes or goes moves only its own keys.
        """

        def drawn(node_id: int) -> bytes:
            return hashlib.blake2b(f"{node_id} {key}".encode(), digest_size=8).digest()

        return max(self._nodes, key=drawn, default=NO_LEADER)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def nodes_up(self, nodes: Mapping[int, Mapping[str, EndPoint]]) -> None:
        """Nodes run, each with its listeners: they take the lead where nobody has it, the preferred replica first."""
        with self._lock:
            self._nodes = {**self._nodes, **nodes}
            self._elect()

    def node_down(self, node_id: int) -> list[TopicPartition]:
        """A node is gone: its partitions get other leaders, or none. Returns those that changed."""
        with self._lock:
            self._nodes = {known: endpoints for known, endpoints in self._nodes.items() if known != node_id}
            return self._elect()

    def _elect(self) -> list[TopicPartition]:
        changed: list[TopicPartition] = []
        topics = dict(self._topics)
        for name, topic in self._topics.items():
            partitions = tuple(self._with_leader(partition) for partition in topic.partitions)
            if partitions != topic.partitions:
                topics[name] = replace(topic, partitions=partitions)
                pairs = zip(topic.partitions, partitions, strict=True)
                changed += [TopicPartition(name, index) for index, (old, new) in enumerate(pairs) if old != new]
        if changed:
            # Epochs must not go back when the process does.
            self._persist(topics)
            self._topics = topics
        return changed

    def _with_leader(self, partition: PartitionState) -> PartitionState:
        if partition.leader in self._nodes:
            return partition
        leader = next((replica for replica in partition.replicas if replica in self._nodes), NO_LEADER)
        if leader == partition.leader:
            return partition
        epoch = partition.leader_epoch + (leader != NO_LEADER)
        return PartitionState(partition.replicas, leader, epoch)

    # --- topics ------------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicState:
        """Create a topic; −1 takes the broker's default. It is on the disk when this returns.

        *assignment*: the replicas of each partition, instead of the two counts.

        :raises ApiError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
            INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION.
        """
        validate_topic_name(name)
        try:
            settings = topic_settings(configs or {}, self._config)
        except ConfigError as error:
            raise ApiError(str(error), ErrorCode.INVALID_CONFIG) from None
        if assignment is None:
            partitions = self._config.num_partitions if partitions == -1 else partitions
            factor = self._config.default_replication_factor if replication_factor == -1 else replication_factor
            self._validate_counts(partitions, factor)
        with self._lock:
            self._refuse_taken_name(name)
            replicas = self._assign(partitions, factor) if assignment is None else self._checked(assignment)
            states = tuple(self._with_leader(PartitionState(each, NO_LEADER, -1)) for each in replicas)
            topic = TopicState(name, uuid4(), dict(configs or {}), settings, states)
            if not validate_only:
                self._replace_topics({**self._topics, name: topic})
        return topic

    def ensure_topic(self, name: str) -> TopicState:
        """The topic, created with the broker's defaults if need be. Raises as :meth:`create_topic` does."""
        try:
            return self._topics.get(name) or self.create_topic(name)
        except ApiError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and name in self._topics:
                return self._topics[name]
            raise

    def delete_topic(self, name: str, remove_logs: Callable[[TopicState], None]) -> TopicState:
        """Forget a topic, then have its logs removed; until that is done nobody can create the name anew.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        with self._lock:
            topic = self._topics.get(name)
            if topic is None:
                raise ApiError(f"there is no topic {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._replace_topics({known: state for known, state in self._topics.items() if known != name})
            remove_logs(topic)
        return topic

    def _validate_counts(self, partitions: int, factor: int) -> None:
        if partitions < 1:
            raise ApiError("a topic needs at least one partition", ErrorCode.INVALID_PARTITIONS)
        if partitions > MAX_PARTITIONS_PER_TOPIC:
            text = f"a topic may have {MAX_PARTITIONS_PER_TOPIC} partitions at most"
            raise ApiError(text, ErrorCode.POLICY_VIOLATION)
        if not 1 <= factor <= len(self._node_ids):
            text = f"replication factor {factor} is not from 1 to the number of nodes, {len(self._node_ids)}"
            raise ApiError(text, ErrorCode.INVALID_REPLICATION_FACTOR)

    def _refuse_taken_name(self, name: str) -> None:
        if name in self._topics:
            raise ApiError(f"topic {name!r} exists already", ErrorCode.TOPIC_ALREADY_EXISTS)
        if "." in name or "_" in name:
            # Kafka's metrics cannot tell the two characters apart, so it refuses such pairs; so do we.
            merged = name.replace(".", "_")
            for other in self._topics:
                if other.replace(".", "_") == merged:
                    raise ApiError(f"topic {name!r} collides with {other!r}", ErrorCode.INVALID_TOPIC_EXCEPTION)

    def _assign(self, partitions: int, factor: int) -> list[tuple[int, ...]]:
        """Leaders in turn over all nodes, from where the last topic stopped."""
        nodes = self._node_ids
        start, self._first_replica = self._first_replica, (self._first_replica + partitions) % len(nodes)
        return [
            tuple(nodes[(start + partition + replica) % len(nodes)] for replica in range(factor))
            for partition in range(partitions)
        ]

    def _checked(self, assignment: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        for replicas in assignment:
            if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(self._node_ids):
                text = f"replicas {list(replicas)} are not distinct nodes of {list(self._node_ids)}"
                raise ApiError(text, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        if len({len(replicas) for replicas in assignment}) > 1:
            raise ApiError("partitions differ in their number of replicas", ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        return [tuple(replicas) for replicas in assignment]

    # --- producer ids ------------------------------------------------------------------------------------------------

    def allocate_producer_id(self) -> int:
        """A producer id that no process ever got before. :raises OSError: it could not be reserved on the disk."""
        with self._lock:
            if self._next_producer_id >= self._producer_ids_end:
                self._producer_ids_end = self._next_producer_id + _PRODUCER_ID_BLOCK
                self._persist()
            allocated = self._next_producer_id
            self._next_producer_id += 1
            return allocated

    # --- the file ----------------------------------------------------------------------------------------------------

    def _replace_topics(self, topics: Mapping[str, TopicState]) -> None:
        """Store, then show: in this order nobody ever sees a topic that a crash takes away again."""
        self._persist(topics)
        self._topics = topics
        self._names = {topic.topic_id: topic.name for topic in topics.values()}

    def _persist(self, topics: Mapping[str, TopicState] | None = None) -> None:
        content = {
            "format": _FORMAT,
            "cluster_id": self.cluster_id,
            "next_producer_id": self._producer_ids_end,
            "topics": [
                {
                    "name": topic.name,
                    "id": topic.topic_id.hex,
                    "configs": dict(topic.configs),
                    "partitions": [[*partition.replicas, partition.leader_epoch] for partition in topic.partitions],
                }
                for topic in (self._topics if topics is None else topics).values()
            ],
        }
        self._filesystem.replace_file(self._path, json.dumps(content, separators=(",", ":")).encode())

    def _load(self, data: bytes) -> None:
        try:
            content: dict[str, Any] = json.loads(data)
            if content["format"] != _FORMAT:
                raise ConfigError(f"{self._path} has format {content['format']}, this broker reads {_FORMAT}")
            self.cluster_id = str(content["cluster_id"])
            self._next_producer_id = self._producer_ids_end = int(content["next_producer_id"])
            topics = [self._loaded_topic(entry) for entry in content["topics"]]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{self._path} is damaged: {error!r}") from error
        self._topics = {topic.name: topic for topic in topics}
        self._names = {topic.topic_id: topic.name for topic in topics}

    def _loaded_topic(self, entry: dict[str, Any]) -> TopicState:
        partitions = []
        for number, (*replicas, epoch) in enumerate(entry["partitions"]):
            # A cluster may come back with fewer nodes; somebody has to lead what the missing ones had.
            present = tuple(replica for replica in replicas if replica in self._node_ids)
            fallback = (self._node_ids[number % len(self._node_ids)],)
            partitions.append(PartitionState(present or fallback, NO_LEADER, int(epoch)))
        configs = {str(key): str(value) for key, value in entry["configs"].items()}
        return TopicState(
            str(entry["name"]),
            UUID(hex=entry["id"]),
            configs,
            topic_settings(configs, self._config),
            tuple(partitions),
        )
