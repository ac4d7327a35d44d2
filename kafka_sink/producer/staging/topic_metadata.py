"""The metadata of a topic that a calling thread needs before it can send, and the wait for it.

:class:`KafkaProducer` uses it on the calling threads, several at once. It never sends anything: it requests an update
of the metadata, wakes the sender thread and waits for the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_sink.client.factory import ClientNetwork
from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    KafkaError,
    KafkaTimeoutError,
    RowPartitionError,
    RowSerializationError,
    UnknownTopicOrPartitionError,
)
from kafka_sink.producer.batching.calls_in_progress import APPEND, CallsInProgress
from kafka_sink.producer.metrics import ProducerContext
from kafka_sink.producer.producer_record import check_topic
from kafka_sink.producer.sending.sender import Sender

#: The partition of a row that lets the partitioner choose.
ANY_PARTITION: Final = -1

#: How long rows wait for a partition that their topic does not have, ms: as long as brokers need to learn of a new
#: partition, and no longer, because in most cases the row is wrong.
_PATIENCE_FOR_PARTITIONS_MS: Final = 1000

#: How long the records of a topic use the cluster that one of them found, ms: a lookup costs time, and leaders rarely
#: move.
_CHECK_MS: Final = 20


@dataclass(frozen=True, slots=True)
class CachedTopic:
    """A topic in a cluster that was recently the newest; valid until ``until_ms``."""

    cluster: Cluster
    until_ms: int
    partition_count: int


class TopicMetadata:
    """Finds topics within max.block.ms, or raises the reason (apache/kafka ``KafkaProducer.waitOnMetadata``)."""

    def __init__(
        self, context: ProducerContext, network: ClientNetwork, sender: Sender, calls: CallsInProgress
    ) -> None:
        self._config = context.config
        self._clock = context.clock
        self._metrics = context.metrics
        self._metadata = network.metadata
        self._connection_failures = network.client.connection_failures
        self._sender = sender
        self._calls = calls
        self._max_block_ms = self._config.max_block_ms
        #: Topics by name as recent records found them, all in the same cluster.
        self.cached: dict[str, CachedTopic] = {}
        self._cluster = self._metadata.fetch()

    def find(self, topic: str, partition: int | None, now_ms: int) -> CachedTopic:
        """*topic* in a cluster that contains it (and *partition*), usually as a recent record found it.

        :raises ApiError: if it is not known within max.block.ms; the text gives the reason.
        """
        entry = self.cached.get(topic)
        if entry is not None and now_ms < entry.until_ms and (partition is None or partition < entry.partition_count):
            return entry
        cluster = self.wait_for(topic, partition)
        if cluster is not self._cluster:
            # Old clusters must not be kept alive.
            self._cluster = cluster
            self.cached.clear()
        until_ms = self._clock.monotonic_ms() + _CHECK_MS
        entry = self.cached[topic] = CachedTopic(cluster, until_ms, cluster.partition_count(topic) or 0)
        return entry

    def wait_for(self, topic: str, partition: int | None = None) -> Cluster:
        """The newest cluster that contains *topic* (and *partition*), waiting for it if necessary.

        :raises ApiError: if there is none within max.block.ms; the text gives the reason.
        :raises KafkaError: if the producer was closed during the wait.
        :raises ValueError: if *topic* is not a topic name.
        """
        check_topic(topic)
        started_ms = self._clock.monotonic_ms()
        cluster = self._metadata.fetch()
        self._metadata.raise_if_invalid(topic)
        self._metadata.add(topic, started_ms)
        if _knows(cluster, topic, partition):
            return cluster
        self._calls.check_may_wait(APPEND)
        try:
            return self._await(topic, partition, started_ms)
        except KafkaError:
            if not self._sender.is_running:
                raise KafkaError("producer closed while send in progress") from None
            raise
        finally:
            self._metrics.waited_for_metadata(self._clock.monotonic_ms() - started_ms)

    def _await(self, topic: str, partition: int | None, started_ms: int) -> Cluster:
        remaining_ms = self._max_block_ms
        while True:
            self._metadata.add(topic, self._clock.monotonic_ms())
            version = self._metadata.request_update_for_topic(topic)
            self._sender.wakeup()
            try:
                self._metadata.await_update(version, remaining_ms)
            except KafkaTimeoutError:
                raise self._timeout(topic, partition).of_option(self._config.option("max.block.ms")) from None
            cluster = self._metadata.fetch()
            remaining_ms = self._max_block_ms - (self._clock.monotonic_ms() - started_ms)
            if remaining_ms <= 0:
                raise self._timeout(topic, partition).of_option(self._config.option("max.block.ms"))
            self._metadata.raise_for_topic(topic)
            if _knows(cluster, topic, partition):
                return cluster

    def wait_for_rows(self, topic: str, partitions: NDArray[np.int32] | None) -> Cluster:
        """:meth:`wait_for` for rows, some of which may name their partition: *partitions* int32[rows].

        :raises RowPartitionError: if a row names a partition that the topic does not have.
        :raises RowSerializationError: if a row names a negative partition other than :data:`ANY_PARTITION`.
        """
        deadline_ms = self._clock.monotonic_ms() + self._max_block_ms
        cluster = self.wait_for(topic)
        if partitions is None:
            return cluster
        lowest, highest = int(partitions.min()), int(partitions.max())
        if lowest < ANY_PARTITION:
            raise RowSerializationError.about(
                np.flatnonzero(partitions < ANY_PARTITION).tolist(),
                lambda row: f"names partition {partitions[row]} of topic {topic}; a partition must not be negative",
                "partition",
            )
        if highest >= (cluster.partition_count(topic) or 0):
            self._calls.check_may_wait(APPEND)
            cluster = self._wait_for_growth(topic, highest, deadline_ms)
        check_partitions(topic, partitions, cluster.partition_count(topic) or 0)
        return cluster

    def _wait_for_growth(self, topic: str, partition: int, deadline_ms: int) -> Cluster:
        """Wait for a partition that may have been added since the metadata was fetched; not every broker may know it
        yet."""
        cluster = self._refreshed(deadline_ms)
        until_ms = min(deadline_ms, self._clock.monotonic_ms() + _PATIENCE_FOR_PARTITIONS_MS)
        while not _knows(cluster, topic, partition):
            try:
                cluster = self._refreshed(until_ms)
            except KafkaTimeoutError:
                # The known metadata is recent enough to refuse the row.
                break
        return cluster

    def _refreshed(self, deadline_ms: int) -> Cluster:
        """:raises KafkaTimeoutError: if no newer metadata arrives before *deadline_ms*."""
        version = self._metadata.request_update()
        self._sender.wakeup()
        self._metadata.await_update(version, max(deadline_ms - self._clock.monotonic_ms(), 0))
        return self._metadata.fetch()

    def _timeout(self, topic: str, partition: int | None) -> ApiError:
        cluster = self._metadata.fetch()
        failures = self._connection_failures()
        waited = f"{self._max_block_ms} ms"
        limit = self._config.option("max.block.ms")
        if cluster.is_bootstrap:
            tried = "; ".join(f"{f.host}:{f.port}: {f.cause}" for f in failures) or "no answer yet from " + ", ".join(
                f"{node.host}:{node.port}" for node in cluster.nodes
            )
            return BrokersUnreachableError(
                f"no broker could be reached within {waited} ({limit}): {tried}; check "
                f"{self._config.option('bootstrap.servers')} and that this machine can connect to the brokers' "
                "listeners"
            )
        count = cluster.partition_count(topic)
        if partition is not None and count is not None:
            return KafkaTimeoutError(
                f"partition {partition} of topic {topic} with partition count {count} is not present in metadata after "
                f"{waited}"
            )
        others = f"; unreachable: {', '.join(f'{f.host}:{f.port} ({f.cause})' for f in failures)}" if failures else ""
        return UnknownTopicOrPartitionError(
            f"topic {topic} is not present in metadata after {waited} ({limit}): it does not exist and the brokers "
            f"do not create it, or it has no leader yet; create it first, or correct the name{others}"
        )


def check_partitions(topic: str, partitions: NDArray[np.int32] | None, count: int) -> None:
    """Check *partitions*, int32[rows], of a topic that has *count* of them.

    :raises RowPartitionError: if a row names a partition that the topic does not have.
    """
    if partitions is not None and int(partitions.max(initial=ANY_PARTITION)) >= count:
        raise RowPartitionError.about(
            np.flatnonzero(partitions >= count).tolist(),
            lambda row: (
                f"names partition {partitions[row]} of topic {topic}, which has only {count} (0 to {count - 1}); "
                "correct the partition column, or add partitions to the topic"
            ),
            "partition",
        )


def _knows(cluster: Cluster, topic: str, partition: int | None) -> bool:
    count = cluster.partition_count(topic)
    return count is not None and (partition is None or partition < count)
