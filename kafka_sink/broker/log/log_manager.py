"""All partition logs of a data directory.

Called by handler threads (lookups, first appends, deletions) and by its own threads for housekeeping and compaction.
Directories have Kafka's names, ``topic-partition``; the caller has validated topic names. The log manager must not hold
its own lock while a log does I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from kafka_sink.broker.log.cleaner import compact
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.log.partition_log import LogConfig, PartitionLog
from kafka_sink.common.bounded import INT32_MAX, known_number
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.threads import start_thread

#: Suffix of a directory that is being removed.
DELETED_SUFFIX: Final = "-delete"


class LogManager:
    """Opens, finds, maintains and deletes the logs in *directory*."""

    def __init__(self, directory: Path, filesystem: FileSystem, clock: Clock) -> None:
        self.directory = directory
        self._filesystem = filesystem
        self._clock = clock
        self._log = ContextLogger(__name__, f"log manager {directory}")
        self._lock = threading.Lock()
        # Guarded by the lock.
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._tending = threading.Condition()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        filesystem.make_directories(directory)

    def open_existing(self, configs: Callable[[TopicPartition], LogConfig | None]) -> None:
        """Open every log on disk for which *configs* returns a config.

        Other logs (of topics whose deletion was interrupted) are removed.
        """
        for name in self._filesystem.list_directory(self.directory):
            partition = _parse_directory(name)
            if partition is None:
                if name.endswith(DELETED_SUFFIX):
                    self._filesystem.remove_tree(self.directory / name)
                continue
            config = configs(partition)
            if config is None:
                self._log.info("removing %s, which does not belong to a topic", name)
                self._filesystem.remove_tree(self.directory / name)
                continue
            log = PartitionLog(self.directory / name, self._filesystem, config, self._clock.wall_ms())
            self._logs[partition] = log

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of *partition*; None if nothing was written to it yet."""
        return self._logs.get(partition)

    def get_or_create(
        self, partition: TopicPartition, config: LogConfig, still_wanted: Callable[[], bool]
    ) -> PartitionLog | None:
        """The log of *partition*, created if nothing was written yet; None if *still_wanted* returns False.

        *still_wanted* is called under the lock that deletions take: a request that was resolved before its topic was
        deleted must not create a log for the next topic with that name.

        :raises OSError: if the log's directory cannot be created.
        """
        log = self._logs.get(partition)
        if log is not None:
            return log
        with self._lock:
            log = self._logs.get(partition)
            if log is None and still_wanted():
                path = self.directory / str(partition)
                log = PartitionLog(path, self._filesystem, config, self._clock.wall_ms())
                self._logs[partition] = log
            return log

    def delete(self, partitions: list[TopicPartition]) -> None:
        """Delete logs and all their data; their names can be reused when this returns.

        :raises OSError: if some logs could not be removed; these are unchanged, and all others are removed.
        """
        failure: OSError | None = None
        for partition in partitions:
            try:
                self._delete(partition)
            except OSError as error:
                self._log.error("cannot remove %s: %s", partition, error)
                failure = error
        if failure is not None:
            raise failure

    def _delete(self, partition: TopicPartition) -> None:
        directory = self.directory / str(partition)
        target = self.directory / f"{uuid4().hex}{DELETED_SUFFIX}"
        with self._lock:
            log = self._logs.get(partition)
            if log is None and not self._filesystem.list_directory(directory):
                return
            # A rename is atomic; a partly removed directory would be opened as a damaged log.
            if log is None:
                self._filesystem.rename(directory, target)
            else:
                log.move_away(target)
                del self._logs[partition]
        self._filesystem.remove_tree(target)

    def start_housekeeping(self, name: str, interval_ms: int, flush_interval_ms: int) -> None:
        """Call :meth:`housekeep` every *interval_ms* on its own thread; a run may take seconds.

        Every *flush_interval_ms* the thread also flushes logs that are due.
        """

        def run() -> None:
            next_tending_ms = self._clock.monotonic_ms() + interval_ms
            while self._waits(min(interval_ms, flush_interval_ms)):
                now_ms = self._clock.monotonic_ms()
                self.flush_due(now_ms)
                if now_ms >= next_tending_ms:
                    next_tending_ms = now_ms + interval_ms
                    self.housekeep()

        self._threads.append(start_thread(name, run))

    def start_compaction(self, name: str, backoff_ms: Callable[[], int]) -> None:
        """Call :meth:`compact` on its own thread, with pauses of *backoff_ms*; a run may take minutes."""

        def run() -> None:
            while self._waits(max(backoff_ms(), 1)):
                self.compact()

        self._threads.append(start_thread(name, run))

    def _waits(self, timeout_ms: int) -> bool:
        """Wait; False if the threads have to end."""
        with self._tending:
            if not self._stopping:
                self._clock.wait(self._tending, timeout_ms)
            return not self._stopping

    def stop_housekeeping(self) -> None:
        """End the threads; returns when they have ended."""
        with self._tending:
            self._stopping = True
            self._tending.notify_all()
        for thread in self._threads:
            thread.join()

    def _all(self) -> list[tuple[TopicPartition, PartitionLog]]:
        with self._lock:
            return list(self._logs.items())

    def flush_due(self, monotonic_ms: int) -> None:
        """Flush logs whose unflushed data has reached the age of ``flush.ms``."""
        for _, log in self._all():
            try:
                log.flush_if_older(monotonic_ms)
            except Exception:
                # An error in one log must not end the thread that maintains all logs.
                self._log.exception("flushing %s failed", log.directory)

    def housekeep(self) -> None:
        """Seal rolled segments and apply retention, log by log; a failure of one log does not affect the others."""
        for partition, log in self._all():
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

    def compact(self) -> None:
        """Compact the logs that are due, one after another; a failure of one log does not affect the others."""
        for partition, log in self._all():
            try:
                while not self._stopping and compact(log, self._clock.wall_ms(), lambda: self._stopping):
                    self._log.info("compacted %s", partition)
            except OSError as error:
                if self._logs.get(partition) is log:
                    # The disk failed, or retention has deleted a segment in the meantime.
                    self._log.warning("%s was not compacted, which will be tried again: %s", partition, error)
            except CorruptRecordError as error:
                self._log.error("%s is not compacted any more: %s", partition, error)
            except Exception:
                self._log.exception("%s was not compacted", partition)

    def abandon(self) -> None:
        """Close all logs without flushing their data."""
        with self._lock:
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.abandon()

    def close(self) -> None:
        with self._lock:
            logs, self._logs = self._logs, {}
        for partition, log in logs.items():
            try:
                log.close()
            except OSError as error:
                self._log.error("closing %s failed: %s", partition, error)


def _parse_directory(name: str) -> TopicPartition | None:
    topic, _, text = name.rpartition("-")
    number = known_number(text, 0, INT32_MAX)
    return None if not topic or number is None else TopicPartition(topic, number)
