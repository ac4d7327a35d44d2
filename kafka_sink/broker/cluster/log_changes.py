"""Applies changes of the cluster to its logs: settings, and leaders for which delayed fetches wait.

Called after every change of the cluster, on the thread that made it. This module must not hold a lock while delayed
fetches are answered.
"""

from __future__ import annotations

import threading

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.purgatory import DelayedOperationPurgatory


class LogChanges:
    """The logs of *cluster*, as its last change was applied to them."""

    def __init__(self, cluster: ClusterState, logs: LogManager, purgatory: DelayedOperationPurgatory) -> None:
        self._cluster = cluster
        self._logs = logs
        self._purgatory = purgatory
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._applied = cluster.image

    def apply(self) -> None:
        """Apply the current state of the cluster."""
        with self._lock:
            image = self._cluster.image
            before, self._applied = self._applied, image
            changed = [topic for name, topic in image.topics.items() if before.topics.get(name) is not topic]
            for topic in changed:
                self._reconfigure(topic)
        for topic in changed:
            old = before.topics.get(topic.name)
            if old is not None:
                self._answer_fetches(old, topic)

    def _reconfigure(self, topic: TopicState) -> None:
        for partition in topic.topic_partitions():
            log = self._logs.get(partition)
            if log is not None:
                log.reconfigure(topic.settings.log)

    def _answer_fetches(self, before: TopicState, now: TopicState) -> None:
        """Complete delayed fetches of partitions whose leader has changed."""
        for partition, old, new in zip(before.topic_partitions(), before.partitions, now.partitions, strict=False):
            if old != new:
                self._purgatory.check(partition)
