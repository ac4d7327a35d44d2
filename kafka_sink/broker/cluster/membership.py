"""The membership of this process in its cluster: its locks in the data directory, and changes by other processes.

A process is either a whole cluster, with exclusive use of the data directory, or one node of a cluster whose processes
share the directory. A shared cluster communicates through files: the cluster's state is a file that is replaced as a
whole, and each node holds a lock on a file for as long as its process lives, so the next check detects a killed
process. Membership starts and stops with the nodes of the process; a thread of its own calls :meth:`Membership.look`
periodically. A node whose file is locked must not be considered dead, and a process must not keep its own node's file
when its logs are not safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.log_ownership import LogOwnership
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.file_lock import FileLock
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.log.log_manager import LogManager
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.broker.purgatory import DelayedOperationPurgatory
from kafka_sink.common.clock import Clock
from kafka_sink.common.files import make_own_directory
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.threads import start_thread

#: Interval at which a process checks for changes by other processes: the upper bound of the age of metadata.
LOOK_INTERVAL_MS: Final = 25


class NodeFiles:
    """One lock file per node, held by the process that runs the node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[int, FileLock] = {}
        make_own_directory(directory)

    def hold(self, node_id: int) -> None:
        """Register that *node_id* runs in this process. :raises OSError: if it runs in another process."""
        with self._deciding():
            try:
                self._held[node_id] = FileLock(self._path(node_id))
            except BlockingIOError:
                text = f"broker {node_id} is already running in another process that uses the data directory"
                raise OSError(f"{text} {self._directory.parent}") from None

    def is_free(self, node_id: int) -> bool:
        """Whether *node_id* runs neither in this process nor in another one."""
        if node_id in self._held:
            return False
        with self._deciding():
            try:
                FileLock(self._path(node_id)).release()
            except BlockingIOError:
                return False
        return True

    def release(self) -> None:
        """Release all files."""
        for lock in self._held.values():
            lock.release()
        self._held.clear()

    def _deciding(self) -> FileLock:
        # A check takes the file's lock for a moment: another process must not mistake that for a running node.
        return FileLock(self._directory / "looking.lock", wait=True)

    def _path(self, node_id: int) -> Path:
        return self._directory / f"{node_id}.lock"


class Membership:
    """Holds the lock of the data directory, the cluster state and the logs.

    :param shared: whether other processes may be nodes of the same cluster.
    """

    def __init__(
        self,
        directory: Path,
        filesystem: FileSystem,
        config: BrokerConfig,
        clock: Clock,
        node_ids: Sequence[int],
        *,
        shared: bool,
    ) -> None:
        """:raises OSError: if the directory or the node is in use by another process, or the directory is not usable.
        :raises ConfigError: if the directory holds something else.
        """
        self._clock = clock
        self._node_ids = tuple(node_ids)
        self._shared = shared
        self._logs_directory = directory / "logs"
        self._log = ContextLogger(__name__, "cluster")
        self._looking = threading.Condition()
        # Guarded by the condition's lock.
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._ownership: LogOwnership | None = None
        self._follow: Callable[[], None] = lambda: None
        filesystem.make_directories(directory)
        self._directory_lock = _hold_directory(directory, shared=shared)
        self._node_files: NodeFiles | None = None
        try:
            if shared:
                self._node_files = NodeFiles(directory / "nodes")
                for node_id in node_ids:
                    self._node_files.hold(node_id)
            self.state = ClusterState(directory, filesystem, config, node_ids, shared=shared)
            self.logs = LogManager(self._logs_directory, filesystem, clock, shared=shared)
            if not shared:
                self.logs.open_existing(self._log_config)
        except BaseException:
            self.release()
            raise

    def _log_config(self, partition: TopicPartition) -> LogConfig | None:
        topic = self.state.topic(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return topic.settings.log

    def start(self, purgatory: DelayedOperationPurgatory, follow: Callable[[], None]) -> None:
        """Start to follow the cluster. If processes share it, a thread checks for changes by other processes and calls
        *follow* after each check, for changes that are not part of the cluster's state.
        """
        self._follow = follow
        self._ownership = LogOwnership(
            self.state, self.logs, self._logs_directory, self._node_ids, purgatory, shared=self._shared
        )
        self.state.subscribe(self._ownership.sync)
        if self._shared:
            for node_id in self._node_ids:
                # Partitions that an earlier process of this node led get new leader epochs.
                self.state.node_down(node_id)
            self.look()
            self._thread = start_thread("broker-cluster", self._run)

    def look(self) -> None:
        """Detect dead nodes and changes by other processes, and apply them."""
        assert self._node_files is not None and self._ownership is not None
        files = self._node_files
        self.state.refresh()
        for node_id in tuple(self.state.nodes):
            if files.is_free(node_id):
                self._log.info("broker %d has left the cluster", node_id)
                self.state.node_down(node_id, partial(files.is_free, node_id))
        if self._ownership.pending:
            self._ownership.sync()
        self._follow()

    def _run(self) -> None:
        while True:
            with self._looking:
                if not self._stopping:
                    self._clock.wait(self._looking, LOOK_INTERVAL_MS)
                if self._stopping:
                    return
            try:
                self.look()
            except Exception:
                # Without this thread the node would neither follow the cluster nor detect that other nodes have
                # stopped.
                self._log.exception("cannot see the changes of the other brokers")

    def stop(self) -> None:
        """End the thread. The nodes of this process must have left the cluster."""
        with self._looking:
            self._stopping = True
            self._looking.notify()
        if self._thread is not None:
            self._thread.join()

    def release(self) -> None:
        """Release all locks for other processes. The logs must be closed."""
        if self._ownership is not None:
            self._ownership.release()
        if self._node_files is not None:
            self._node_files.release()
        self._directory_lock.release()


def _hold_directory(directory: Path, *, shared: bool) -> FileLock:
    try:
        return FileLock(directory / ".lock", shared=shared)
    except BlockingIOError:
        hint = ""
        if shared:
            hint = "; to run a cluster of several processes there, start every one with its own --node-id"
        raise OSError(f"data directory {directory} is in use by another broker process{hint}") from None
