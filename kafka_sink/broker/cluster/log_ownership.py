"""Applies the cluster's state to the logs of this process: settings, changes of leaders, deleted topics.

Called after every change of the cluster, on the thread that made or detected it, and again for logs that could not be
acquired yet. If several processes share the data, a log is open in one process at a time. That process locks the log's
directory before it first reads the log's files and keeps the lock until its last write is done. A replaced leader may
therefore continue for a moment, while the new leader waits; the records that both acknowledge are in one order in one
log. This module must not open a log without the lock of its directory, and must not hold a lock while delayed fetches
are answered.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from kafka_sink.broker.cluster.cluster_image import ClusterImage
from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.file_lock import FileLock
from kafka_sink.broker.log.log_manager import DELETED_SUFFIX, LogManager
from kafka_sink.broker.purgatory import DelayedOperationPurgatory
from kafka_sink.common.files import make_own_directory, make_own_file
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition

#: Stores the topic id of a log's directory, as in Kafka: topic names are reused, topic ids are not.
METADATA_FILE: Final = "partition.metadata"


@dataclass(frozen=True, slots=True)
class _Held:
    topic_id: UUID
    lock: FileLock


class LogOwnership:
    """The logs that this process has open, either alone or as one of several processes that share *directory*."""

    def __init__(
        self,
        cluster: ClusterState,
        logs: LogManager,
        directory: Path,
        node_ids: Collection[int],
        purgatory: DelayedOperationPurgatory,
        *,
        shared: bool,
    ) -> None:
        self._cluster = cluster
        self._logs = logs
        self._directory = directory
        self._node_ids = frozenset(node_ids)
        self._purgatory = purgatory
        self._shared = shared
        self._log = ContextLogger(__name__, f"data directory {directory}")
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._applied = cluster.image
        self._held: dict[TopicPartition, _Held] = {}
        self._failed: set[TopicPartition] = set()
        #: Whether some logs are still open in another process or could not be opened; :meth:`sync` must be repeated
        #: soon.
        self.pending = False

    def sync(self) -> None:
        """Apply the current state of the cluster; set :attr:`pending` if something cannot be applied yet."""
        with self._lock:
            image = self._cluster.image
            before, self._applied = self._applied, image
            if self._shared:
                self._hand_over(image)
                self._discard_deleted(before, image)
                self.pending = not self._take_over(image)
            changed = [topic for name, topic in image.topics.items() if before.topics.get(name) is not topic]
            for topic in changed:
                self._reconfigure(topic)
        self._answer_fetches(before.topics, changed)

    def release(self) -> None:
        """Release the locks of all directories. The logs must be closed."""
        with self._lock:
            for held in self._held.values():
                held.lock.release()
            self._held.clear()

    def _reconfigure(self, topic: TopicState) -> None:
        for partition in topic.topic_partitions():
            log = self._logs.get(partition)
            if log is not None:
                log.reconfigure(topic.settings.log)

    def _answer_fetches(self, before: Mapping[str, TopicState], changed: Collection[TopicState]) -> None:
        """Complete delayed fetches of partitions whose leader has changed."""
        for topic in changed:
            old = before.get(topic.name)
            if old is not None:
                for partition, was, now in zip(old.topic_partitions(), old.partitions, topic.partitions, strict=False):
                    if was != now:
                        self._purgatory.check(partition)

    # --- one of several processes ------------------------------------------------------------------------------------

    def _led(self, image: ClusterImage, partition: TopicPartition, topic_id: UUID) -> bool:
        topic = image.topics.get(partition.topic)
        return (
            topic is not None
            and topic.topic_id == topic_id
            and partition.partition < len(topic.partitions)
            and topic.partitions[partition.partition].leader in self._node_ids
        )

    def _hand_over(self, image: ClusterImage) -> None:
        for partition, held in list(self._held.items()):
            if self._led(image, partition, held.topic_id):
                continue
            topic = image.topics.get(partition.topic)
            try:
                if topic is not None and topic.topic_id == held.topic_id:
                    self._logs.hand_over(partition)
                else:
                    self._logs.delete([partition])
            except OSError as error:
                # The directory stores the topic id, so the next topic with this name does not use the old log.
                self._log.error("cannot remove the log of %s, which belongs to a deleted topic: %s", partition, error)
                self._logs.hand_over(partition)
            del self._held[partition]
            held.lock.release()

    def _discard_deleted(self, before: ClusterImage, image: ClusterImage) -> None:
        """Remove unlocked logs of deleted topics: their leader has stopped and cannot remove them."""
        for topic in before.topics.values():
            if topic.topic_id not in image.names:
                for partition in topic.topic_partitions():
                    self._discard_if_nobody_holds(partition)

    def _discard_if_nobody_holds(self, partition: TopicPartition) -> None:
        try:
            lock = self._lock_of(partition)
            if lock is not None:
                with lock:
                    self._discard_unless_of(partition, None)
        except OSError as error:
            self._log.error("cannot remove the log of %s, which belongs to a deleted topic: %s", partition, error)

    def _take_over(self, image: ClusterImage) -> bool:
        complete = True
        for topic in image.topics.values():
            for partition, state in zip(topic.topic_partitions(), topic.partitions, strict=True):
                if state.leader in self._node_ids and partition not in self._held:
                    complete &= self._take(partition, topic)
        return complete

    def _take(self, partition: TopicPartition, topic: TopicState) -> bool:
        try:
            make_own_directory(self._path(partition))
            lock = self._lock_of(partition)
            if lock is None:
                return False
            if self._discard_unless_of(partition, topic.topic_id):
                lock.release()
                return False
            try:
                self._logs.open(partition, topic.settings.log)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            if partition not in self._failed:
                # Logged once, not on every attempt.
                self._failed.add(partition)
                self._log.error("cannot open %s; it is tried again: %s", partition, error)
            return False
        self._failed.discard(partition)
        self._held[partition] = _Held(topic.topic_id, lock)
        return True

    def _path(self, partition: TopicPartition) -> Path:
        return self._directory / str(partition)

    def _lock_of(self, partition: TopicPartition) -> FileLock | None:
        """Lock a partition's directory; None if it does not exist or another process holds the lock."""
        path = self._path(partition)
        try:
            lock = FileLock(path, create=False)
        except (BlockingIOError, FileNotFoundError):
            return None
        if not lock.is_at(path):
            # The directory was moved away for deletion in the meantime.
            lock.release()
            return None
        return lock

    def _discard_unless_of(self, partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Remove a log unless it belongs to *topic_id* (None: no topic of this name exists); returns whether it did."""
        path = self._path(partition)
        found = _read_topic_id(path)
        if topic_id is not None and found in (topic_id, None):
            if found is None:
                make_own_file(path / METADATA_FILE)
                (path / METADATA_FILE).write_text(f"version: 0\ntopic_id: {topic_id}\n", encoding="ascii")
            return False
        if topic_id is None and found in self._cluster.image.names:
            return False
        target = self._directory / f"{uuid4().hex}{DELETED_SUFFIX}"
        path.rename(target)
        shutil.rmtree(target, ignore_errors=True)
        return True


def _read_topic_id(path: Path) -> UUID | None:
    try:
        text = (path / METADATA_FILE).read_text(encoding="ascii")
        return UUID(text.partition("topic_id: ")[2].strip())
    except (FileNotFoundError, ValueError):
        # Written by a single process, or lost in a power failure: the directory's name is the only identification.
        return None
