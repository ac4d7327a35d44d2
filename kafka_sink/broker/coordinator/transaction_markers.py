"""Markers: how a transaction's participants hear of its outcome.

Called by the thread that decided the outcome (a request handler, or the timer's thread), after it has answered, or by
the one that sees what other processes decided. What cannot be told now, because nobody leads a partition or its disk
fails, is left for the next attempt. Must never touch the coordinator's state, nor take a topic for deleted of which
this process has only not heard yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import NO_LEADER
from kafka_sink.broker.coordinator.group_topic import OFFSETS_TOPIC
from kafka_sink.broker.coordinator.transaction_metadata import VERSION_WITH_EPOCH_BUMP, TransactionMetadata
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition
from kafka_sink.records.control import EndTransactionMarker

#: What Kafka has here is how often the leader of ``__transaction_state`` changed; ours never does.
COORDINATOR_EPOCH: Final = 0
#: A newer epoch wrote there, so there is nothing left that this marker could end.
_OBSOLETE: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class GroupOffsets(Protocol):
    """The side of the group coordinator that transactions end."""

    def complete_transaction(self, producer_id: int, groups: Collection[str], committed: bool) -> None:
        """Let the offsets that *producer_id* committed in its transaction count, or forget them."""
        ...


class TransactionMarkers:
    """Writes markers to the logs of this process, and tells its group coordinator."""

    def __init__(
        self,
        cluster: ClusterState,
        logs: LogManager,
        groups: GroupOffsets,
        clock: Clock,
        on_written: Callable[[TopicPartition], None],
    ) -> None:
        """*on_written* hears of every partition whose last stable offset may have moved."""
        self._cluster = cluster
        self._logs = logs
        self._groups = groups
        self._clock = clock
        self._on_written = on_written
        self._log = ContextLogger(__name__, "transaction markers")

    def write(self, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        """Tell every participant that is a log; returns those that know now, or are no more."""
        marker = EndTransactionMarker(
            metadata.producer_id, metadata.producer_epoch, metadata.state.is_commit, COORDINATOR_EPOCH
        )
        logs = (partition for partition in metadata.partitions if partition.topic != OFFSETS_TOPIC)
        return frozenset(each for each in logs if self._try_partition(each, marker, metadata.version))

    def end_offsets(self, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        """Let the offsets that wait for the outcome count, or forget them; returns the participants that this was.

        Only while nobody can note the same: a producer's next transaction has the same producer id.
        """
        offsets = frozenset(partition for partition in metadata.partitions if partition.topic == OFFSETS_TOPIC)
        if offsets:
            try:
                self._groups.complete_transaction(metadata.producer_id, metadata.groups, metadata.state.is_commit)
            except ApiError as error:
                self._log.warning("offsets of producer %d stay undecided for now: %s", metadata.producer_id, error)
                return frozenset()
        return offsets

    def _try_partition(self, partition: TopicPartition, marker: EndTransactionMarker, version: int) -> bool:
        if self._cluster.topic(partition.topic) is None:
            try:
                # Another process may have made it since we looked; whoever added it to the transaction knew it.
                self._cluster.refresh()
            except (OSError, ConfigError) as error:
                self._log.warning("whether there is a %s cannot be seen: %s", partition, error)
                return False
        if not self._logs.serves(partition) and self._cluster.topic(partition.topic) is not None:
            # Another process has its log: it reads the decision where this one stored it, and writes the marker.
            return False
        try:
            self.write_partition(partition, marker, version)
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return self._cluster.topic(partition.topic) is None
            if error.code in _OBSOLETE:
                self._log.warning("no marker for %s: %s", partition, error)
                return True
            self._log.info("the marker for %s has to wait: %s", partition, error)
            return False
        return True

    def write_partition(self, partition: TopicPartition, marker: EndTransactionMarker, version: int) -> None:
        """Append *marker* of a transaction of that *version* to one log.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (nobody leads), and what
            :meth:`~kafka_sink.broker.log.partition_log.PartitionLog.append_marker` raises.
        """
        topic = self._cluster.topic(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            raise ApiError(f"there is no {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = topic.partitions[partition.partition]
        if state.leader == NO_LEADER:
            raise ApiError(f"nobody leads {partition}", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topic_id = topic.topic_id
        try:
            log = self._logs.get_or_create(
                partition, topic.settings.log, lambda: self._cluster.topic_by_id(topic_id) is not None
            )
        except OSError as error:
            raise ApiError(f"cannot open a log: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error
        if log is None:
            raise ApiError(f"topic {partition.topic} was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        bumps_epoch = version >= VERSION_WITH_EPOCH_BUMP
        log.append_marker(marker, state.leader_epoch, self._clock.wall_ms(), bumps_epoch=bumps_epoch)
        self._on_written(partition)
