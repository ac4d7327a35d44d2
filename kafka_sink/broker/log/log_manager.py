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
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.threads import start_thread

#: Ends the name of a directory that is being removed.
DELETED_SUFFIX: Final = "-delete"


class LogManager:
    """Opens, finds, tends and deletes the logs below *directory*."""

    def __init__(self, directory: Path, filesystem: FileSystem, clock: Clock, *, shared: bool = False) -> None:
        """*shared*: other processes have logs in *directory* as well, so none is opened but by :meth:`open`."""
        self._directory = directory
        self._shared = shared
        self._filesystem = filesystem
        self._clock = clock
        self._log = ContextLogger(__name__, f"log manager {directory}")
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._tending = threading.Condition()
        self._stopping = False
        self._housekeeper: threading.Thread | None = None
        filesystem.make_directories(directory)

    def open_existing(self, configs: Callable[[TopicPartition], LogConfig | None]) -> int:
        """Open every log on the disk that *configs* knows; returns how many bytes recovery had to cut off.

        What it does not know (a topic whose deletion was interrupted) is removed.
        """
        truncated = 0
        for name in self._filesystem.list_directory(self._directory):
            partition = _parse_directory(name)
            if partition is None:
                if name.endswith(DELETED_SUFFIX):
                    self._filesystem.remove_tree(self._directory / name)
                continue
            config = configs(partition)
            if config is None:
                self._log.info("removing %s, which belongs to no topic", name)
                self._filesystem.remove_tree(self._directory / name)
                continue
            log = PartitionLog(self._directory / name, self._filesystem, config, self._clock.wall_ms())
            truncated += log.truncated_bytes
            self._logs[partition] = log
        return truncated

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of *partition*; None while nothing was ever written to it, or while another process has it."""
        return self._logs.get(partition)

    def serves(self, partition: TopicPartition) -> bool:
        """Whether what this process says of *partition*'s log is the truth: no other process has it, or may have."""
        return not self._shared or partition in self._logs

    def open(self, partition: TopicPartition, config: LogConfig) -> None:
        """Open the log of *partition*, which no other process has open. :raises OSError: that is not possible."""
        log = PartitionLog(self._directory / str(partition), self._filesystem, config, self._clock.wall_ms())
        with self._lock:
            self._logs[partition] = log

    def hand_over(self, partition: TopicPartition) -> None:
        """Close one log, so that another process may open it."""
        with self._lock:
            found = self._logs.pop(partition, None)
        if found is not None:
            try:
                found.hand_over()
            except OSError as error:
                self._log.error("closing %s failed: %s", partition, error)

    def get_or_create(
        self, partition: TopicPartition, config: LogConfig, still_wanted: Callable[[], bool]
    ) -> PartitionLog | None:
        """The log of *partition*, made if nothing was written yet; None when it is not *still_wanted*.

        That is asked under the lock that deletions take: a request that was looked up before its topic was deleted
        must not leave a log for the next topic of that name.

        :raises OSError: the log's directory cannot be made.
        :raises ApiError: NOT_LEADER_OR_FOLLOWER, where processes share the directory and another one has the log.
        """
        found = self._logs.get(partition)
        if found is not None:
            return found
        if self._shared:
            raise ApiError(f"{partition} is not open in this process", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with self._lock:
            found = self._logs.get(partition)
            if found is None and still_wanted():
                path = self._directory / str(partition)
                found = PartitionLog(path, self._filesystem, config, self._clock.wall_ms())
                self._logs[partition] = found
            return found

    def delete(self, partitions: list[TopicPartition]) -> None:
        """Delete logs with all their data; their names are free for re-use when this returns.

        :raises OSError: some could not be removed and are as they were, all others are gone.
        """
        failure: OSError | None = None
        for partition in partitions:
            try:
                self._delete(partition)
            except OSError as error:
                self._log.error("%s cannot be removed: %s", partition, error)
                failure = error
        if failure is not None:
            raise failure

    def _delete(self, partition: TopicPartition) -> None:
        directory = self._directory / str(partition)
        target = self._directory / f"{uuid4().hex}{DELETED_SUFFIX}"
        with self._lock:
            found = self._logs.get(partition)
            if found is None and (self._shared or not self._filesystem.list_directory(directory)):
                return
            # A rename happens or does not; a tree that is half removed would come back as a damaged log.
            if found is None:
                self._filesystem.rename(directory, target)
            else:
                found.move_away(target)
                del self._logs[partition]
        self._filesystem.remove_tree(target)

    def start_housekeeping(self, name: str, interval_ms: int, flush_interval_ms: int) -> None:
        """Tend the logs every *interval_ms* on a thread of their own, which may take seconds.

        Every *flush_interval_ms* it looks which logs are to be flushed.
        """

        def run() -> None:
            next_tending_ms = self._clock.monotonic_ms() + interval_ms
            while True:
                with self._tending:
                    if not self._stopping:
                        self._clock.wait(self._tending, min(interval_ms, flush_interval_ms))
                    if self._stopping:
                        return
                now_ms = self._clock.monotonic_ms()
                self.flush_due(now_ms)
                if now_ms >= next_tending_ms:
                    next_tending_ms = now_ms + interval_ms
                    self.housekeep()

        self._housekeeper = start_thread(name, run)

    def stop_housekeeping(self) -> None:
        """End the thread; returns when it has."""
        with self._tending:
            self._stopping = True
            self._tending.notify()
        if self._housekeeper is not None:
            self._housekeeper.join()

    def flush_due(self, monotonic_ms: int) -> None:
        """Flush what has waited for as long as its topic allows (``flush.ms``)."""
        with self._lock:
            logs = list(self._logs.values())
        for log in logs:
            try:
                log.flush_if_older(monotonic_ms)
            except Exception:
                # A mistake in one log must not end the thread that tends them all.
                self._log.exception("flushing %s failed", log.directory)

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
            except Exception:
                self._log.exception("housekeeping of %s failed", partition)
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
