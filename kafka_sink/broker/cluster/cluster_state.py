"""The state of the cluster: nodes, topics, leaders, settings and producer ids.

There is one object for all nodes. Handlers read it without a lock (everything it returns is immutable) and change it
under a lock, in a draft of the next image. Persistent state is in one file, which is replaced as a whole before a
change becomes visible: a topic whose creation was acknowledged exists after a crash, and a producer id is never
allocated twice. All changes of a request are made in one draft. The object must not call a listener while it holds a
lock.
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

from kafka_sink.broker.cluster.cluster_image import ClusterImage, Draft, Endpoints, decode, defaults_of, encode
from kafka_sink.broker.cluster.topic_state import (
    NO_LEADER,
    PartitionState,
    TopicState,
    spread,
    topic_settings,
    validate_assignment,
    validate_partition_count,
    validate_replication_factor,
    validate_topic_name,
)
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.filesystem import CheckedFile, FileSystem
from kafka_sink.common.acl import AclBinding, AclBindingFilter
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.common.model import QuotaEntity, TopicPartition
from kafka_sink.common.sasl_mechanisms import ScramCredential

#: Number of producer ids that are reserved on disk at a time, as in Kafka.
_PRODUCER_ID_BLOCK: Final = 1000
_MOST_JUST_DELETED: Final = 1000

#: Maps the current settings of a resource to its new settings.
ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]


class ClusterState:
    """Nodes, topics, settings and producer ids of one cluster."""

    def __init__(self, directory: Path, filesystem: FileSystem, config: BrokerConfig, node_ids: Sequence[int]) -> None:
        """Load the state in *directory*, or create a new cluster, whose nodes are *node_ids*.

        :raises ConfigError: if the file is not a valid cluster file.
        """
        self._file = CheckedFile(directory, filesystem)
        self._config = config
        self._node_ids = tuple(node_ids)
        # Reentrant: a change may be a part of a larger one.
        self._lock = threading.RLock()
        self._listeners: list[Callable[[], None]] = []
        # Replaced as a whole under the lock, read without it.
        self._image = ClusterImage("", self._node_ids)
        # Guarded by the lock; the draft exists only during a change.
        self._draft: Draft | None = None
        self._stored = b""
        self._first_replica = random.randrange(len(self._node_ids))
        self._next_producer_id = 0
        self._producer_ids_end = 0
        #: Names of deleted topics that no client has requested since; the oldest first.
        self._just_deleted: dict[str, None] = {}
        if not self._load():
            cluster_id = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
            self._publish(ClusterImage(cluster_id, self._node_ids))

    @property
    def image(self) -> ClusterImage:
        """The whole state as one snapshot."""
        return self._image

    @property
    def nodes(self) -> Mapping[int, Endpoints]:
        """Running nodes: id → listener name → advertised address."""
        return self._image.nodes

    @property
    def topics(self) -> Mapping[str, TopicState]:
        return self._image.topics

    @property
    def controller_id(self) -> int:
        """The running node with the lowest id, -1 if no node runs."""
        return min(self._image.nodes, default=-1)

    @property
    def defaults(self) -> BrokerConfig:
        """The brokers' options, with the dynamic options applied."""
        return defaults_of(self._config, self._image.broker_configs)

    def topic(self, name: str) -> TopicState | None:
        return self._image.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        image = self._image
        name = image.names.get(topic_id)
        return image.topics.get(name) if name is not None else None

    def coordinator_for(self, key: str) -> int:
        """The node that coordinates a group or a transactional id; -1 if no node runs.

        Rendezvous hashing: each node gets a hash for the key and the highest hash wins, so that a node that starts or
        stops moves only its own keys.
        """

        def drawn(node_id: int) -> bytes:
            return hashlib.blake2b(f"{node_id} {key}".encode(), digest_size=8).digest()

        nodes = self._image.nodes
        return max(nodes, key=drawn) if len(nodes) > 1 else next(iter(nodes), NO_LEADER)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call *listener* after every change, on the thread that made it, without holding a lock."""
        self._listeners.append(listener)

    def nodes_up(self, nodes: Mapping[int, Endpoints]) -> None:
        """Register running nodes; elect leaders for partitions without one, preferred replicas first."""
        with self.changing() as draft:
            draft.set_nodes({**draft.nodes, **nodes})

    def node_down(self, node_id: int) -> None:
        """Remove a node: its partitions get other leaders, or none."""
        with self.changing() as draft:
            if node_id in draft.nodes:
                draft.set_nodes({other_id: item for other_id, item in draft.nodes.items() if other_id != node_id})

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
        """Create a topic; −1 selects the broker's default. The topic is on disk when this returns.

        *assignment*: the replicas of each partition, instead of the two counts.

        :raises ApiError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
            INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION.
        """
        validate_topic_name(name)
        with self.changing() as draft:
            with _config_errors():
                settings = topic_settings(configs or {}, draft.defaults(self._config))
            replicas = self._replicas(partitions, replication_factor) if assignment is None else assignment
            validate_assignment(replicas, draft.members)
            draft.refuse_taken_name(name)
            states = tuple(PartitionState(tuple(nodes), NO_LEADER, -1).elected(draft.nodes) for nodes in replicas)
            topic = TopicState(name, uuid4(), dict(configs or {}), settings, states)
            if not validate_only:
                draft.set_topic(topic)
                self._just_deleted.pop(name, None)
        return topic

    def _replicas(self, partitions: int, factor: int) -> list[tuple[int, ...]]:
        """Assign leaders round-robin over all nodes, starting after the last node of the previous topic."""
        partitions = self._config.num_partitions if partitions == -1 else partitions
        factor = self._config.default_replication_factor if factor == -1 else factor
        members = self._image.members
        validate_partition_count(partitions)
        validate_replication_factor(factor, members)
        start, self._first_replica = self._first_replica, (self._first_replica + partitions) % len(members)
        return spread(members, partitions, factor, start)

    def delete_topics(
        self, names: Sequence[str], remove_logs: Callable[[TopicState], None]
    ) -> dict[str, TopicState | ApiError]:
        """Delete topics and then their logs; the names cannot be reused until the logs are removed.

        :returns: for each name the deleted topic, or the error: UNKNOWN_TOPIC_OR_PARTITION; KAFKA_STORAGE_ERROR if not
            all its logs could be removed: the topic then still exists, because the remaining files would otherwise be
            read as records of the next topic with this name.
        :raises OSError: if the change cannot be stored. Nothing is deleted.
        """
        outcomes: dict[str, TopicState | ApiError] = {}
        with self.changing() as draft:
            for name in names:
                outcomes[name] = draft.topics.get(name) or _no_topic(name)
                draft.remove_topic(name)
            self._publish(draft.image())
            for name, topic in outcomes.items():
                if isinstance(topic, TopicState):
                    try:
                        remove_logs(topic)
                    except OSError as error:
                        draft.set_topic(topic)
                        outcomes[name] = ApiError(f"could not delete the topic: {error}", ErrorCode.KAFKA_STORAGE_ERROR)
                    else:
                        self._just_deleted[name] = None
            while len(self._just_deleted) > _MOST_JUST_DELETED:
                del self._just_deleted[next(iter(self._just_deleted))]
        return outcomes

    def create_on_first_use(self, name: str) -> None:
        """Create a topic that a client has requested.

        :raises ApiError: as :meth:`create_topic`; UNKNOWN_TOPIC_OR_PARTITION for the first request for a topic that was
            deleted: the client may not know of the deletion yet, and only another request creates the topic again.
        """
        with self._lock:
            if name in self._just_deleted:
                del self._just_deleted[name]
                raise _no_topic(name)
            self.create_topic(name)

    def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        """Increase the number of a topic's partitions to *count*; *assignment*: the replicas of each new partition.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION.
        """
        with self.changing() as draft:
            topic = _existing(draft, name)
            present = len(topic.partitions)
            if count <= present:
                relation = "has that number already" if count == present else "has more already"
                text = f"{name} cannot have {count} partitions: it {relation} ({present})"
                raise ApiError(text, ErrorCode.INVALID_PARTITIONS)
            validate_partition_count(count)
            factor = len(topic.partitions[0].replicas)
            members = draft.members
            if assignment is None:
                assignment = spread(members, count - present, min(factor, len(members)), present)
            elif len(assignment) != count - present:
                text = f"{count - present} partitions are added, but {len(assignment)} are assigned"
                raise ApiError(text, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            else:
                validate_assignment(assignment, members, factor)
            added = tuple(PartitionState(tuple(nodes), NO_LEADER, -1).elected(draft.nodes) for nodes in assignment)
            if not validate_only:
                draft.set_topic(replace(topic, partitions=topic.partitions + added))

    def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        """Make another replica the leader of a partition.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_REPLICA_ASSIGNMENT if the node is not a replica;
            BROKER_NOT_AVAILABLE if it does not run.
        """
        with self.changing() as draft:
            topic = _existing(draft, partition.topic)
            state = topic.partition(partition.partition)
            if node_id not in state.replicas:
                text = f"broker {node_id} is not a replica of {partition}; its replicas are {list(state.replicas)}"
                raise ApiError(text, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            if node_id not in draft.nodes:
                raise ApiError(f"broker {node_id} is not running", ErrorCode.BROKER_NOT_AVAILABLE)
            draft.set_topic(topic.with_partition(partition.partition, state.led_by(node_id)))

    def elect_preferred_leader(self, partition: TopicPartition) -> None:
        """Make the first replica the leader of a partition.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; ELECTION_NOT_NEEDED if it already leads;
            PREFERRED_LEADER_NOT_AVAILABLE.
        """
        with self.changing() as draft:
            topic = _existing(draft, partition.topic)
            state = topic.partition(partition.partition)
            preferred = state.replicas[0]
            if state.leader == preferred:
                raise ApiError(
                    f"broker {preferred} is the leader of {partition} already", ErrorCode.ELECTION_NOT_NEEDED
                )
            if preferred not in draft.nodes:
                text = f"broker {preferred}, the preferred leader of {partition}, is not running"
                raise ApiError(text, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            draft.set_topic(topic.with_partition(partition.partition, state.led_by(preferred)))

    def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """Replace the replicas of a partition, the preferred one first. The leader stays if it is still a replica.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT.
        """
        with self.changing() as draft:
            topic = _existing(draft, partition.topic)
            state = topic.partition(partition.partition)
            validate_assignment([replicas], draft.members)
            keeps = state.leader in replicas
            moved = replace(state, replicas=tuple(replicas))
            moved = moved if keeps else moved.led_by(NO_LEADER)
            moved = moved.elected(draft.nodes)
            draft.set_topic(topic.with_partition(partition.partition, moved))

    def alter_topic_configs(self, name: str, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Change the topic-level settings of a topic.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, and the errors of *change*.
        """
        with self.changing() as draft:
            topic = _existing(draft, name)
            configs = dict(change(topic.configs))
            with _config_errors():
                settings = topic_settings(configs, draft.defaults(self._config))
            if not validate_only:
                draft.set_topic(replace(topic, configs=configs, settings=settings))

    def alter_broker_configs(self, change: ConfigChange, *, validate_only: bool = False) -> None:
        """Change the cluster-wide dynamic options of the brokers.

        :raises ApiError: INVALID_CONFIG, and the errors of *change*.
        """
        with self.changing() as draft:
            configs = dict(change(draft.broker_configs))
            with _config_errors():
                defaults = defaults_of(self._config, configs)
                topics = {
                    name: replace(topic, settings=topic_settings(topic.configs, defaults))
                    for name, topic in draft.topics.items()
                }
            if not validate_only:
                draft.broker_configs, draft.topics = configs, topics

    def alter_quotas(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """Change the quotas of *entity* by Kafka's names; None removes one."""
        with self.changing() as draft:
            values = {**draft.quotas.pop(entity, {}), **changes}
            kept = {name: value for name, value in values.items() if value is not None}
            if kept:
                draft.quotas[entity] = kept

    def alter_scram_users(self, changes: Mapping[tuple[str, str], ScramCredential | None]) -> None:
        """Set the credentials of users, by mechanism and name; None deletes one."""
        with self.changing() as draft:
            users = {**draft.scram_users, **changes}
            draft.scram_users = {key: value for key, value in users.items() if value is not None}

    def create_acls(self, acls: Sequence[AclBinding]) -> None:
        """Add *acls*; existing ones are unchanged. They are on disk when this returns."""
        with self.changing() as draft:
            draft.acls = draft.acls.with_added(acls)

    def delete_acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """Delete the ACLs that *wanted* selects, and return them."""
        with self.changing() as draft:
            selected = [acl for acl in draft.acls.acls if wanted.matches(acl)]
            draft.acls = draft.acls.without(selected)
        return selected

    def allocate_producer_id(self) -> int:
        """Return a producer id that was never allocated before. :raises OSError: if it cannot be reserved on disk."""
        with self.changing() as draft:
            if self._next_producer_id >= self._producer_ids_end:
                first = draft.next_producer_id
                draft.next_producer_id = first + _PRODUCER_ID_BLOCK
                self._publish(draft.image())
                self._next_producer_id, self._producer_ids_end = first, first + _PRODUCER_ID_BLOCK
            allocated = self._next_producer_id
            self._next_producer_id += 1
            return allocated

    @contextmanager
    def changing(self) -> Iterator[Draft]:
        """A draft of the next image, which is stored and published when the block ends; other changes wait for that.

        Changes within the block, by the methods of this class, become a part of it: any number of them costs one write.
        After an error nothing has changed. The block must be short, and must not wait for another lock.

        :raises OSError: if the change cannot be stored. Nothing has changed.
        """
        with self._lock:
            if self._draft is not None:
                yield self._draft
                return
        before = after = self._image
        try:
            with self._lock:
                before = self._image
                self._draft = draft = Draft(before)
                try:
                    yield draft
                    self._publish(draft.image())
                finally:
                    self._draft, after = None, self._image
        finally:
            # Also after an error: topics whose logs could not be removed exist again.
            if after is not before:
                for listener in self._listeners:
                    listener()

    def _publish(self, image: ClusterImage) -> None:
        """Store the image, then publish it, so that a crash cannot remove a topic that was already visible."""
        if image == self._image:
            return
        data = encode(image)
        if data != self._stored:
            # Leader epochs must not go back after a restart.
            self._file.write(data)
            self._stored = data
        self._image = image

    def _load(self) -> bool:
        data = self._file.read()
        if data is None:
            return False
        try:
            self._image = decode(data, self._config, self._node_ids)
        except ConfigError as error:
            raise ConfigError(f"{self._file.path}: {error}") from error
        self._stored = data
        return True


def _existing(draft: Draft, name: str) -> TopicState:
    topic = draft.topics.get(name)
    if topic is None:
        raise _no_topic(name)
    return topic


def _no_topic(name: str) -> ApiError:
    return ApiError(f"topic {name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@contextmanager
def _config_errors() -> Iterator[None]:
    """Translate errors of the option tables into ApiError with the protocol's code."""
    try:
        yield
    except ConfigError as error:
        raise ApiError(str(error), ErrorCode.INVALID_CONFIG) from None
