"""What the cluster knows: its nodes, topics, leaders, settings and producer ids.

One object for all nodes of a process. Handlers read it without a lock (everything they get is immutable), and change
it under one. What has to outlive the process is in one file that is replaced as a whole before anybody is told: a topic
that was answered for is there after a crash, and a producer id is never given out twice. Where several processes share
that file, each change is made to what the others left there, under a lock between processes. Must never call a listener
while it holds a lock.
"""

from __future__ import annotations

import base64
import hashlib
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from kafka_sink.broker.cluster.cluster_file import ClusterFile
from kafka_sink.broker.cluster.cluster_image import ClusterImage, Endpoints, decode, defaults_of, encode
from kafka_sink.broker.cluster.topic_config import topic_settings
from kafka_sink.broker.cluster.topic_state import (
    NO_LEADER,
    PartitionState,
    TopicState,
    refuse_taken_name,
    spread,
    validate_assignment,
    validate_partition_count,
    validate_replication_factor,
    validate_topic_name,
)
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.common.model import TopicPartition

#: Producer ids reserved on the disk at a time, as in Kafka.
_PRODUCER_ID_BLOCK: Final = 1000

#: Given the settings that something has, the settings that it is to have.
ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]


class ClusterState:
    """Nodes, topics, settings and producer ids of one cluster."""

    def __init__(
        self,
        directory: Path,
        filesystem: FileSystem,
        config: BrokerConfig,
        node_ids: Sequence[int],
        *,
        shared: bool = False,
    ) -> None:
        """Load what *directory* holds, or begin a new cluster. *node_ids* are the nodes of this process; unless the
        cluster is *shared* by several processes they are all nodes it has.

        :raises ConfigError: the file is not one of ours.
        """
        self._file = ClusterFile(directory, filesystem, shared=shared)
        self._config = config
        self._node_ids = tuple(node_ids)
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        # Replaced as a whole under the lock, read without it.
        self._image = ClusterImage("", self._node_ids)
        # Guarded by the lock.
        self._stored = b""
        self._first_replica = random.randrange(len(self._node_ids))
        self._next_producer_id = 0
        self._producer_ids_end = 0
        with self._file.exclusive():
            if not self._load():
                cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
                self._show(ClusterImage(cluster_id, self._node_ids))

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """All of it, at one moment."""
        return self._image

    @property
    def cluster_id(self) -> str:
        return self._image.cluster_id

    @property
    def nodes(self) -> Mapping[int, Endpoints]:
        """Running nodes: id → listener name → where clients connect to."""
        return self._image.nodes

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """Topics by name."""
        return self._image.topics

    @property
    def controller_id(self) -> int:
        """The running node with the lowest id, -1 while there is none."""
        return min(self._image.nodes, default=-1)

    @property
    def defaults(self) -> BrokerConfig:
        """The brokers' options, with those that were changed while they ran."""
        return defaults_of(self._config, self._image.broker_configs)

    def topic(self, name: str) -> TopicState | None:
        return self._image.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        image = self._image
        name = image.names.get(topic_id)
        return image.topics.get(name) if name is not None else None

    def coordinator_for(self, key: str) -> int:
        """The node that looks after a group or a transactional id; -1 while no node runs.

        Each node draws a number for the key and the highest wins, so a node that comes or goes moves only its own keys.
        """

        def drawn(node_id: int) -> bytes:
            return hashlib.blake2b(f"{node_id} {key}".encode(), digest_size=8).digest()

        return max(self._image.nodes, key=drawn, default=NO_LEADER)

    # --- being told --------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call *listener* after every change, on the thread that made it or noticed it, without any lock."""
        self._listeners.append(listener)

    def refresh(self) -> None:
        """Look whether another process changed the cluster; cheap when none did.

        :raises ConfigError: the file is damaged. :raises OSError: it cannot be read.
        """
        if self._file.changed():
            with self._changing():
                pass

    # --- nodes -------------------------------------------------------------------------------------------------------

    def nodes_up(self, nodes: Mapping[int, Endpoints]) -> None:
        """Nodes run, each with its listeners: they take the lead where nobody has it, the preferred replica first."""
        with self._changing():
            self._show(self._image.with_nodes({**self._image.nodes, **nodes}))

    def node_down(self, node_id: int, still_down: Callable[[], bool] = lambda: True) -> None:
        """A node is gone: its partitions get other leaders, or none.

        *still_down* is asked while nobody can change the cluster: a node that has just come back stays.
        """
        with self._changing():
            if node_id in self._image.nodes and still_down():
                left = {known: item for known, item in self._image.nodes.items() if known != node_id}
                self._show(self._image.with_nodes(left))

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
        with self._changing():
            with _config_errors():
                settings = topic_settings(configs or {}, self.defaults)
            replicas = self._replicas(partitions, replication_factor) if assignment is None else assignment
            validate_assignment(replicas, self._image.members)
            refuse_taken_name(name, self._image.topics)
            nodes = self._image.nodes
            states = tuple(PartitionState(tuple(each), NO_LEADER, -1).elected(nodes) for each in replicas)
            topic = TopicState(name, uuid4(), dict(configs or {}), settings, states)
            if not validate_only:
                self._show(self._image.with_topic(topic))
        return topic

    def _replicas(self, partitions: int, factor: int) -> list[tuple[int, ...]]:
        """Leaders in turn over all nodes, from where the last topic stopped."""
        partitions = self._config.num_partitions if partitions == -1 else partitions
        factor = self._config.default_replication_factor if factor == -1 else factor
        members = self._image.members
        validate_partition_count(partitions)
        validate_replication_factor(factor, members)
        start, self._first_replica = self._first_replica, (self._first_replica + partitions) % len(members)
        return spread(members, partitions, factor, start)

    def ensure_topic(self, name: str) -> TopicState:
        """The topic, created with the broker's defaults if need be. Raises as :meth:`create_topic` does."""
        try:
            return self.topic(name) or self.create_topic(name)
        except ApiError as error:
            found = self.topic(name)
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and found is not None:
                return found
            raise

    def delete_topic(self, name: str, remove_logs: Callable[[TopicState], None]) -> TopicState:
        """Forget a topic, then have its logs removed; until that is done nobody can create the name anew.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION.
        :raises OSError: not all of it could be removed. The topic is still there: what was left of it would be taken
            for records of the next topic of that name.
        """
        with self._changing():
            topic = self._existing(name)
            left = {known: state for known, state in self._image.topics.items() if known != name}
            self._show(replace(self._image, topics=left))
            try:
                remove_logs(topic)
            except OSError:
                self._show(self._image.with_topic(topic))
                raise
        return topic

    def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        """Give a topic *count* partitions in all; *assignment*: the replicas of each new one.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION.
        """
        with self._changing():
            topic = self._existing(name)
            present = len(topic.partitions)
            if count <= present:
                relation = "has as many already" if count == present else "has more already"
                text = f"{name} cannot have {count} partitions: it {relation} ({present})"
                raise ApiError(text, ErrorCode.INVALID_PARTITIONS)
            validate_partition_count(count)
            factor = len(topic.partitions[0].replicas)
            members = self._image.members
            if assignment is None:
                assignment = spread(members, count - present, min(factor, len(members)), present)
            elif len(assignment) != count - present:
                text = f"{count - present} partitions are to be added, and {len(assignment)} are assigned"
                raise ApiError(text, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            else:
                validate_assignment(assignment, members, factor)
            nodes = self._image.nodes
            added = tuple(PartitionState(tuple(each), NO_LEADER, -1).elected(nodes) for each in assignment)
            if not validate_only:
                self._show(self._image.with_topic(replace(topic, partitions=topic.partitions + added)))

    # --- leaders -----------------------------------------------------------------------------------------------------

    def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        """Let another replica lead a partition.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_REPLICA_ASSIGNMENT, the node is no replica;
            BROKER_NOT_AVAILABLE, it does not run.
        """
        with self._changing():
            topic = self._existing(partition.topic)
            state = topic.partition(partition.partition)
            if node_id not in state.replicas:
                text = f"broker {node_id} is no replica of {partition}, {list(state.replicas)} are"
                raise ApiError(text, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            if node_id not in self._image.nodes:
                raise ApiError(f"broker {node_id} does not run", ErrorCode.BROKER_NOT_AVAILABLE)
            self._show(self._image.with_topic(topic.with_partition(partition.partition, state.led_by(node_id))))

    def elect_preferred_leader(self, partition: TopicPartition) -> None:
        """Let the first replica lead a partition.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; ELECTION_NOT_NEEDED, it leads; PREFERRED_LEADER_NOT_AVAILABLE.
        """
        with self._changing():
            topic = self._existing(partition.topic)
            state = topic.partition(partition.partition)
            preferred = state.replicas[0]
            if state.leader == preferred:
                raise ApiError(f"broker {preferred} leads {partition} already", ErrorCode.ELECTION_NOT_NEEDED)
            if preferred not in self._image.nodes:
                text = f"broker {preferred}, the preferred leader of {partition}, does not run"
                raise ApiError(text, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            self._show(self._image.with_topic(topic.with_partition(partition.partition, state.led_by(preferred))))

    def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Say anew which nodes may lead a partition, the preferred one first; who leads and still may goes on.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT.
        """
        with self._changing():
            topic = self._existing(partition.topic)
            state = topic.partition(partition.partition)
            validate_assignment([replicas], self._image.members)
            keeps = state.leader in replicas
            moved = replace(state, replicas=tuple(replicas))
            moved = moved if keeps else moved.led_by(NO_LEADER)
            moved = moved.elected(self._image.nodes)
            self._show(self._image.with_topic(topic.with_partition(partition.partition, moved)))

    # --- settings ----------------------------------------------------------------------------------------------------

    def alter_topic_configs(self, name: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Change the settings that a topic has of its own.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, and what *change* raises.
        """
        with self._changing():
            topic = self._existing(name)
            configs = dict(change(topic.configs))
            with _config_errors():
                settings = topic_settings(configs, self.defaults)
            if not validate_only:
                self._show(self._image.with_topic(replace(topic, configs=configs, settings=settings)))

    def alter_broker_configs(self, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Change options of all brokers while they run.

        :raises ApiError: INVALID_CONFIG, and what *change* raises.
        """
        with self._changing():
            configs = dict(change(self._image.broker_configs))
            with _config_errors():
                defaults = defaults_of(self._config, configs)
                topics = {
                    name: replace(topic, settings=topic_settings(topic.configs, defaults))
                    for name, topic in self._image.topics.items()
                }
            if not validate_only:
                self._show(replace(self._image, broker_configs=configs, topics=topics))

    # --- producer ids ------------------------------------------------------------------------------------------------

    def allocate_producer_id(self) -> int:
        """A producer id that no process ever got before. :raises OSError: it could not be reserved on the disk."""
        with self._changing():
            if self._next_producer_id >= self._producer_ids_end:
                first = self._image.next_producer_id
                self._show(replace(self._image, next_producer_id=first + _PRODUCER_ID_BLOCK))
                self._next_producer_id, self._producer_ids_end = first, first + _PRODUCER_ID_BLOCK
            allocated = self._next_producer_id
            self._next_producer_id += 1
            return allocated

    # --- changing ----------------------------------------------------------------------------------------------------

    def _existing(self, name: str) -> TopicState:
        topic = self._image.topics.get(name)
        if topic is None:
            raise ApiError(f"there is no topic {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold what is needed to change the cluster, on top of what other processes did; then tell the listeners."""
        before = self._image
        try:
            with self._lock:
                before = self._image
                with self._file.exclusive():
                    if self._file.changed():
                        self._load()
                    yield
        finally:
            # Also when the change was refused: what others did is news all the same.
            if self._image is not before:
                for listener in self._listeners:
                    listener()

    def _show(self, image: ClusterImage) -> None:
        """Store, then show: in this order nobody ever sees a topic that a crash takes away again."""
        if self._file.shared:
            if image == self._image:
                return
            image = replace(image, version=image.version + 1)
        data = encode(image, shared=self._file.shared)
        if data != self._stored:
            # Epochs must not go back when the process does.
            self._file.write(data)
            self._stored = data
        self._image = image

    def _load(self) -> bool:
        data = self._file.read()
        if data is None:
            return False
        try:
            self._image = decode(data, self._config, self._node_ids, shared=self._file.shared)
        except ConfigError as error:
            raise ConfigError(f"{self._file.path}: {error}") from error
        self._stored = data
        return True


@contextmanager
def _config_errors() -> Iterator[None]:
    """What the option tables refuse, under the protocol's code."""
    try:
        yield
    except ConfigError as error:
        raise ApiError(str(error), ErrorCode.INVALID_CONFIG) from None
