"""Transaction markers, which write the outcome of a transaction to its participants.

Called by the thread that decided the outcome (a request handler, or the timer's thread) after it has answered. Markers
that cannot be written now, because a partition has no leader or its disk fails, are left for the next attempt. This
module must not change the coordinator's state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import NO_LEADER
from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.records.control import EndTransactionMarker

#: In Kafka the leader epoch of the partition of ``__transaction_state``; constant here.
COORDINATOR_EPOCH: Final = 0
OFFSETS_TOPIC: Final = "__consumer_offsets"
#: Kafka's default of offsets.topic.num.partitions, which is hardly ever changed.
OFFSETS_PARTITIONS: Final = 50
#: A newer epoch has written to the log, so there is no transaction left that this marker could end.
_OBSOLETE: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
_log: Final = ContextLogger(__name__, "transaction markers")


@dataclass
class TransactionMarkers:
    """Writes markers to the logs and completes pending offsets in the group coordinator."""

    _cluster: ClusterState
    _logs: LogManager
    #: Commits or discards the pending offsets of a producer id's transaction, in groups.
    _complete_offsets: Callable[[int, Collection[str], bool], None]
    _clock: Clock
    #: Called with every partition whose last stable offset may have moved.
    _on_written: Callable[[TopicPartition], None]

    def write(self, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        """Write markers to all participants that are logs; returns those that have the marker or no longer exist."""
        marker = EndTransactionMarker(
            metadata.producer_id, metadata.producer_epoch, metadata.state.is_commit, COORDINATOR_EPOCH
        )
        logs = (partition for partition in metadata.partitions if partition.topic != OFFSETS_TOPIC)
        return frozenset(partition for partition in logs if self._try_partition(partition, marker, metadata.version))

    def end_offsets(self, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        """Complete the pending offsets of the transaction; returns the participants that this applies to.

        Call it only while the outcome cannot be recorded concurrently, because the producer's next transaction has the
        same producer id.
        """
        offsets = frozenset(partition for partition in metadata.partitions if partition.topic == OFFSETS_TOPIC)
        if offsets:
            try:
                self._complete_offsets(metadata.producer_id, metadata.groups, metadata.state.is_commit)
            except ApiError as error:
                _log.warning("offsets of producer %d stay pending for now: %s", metadata.producer_id, error)
                return frozenset()
        return offsets

    def _try_partition(self, partition: TopicPartition, marker: EndTransactionMarker, version: int) -> bool:
        try:
            self.write_partition(partition, marker, version)
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topic = self._cluster.topic(partition.topic)
                return topic is None or partition not in topic.topic_partitions()
            if error.code not in _OBSOLETE:
                _log.info("the marker for %s is written later: %s", partition, error)
                return False
            _log.warning("no marker for %s: %s", partition, error)
        return True

    def write_partition(self, partition: TopicPartition, marker: EndTransactionMarker, version: int) -> None:
        """Append *marker* of a transaction of that *version* to one log.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (there is no leader), and what
            :meth:`~kafka_sink.broker.log.partition_log.PartitionLog.append_marker` raises.
        """
        topic = self._cluster.topic(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            raise ApiError(f"{partition} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = topic.partitions[partition.partition]
        if state.leader == NO_LEADER:
            raise ApiError(f"{partition} has no leader", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topic_id = topic.topic_id
        try:
            log = self._logs.get_or_create(
                partition, topic.settings.log, lambda: self._cluster.topic_by_id(topic_id) is not None
            )
        except OSError as error:
            raise ApiError(f"cannot open a log: {error}", ErrorCode.KAFKA_STORAGE_ERROR) from error
        if log is None:
            raise ApiError(f"topic {partition.topic} was deleted", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log.append_marker(
            marker, state.leader_epoch, self._clock.wall_ms(), transaction_version=TransactionVersion.of_level(version)
        )
        self._on_written(partition)


def offsets_partition(group_id: str) -> int:
    """The partition of :data:`OFFSETS_TOPIC` in which Kafka would store a group. The topic does not exist in this
    broker, but a transaction that commits offsets has that partition as a participant.

    Source: apache/kafka ``GroupCoordinatorService.partitionFor``, ``String.hashCode``, ``Utils.abs``.
    """
    code = 0
    units = group_id.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    # The absolute value of Java's smallest int is not an int; Kafka uses 0 for it.
    return abs(signed) % OFFSETS_PARTITIONS if signed != -(1 << 31) else 0
