"""All partition logs of a data directory.

Called by handler threads (look-ups, first appends, deletions) and by its housekeeping step. Directories are named as
Kafka names them, ``topic-partition``; topic names are validated before they get here. Must never hold its own lock
while a log does work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.log.partition_log import LogConfig, PartitionLog
from kafka_sink.common.clock import Clock
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition

_DELETED_SUFFIX: Final = "-delete"


class LogManager:
    """Opens, finds, tends and deletes the logs below *directory*."""

    def __init__(self, directory: Path, filesystem: FileSystem, clock: Clock) -> None:
        self._directory = directory
        self._filesystem = filesystem
        self._clock = clock
        self._log = ContextLogger(__name__, f"log manager {directory}")
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._logs: dict[TopicPartition, PartitionLog] = {}
        filesystem.make_directories(directory)

    def open_existing(self, configs: Callable[[TopicPartition], LogConfig | None]) -> int:
        """Open every log on the disk that *configs* knows; returns how many bytes recovery had to cut off.

        What it does not know (a topic whose deletion was interrupted) is removed.
        """
        truncated = 0
        for name in self._filesystem.list_directory(self._directory):
            partition = _parse_directory(name)
            if partition is None:
                if name.endswith(_DELETED_SUFFIX):
                    self._filesystem.remove_tree(self._directory / name)
                continue
            config = configs(partition)
            if config is None:
                self._log.info("removing %s, which belongs to no topic", name)
                self._filesystem.remove_tree(self._directory / name)
                continue
            truncated += self.get_or_create(partition, config).truncated_bytes
        return truncated

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of *partition*, None while nothing was ever written to it."""
        return self._logs.get(partition)

    def get_or_create(self, partition: TopicPartition, config: LogConfig) -> PartitionLog:
        """The log of *partition*. :raises OSError: its directory cannot be made."""
        found = self._logs.get(partition)
        if found is not None:
            return found
        with self._lock:
            found = self._logs.get(partition)
            if found is None:
                path = self._directory / str(partition)
                found = PartitionLog(path, self._filesystem, config, self._clock.wall_ms())
                self._logs[partition] = found
            return found

    def delete(self, partitions: list[TopicPartition]) -> None:
        """Delete logs with all their data; a name is free for re-use when this returns."""
        for partition in partitions:
            with self._lock:
                found = self._logs.pop(partition, None)
                if found is None:
                    continue
                found.abandon()
                # A rename happens or does not; a tree that is half removed would come back as a damaged log.
                target = self._directory / f"{uuid4().hex}{_DELETED_SUFFIX}"
                self._filesystem.rename(found.directory, target)
            self._filesystem.remove_tree(target)

    def housekeep(self) -> None:
        """Seal rolled segments and apply retention, log by log; a log that fails does not keep others from it."""
        with self._lock:
            logs = list(self._logs.items())
        for partition, log in logs:
            try:
                log.seal_rolled_segments()
                deleted = log.apply_retention(self._clock.wall_ms())
            except OSError as error:
                self._log.error("housekeeping of %s failed: %s", partition, error)
                continue
            if deleted:
                self._log.info("retention deleted %d segments of %s", deleted, partition)

    def abandon(self) -> None:
        """Close all logs without a thought for their data."""
        with self._lock:
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.abandon()

    def close(self) -> None:
        """Flush and close all logs."""
        with self._lock:
            logs, self._logs = self._logs, {}
        for partition, log in logs.items():
            try:
                log.close()
            except OSError as error:
                self._log.error("closing %s failed: %s", partition, error)


def _parse_directory(name: str) -> TopicPartition | None:
    topic, separator, number = name.rpartition("-")
    if not separator or not topic or not number.isdigit():
        return None
    return TopicPartition(topic, int(number))
